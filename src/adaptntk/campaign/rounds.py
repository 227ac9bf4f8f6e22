"""The steps of a round. Each is a function of what is on disk, and is done once its file is there."""

import logging
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from adaptntk.campaign import jobs
from adaptntk.campaign.config import Labels
from adaptntk.campaign.layout import ROLES
from adaptntk.campaign.run_directory import Clock, Round, RunDirectory, read_json
from adaptntk.core import metrics
from adaptntk.core.calibration import MINIMUM_STRUCTURES
from adaptntk.data.structures import (
    read_structures,
    reference_energies,
    structure_hash,
    write_structures,
)
from adaptntk.data.xtb_md import build_molecule
from adaptntk.errors import InputError
from adaptntk.evaluation import force_errors
from adaptntk.execution import run_limited
from adaptntk.files import make_folder, write_atomically, write_json, write_table
from adaptntk.labelers.kinds import bare
from adaptntk.labelers.process import Request, label_structure
from adaptntk.md.exploration import collect, displaced, normal_modes
from adaptntk.models.protocol import Potential
from adaptntk.progress import Progress, silent

log = logging.getLogger(__name__)

# Structures from which the random labels are drawn, for each one wanted: what fails is replaced.
SPARE = 5
BOOTSTRAPS = 2000
# Of the bound on the error of a hold-out structure.
BOUND_COVERAGE = 0.9


class Worker:
    """Sends work to an executor, and shows how it gets on."""

    def __init__(self, run: RunDirectory, executor: Executor, progress: Progress = silent) -> None:
        self.run = run
        self.executor = executor
        self.progress = progress

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """One piece of work."""
        return self._submit(function, *arguments).result()

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], what: str) -> list[Any]:
        """Many, side by side; results in the order of the jobs."""
        futures = [self._submit(function, *arguments) for arguments in jobs]
        for future in self.progress(as_completed(futures), what, len(futures)):
            future.result()
        return [future.result() for future in futures]

    def label(self, frames: Sequence[Atoms]) -> None:
        """Label structures, or put them into quarantine; those that are settled cost nothing."""
        requests = [Request(self.run.config.label.spec, atoms, self.run.path) for atoms in frames]
        waiting = [request for request in requests if not request.settled]
        futures = [self.executor.submit(label_structure, request) for request in waiting]
        for future in self.progress(as_completed(futures), "labels", len(futures)):
            future.result()

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        return self.executor.submit(run_limited, self.run.config.threads, function, *arguments)


def begin(run: RunDirectory, worker: Worker) -> None:
    """The labels before the first model: those given, and new ones of structures near the starting ones."""
    here, wanted = run.round(0), run.config.first
    if run.config.start.labelled is not None:
        _take_given(run, wanted)
    missing = {role: getattr(wanted, role) - len(run.labelled(role)) for role in ROLES}
    if not here.random.exists():
        count = SPARE * sum(max(0, number) for number in missing.values())
        write_structures(here.random, _near_the_start(run, count))
    supply = iter(_read(here.random))
    for role in ROLES:
        label_random(run, worker, 0, role, getattr(wanted, role), supply, "start")
    had = {role: len(run.labelled(role)) for role in ROLES}
    if had["train"] < 2 or had["valid"] < MINIMUM_STRUCTURES or had["holdout"] < 2:
        raise InputError(
            f"too few first structures could be labelled to begin with ({had}); see {run.path / 'quarantine'} for why"
        )


def explore(run: RunDirectory, number: int, worker: Worker) -> None:
    """Candidates for the round: from simulations with the last model, or from a file."""
    here, before = run.round(number), run.round(number - 1)
    if here.pool.exists():
        return
    explored, wanted = run.config.explore, run.config.round
    known = run.known_hashes() | {structure_hash(atoms) for atoms in test_structures(run)}
    if explored.pool is not None:
        given = [bare(atoms) for atoms in read_structures(explored.pool)]
        new = collect(given, None, known, explored.min_distance)
    else:
        met = _simulate(run, number, before, worker)
        highest = explored.lost * _threshold(run, before, explored.coverage)
        # Twice as many as are wanted, for some labels may fail.
        new = not_lost(met, known, explored.min_distance, highest, 2 * wanted.total)
    rng = np.random.default_rng([run.config.seed, number, 1])
    # Drawn from everything that is left, before anything is chosen: only so do they tell the error there.
    drawn = rng.permutation(len(new))[: SPARE * (wanted.valid + wanted.holdout)]
    write_structures(here.random, [_marked(new[i]) for i in drawn])
    write_structures(here.pool, [_marked(atoms) for atoms in _uncertain(run, before, new)])


def not_lost(
    frames: Sequence[Atoms], known: Collection[str], min_distance: float, highest: float, wanted: int
) -> list[Atoms]:
    """New frames that the model met before it was lost; if it was from the start, the least uncertain ones it met."""
    found = collect(frames, None, known, min_distance, highest=highest)
    if len(found) >= wanted:
        return found
    least_first = sorted(frames, key=lambda atoms: atoms.info["ntk_variance"])
    return collect(least_first, None, known, min_distance)[:wanted]


def pick_and_label(run: RunDirectory, number: int, worker: Worker) -> None:
    """Choose a batch, label it, and replace what failed by the next best, until it is complete."""
    here, before, wanted = run.round(number), run.round(number - 1), run.config.round
    supply = iter(_read(here.random))
    clock = Clock()
    with clock.of("label"):
        for role in ("valid", "holdout"):
            label_random(run, worker, number, role, getattr(wanted, role), supply, "random")
    pool = _read(here.pool)
    if not pool:
        here.add_seconds(clock.seconds)
        return
    rows: np.ndarray | None = None
    waves = here.picks()
    hashes = [structure_hash(atoms) for atoms in pool]
    place = {identity: index for index, identity in enumerate(hashes)}
    while True:
        for wave in waves:
            with clock.of("label"):
                worker.label([_with_provenance(pool[place[p["hash"]]], number, p, run) for p in wave])
        chosen = [pick["hash"] for wave in waves for pick in wave]
        known = {path.stem for path in (run.path / "labels").glob("*.xyz")}
        labelled = [identity for identity in chosen if identity in known]
        missing = wanted.train - len(labelled)
        settled = run.known_hashes() | set(chosen)
        excluded = [identity in settled for identity in hashes]
        missing = min(missing, excluded.count(False))
        if missing <= 0:
            here.add_seconds(clock.seconds)
            return
        with clock.of("select"):
            rows = rows if rows is not None else _features(run, before, pool, worker)
            picked = [place[identity] for identity in labelled]
            seed = _seed(run, number, len(waves))
            found = worker.do(jobs.choose, before.ntk, rows, missing, excluded, picked, run.config, seed)
        first = sum(len(wave) for wave in waves)
        waves.append(
            [
                {"hash": hashes[p["index"]], "number": first + n, "score": p["score"], "information": p["information"]}
                for n, p in enumerate(found)
            ]
        )
        here.write_picks(waves)


def _features(run: RunDirectory, before: Round, pool: list[Atoms], worker: Worker) -> np.ndarray:
    device = run.config.execution.device
    shards = [(before.ntk, pool[i : i + jobs.SHARD], device) for i in range(0, len(pool), jobs.SHARD)]
    return np.concatenate(worker.map(jobs.shard_features, shards, "features"))


def learn(run: RunDirectory, number: int, worker: Worker) -> None:
    """Train the network on all labels so far."""
    here = run.round(number)
    if here.model.exists():
        return
    given = run.config.start.model
    if number == 0 and given is not None:
        write_atomically(here.model, lambda temporary: shutil.copyfile(given, temporary))
        return
    start = run.round(number - 1).model if run.config.train.mode == "fine-tune" and number > 0 else None
    training, valid = run.labelled("train"), run.labelled("valid")
    worker.do(jobs.train_model, here.model, training, valid, start, run.config, _seed(run, number, 0))


def fit(run: RunDirectory, number: int, worker: Worker) -> None:
    """Fit the uncertainty of the round's model."""
    here = run.round(number)
    if not here.ntk.exists():
        worker.do(jobs.fit_ntk, here.model, here.ntk, run.labelled("train"), run.labelled("valid"), run.config)


def evaluate(run: RunDirectory, number: int) -> None:
    """Errors on all hold-out structures so far, and the summary that completes the round."""
    here = run.round(number)
    holdout = run.labelled("holdout")
    uncertainty = jobs.load_ntk(here.ntk, run.config.execution.device)
    found = uncertainty.assess(holdout)
    scores = uncertainty.scores_of_variance(found.variance, holdout)
    assert scores.sigma is not None
    assert uncertainty.calibration is not None
    errors = force_errors(found.forces, holdout)
    energy_errors = np.abs(found.energies - reference_energies(holdout))
    bounds = uncertainty.calibration.error_bound(found.variance, BOUND_COVERAGE)
    write_table(
        here.folder / "holdout.csv",
        {
            "hash": [structure_hash(atoms) for atoms in holdout],
            "force_error": errors.tolist(),
            "forces_uncertainty": scores.sigma.tolist(),
            "forces_error_bound": [float(b) if np.isfinite(b) else "" for b in bounds],
            "energy_error": energy_errors.tolist(),
        },
    )
    test = test_structures(run)
    spearman = metrics.spearman(found.variance, errors)
    picks = [pick["information"] for wave in here.picks() for pick in wave]
    write_json(
        here.folder / "round.json",
        {
            "round": number,
            "labels": {role: len(run.labelled(role)) for role in ROLES}
            | {"quarantined": len(list((run.path / "quarantine").glob("*.json")))},
            "labels_spent": run.labels_spent(),
            "confidence": run.config.stop.confidence,
            "coverage": BOUND_COVERAGE,
            "errors": _summary(errors, energy_errors, holdout, run),
            **({"test": _errors_on(uncertainty.potential, test, run)} if test else {}),
            "spearman": float(spearman) if np.isfinite(spearman) else None,
            "information_per_label": float(np.mean(picks)) if picks else None,
        },
    )


def test_structures(run: RunDirectory) -> list[Atoms]:
    """Labelled structures that the user set apart; often there are none."""
    start = run.config.start
    if run.config.test is None:
        return []
    return read_structures(run.config.test, start.energy_key, start.forces_key, labelled=True)


def _errors_on(potential: Potential, frames: list[Atoms], run: RunDirectory) -> dict[str, float]:
    predicted = potential.predict(frames)
    errors = force_errors(predicted.forces, frames)
    return _summary(errors, np.abs(predicted.energies - reference_energies(frames)), frames, run)


def _summary(
    errors: np.ndarray, energy_errors: np.ndarray, frames: Sequence[Atoms], run: RunDirectory
) -> dict[str, float]:
    """What is said of the errors on a set of structures."""
    sizes = np.array([len(atoms) for atoms in frames], dtype=float)
    return force_error_interval(errors, sizes, run.config.stop.confidence, run.config.seed) | {
        "force_rmse_p99": float(np.quantile(errors, 0.99)),
        "energy_mae_per_atom": float((energy_errors / sizes).mean()),
    }


def force_error_interval(errors: np.ndarray, sizes: np.ndarray, confidence: float, seed: int) -> dict[str, float]:
    """Root mean square force error with one-sided bounds, by resampling whole structures.

    Each bound is passed with probability ``1 - confidence``.
    """
    rng = np.random.default_rng(seed)
    samples = rng.integers(0, len(errors), (BOOTSTRAPS, len(errors)))
    squares, weights = (errors**2 * sizes)[samples].sum(1), sizes[samples].sum(1)
    low, high = np.quantile(np.sqrt(squares / weights), [1 - confidence, confidence])
    rmse = float(np.sqrt(np.average(errors**2, weights=sizes)))
    return {"force_rmse": rmse, "force_rmse_low": float(low), "force_rmse_high": float(high)}


def label_random(
    run: RunDirectory, worker: Worker, number: int, role: str, wanted: int, supply: Iterator[Atoms], chosen_by: str
) -> None:
    """Label structures in the order in which they were drawn, until so many of this round and role are there."""
    done = 0
    taken = 0
    if number == 0:
        done = sum(a.info["chosen_by"] == "given" for a in run.labelled(role))
    while done < wanted:
        part: list[Atoms] = []
        for atoms in supply:
            atoms.info |= {"round": number, "role": role, "chosen_by": chosen_by, "number": taken + len(part)}
            part.append(atoms)
            if len(part) == wanted - done:
                break
        if not part:
            log.warning("round %d: only %d of %d %s labels could be had", number, done, wanted, role)
            return
        taken += len(part)
        worker.label(part)
        done += sum((run.path / "labels" / f"{a.info['hash']}.xyz").exists() for a in part)


def _take_given(run: RunDirectory, wanted: Labels) -> None:
    """Copy labels that the user has; what is not needed for hold-out and validation is learnt from."""
    start = run.config.start
    assert start.labelled is not None
    frames = read_structures(start.labelled, start.energy_key, start.forces_key, labelled=True)
    order = np.random.default_rng([run.config.seed, 0, 2]).permutation(len(frames))
    # Too few for all: half to learn from, the rest shared out.
    test = min(wanted.holdout, len(frames) // 4)
    valid = min(wanted.valid, len(frames) // 4)
    for place, index in enumerate(order.tolist()):
        role = "holdout" if place < test else "valid" if place < test + valid else "train"
        atoms = _marked(frames[index])
        atoms.info |= {"round": 0, "role": role, "chosen_by": "given", "number": -len(frames) + place}
        path = run.path / "labels" / f"{atoms.info['hash']}.xyz"
        if not path.exists():
            write_structures(path, [atoms])


def _near_the_start(run: RunDirectory, count: int) -> list[Atoms]:
    """Displaced starting structures, as many of each."""
    start, starts = run.config.start, starting_structures(run)
    if count <= 0:
        return []
    per_start = -(-count // len(starts))
    found: list[Atoms] = []
    for index, atoms in enumerate(starts):
        seed = _seed(run, 0, 10 + index)
        if start.sampling == "displacement":
            samples = displaced(atoms, per_start, start.displacement, seed)
        else:
            from tblite.ase import TBLite

            calculator = TBLite(method="GFN2-xTB", verbosity=0)
            samples = normal_modes(calculator, atoms, per_start, start.temperature, seed)
        for sample in samples:
            sample.info["trajectory"] = f"start {index}, {start.sampling.replace('_', ' ')}"
        found += samples
    order = np.random.default_rng([run.config.seed, 0, 3]).permutation(len(found))[:count]
    return [_marked(found[i]) for i in order]


def starting_structures(run: RunDirectory) -> list[Atoms]:
    """Where simulations start."""
    start = run.config.start
    if start.structures is not None:
        return read_structures(start.structures)
    if start.molecule is not None:
        return [build_molecule(start.molecule)]
    return run.labelled("train", before=1)


def _simulate(run: RunDirectory, number: int, before: Round, worker: Worker) -> list[Atoms]:
    here, config = run.round(number), run.config.explore
    folder = make_folder(here.folder / "trajectories")
    starts = starting_structures(run)
    rng = np.random.default_rng([run.config.seed, number, 0])
    chosen = sorted(rng.permutation(len(starts))[: config.starts].tolist())
    work: list[jobs.Trajectory] = []
    for start in chosen:
        for temperature in config.temperatures:
            for repeat in range(config.trajectories):
                name = f"start {start}, {temperature:g} K" + (f", {repeat}" if config.trajectories > 1 else "")
                output = folder / f"{len(work):03d}.xyz"
                seed = _seed(run, number, 100 + len(work))
                work.append(jobs.Trajectory(before.ntk, starts[start], name, temperature, seed, output))
    waiting = [(job, run.config) for job in work if not job.output.with_suffix(".json").exists()]
    worker.map(jobs.run_trajectory, waiting, "simulations")
    about = [read_json(job.output.with_suffix(".json")) for job in work]
    write_json(here.folder / "explored.json", {"trajectories": about})
    return [atoms for job in work for atoms in _read(job.output)]


def _threshold(run: RunDirectory, before: Round, coverage: float) -> float:
    calibration = jobs.load_ntk(before.ntk, run.config.execution.device).calibration
    assert calibration is not None
    return calibration.variance_threshold(coverage)


def _uncertain(run: RunDirectory, before: Round, frames: list[Atoms]) -> list[Atoms]:
    """Frames above the threshold; all of them where those are fewer than twice the batch, or for random choice."""
    if run.config.select.method == "random" or run.config.explore.above == 0 or run.config.explore.pool is not None:
        return frames
    threshold = _threshold(run, before, run.config.explore.above)
    found = [atoms for atoms in frames if atoms.info["ntk_variance"] > threshold]
    return found if len(found) >= 2 * run.config.round.train else frames


def _with_provenance(atoms: Atoms, number: int, pick: dict[str, Any], run: RunDirectory) -> Atoms:
    atoms.info |= {"round": number, "role": "train", "chosen_by": run.config.select.method} | {
        key: pick[key] for key in ("number", "score", "information")
    }
    return atoms


def _marked(atoms: Atoms) -> Atoms:
    """The structure with its hash."""
    atoms.info["hash"] = structure_hash(atoms)
    return atoms


def _read(path: Path) -> list[Atoms]:
    """Structures of a file that may hold none."""
    return read_structures(path, own=True) if path.exists() and path.stat().st_size else []


def _seed(run: RunDirectory, number: int, what: int) -> int:
    """Another seed for everything that is random."""
    return int(np.random.SeedSequence([run.config.seed, number, what]).generate_state(1)[0])
