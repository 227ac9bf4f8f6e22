"""A run directory as a campaign leaves it, from real structures and labels; errors and uncertainties are made up."""

import csv
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
from ase import Atoms

from adaptntk.data.structures import FORCES, structure_hash, write_structures
from adaptntk.files import write_json
from adaptntk.training.limits import Learnt

ROUNDS = 3
START, VALID, HOLDOUT = 20, 10, 20
POOL, BATCH, NEW_HOLDOUT = 45, 10, 5
SECONDS = {"explore": 41.0, "select": 1.5, "label": 6.2, "train": 95.0, "evaluate": 3.1}
FAILURE = "xTB did not converge: SCF not converged in 250 iterations <&> 'quoted'"


def write_run(folder: Path, cool: list[Atoms], hot: list[Atoms], name: str = "ethanol", better: float = 1.0) -> Path:
    """Three rounds: a start without a model, then two with exploration at 500 K and at 900 K."""
    rng = np.random.default_rng(0)
    frames = [(atoms, 500, i) for i, atoms in enumerate(cool)] + [(atoms, 900, i) for i, atoms in enumerate(hot)]
    frames = [frames[i] for i in rng.permutation(len(frames))]
    for part in ("labels", "quarantine", "rounds"):
        (folder / part).mkdir(parents=True)
    write_json(
        folder / "run.json",
        {
            "format": 1,
            "adaptntk": "0.1.0",
            "name": name,
            "config": {"name": name, "label": {"method": "GFN2-xTB"}, "rounds": ROUNDS},
            "created": "2026-11-16T08:00:00+00:00",
        },
    )
    (folder / "campaign.yaml").write_text(f"name: {name}\n")
    holdout: list[Atoms] = []
    for number in range(ROUNDS):
        write_round(folder, number, [frames.pop() for _ in range(POOL + 5)], holdout, better, rng)
    rmse = 1000 * json.loads((folder / "rounds" / "02" / "round.json").read_text())["errors"]["force_rmse"]
    met = rmse < 70
    text = f"The force RMSE of {rmse:.1f} meV/Å is {'below' if met else 'above'} the target of 70 meV/Å"
    text += "." if met else f" after the {ROUNDS} rounds that were asked for."
    write_json(folder / "verdict.json", {"stop": True, "reason": "target" if met else "rounds", "text": text})
    return folder


def write_round(folder, number, frames, holdout, better, rng) -> None:
    """Files of one round in the order in which a campaign writes them."""
    place = folder / "rounds" / f"{number:02d}"
    place.mkdir()
    level = 0.16 * (0.62 * better) ** number
    picks: list[float] = []
    if number == 0:
        for index, (atoms, temperature, step) in enumerate(frames):
            role = "train" if index < START else "valid" if index < START + VALID else "holdout"
            chosen_by = "start" if role == "train" else "random"
            add_label(folder, atoms, number, role, chosen_by, temperature, step, holdout)
    else:
        picks = explore_and_pick(folder, place, number, frames, level, holdout)
    (place / "model.model").write_bytes(b"not read")
    (place / "model.ntk").write_bytes(b"not read")
    summary = write_holdout(place / "holdout.csv", holdout, level, rng)
    labels = [path.read_text() for path in (folder / "labels").glob("*.xyz")]
    roles = {role: sum(f"role={role}" in text for text in labels) for role in ("train", "valid", "holdout")}
    write_json(
        place / "round.json",
        {
            "round": number,
            "labels": {**roles, "quarantined": len(list((folder / "quarantine").glob("*.json")))},
            "labels_spent": sum(roles.values()),
            "confidence": 0.95,
            "coverage": 0.9,
            **summary,
            "information_per_label": float(np.mean(picks)) if picks else None,
            # The first round is as an earlier version left it.
            **(limited(summary["errors"]["force_rmse"], number) if number else {}),
        },
    )
    write_json(place / "seconds.json", {k: v for k, v in SECONDS.items() if number or k not in ("explore", "select")})


def limited(holdout: float, number: int) -> dict:
    """Errors on the other sets, and what follows from them: labels are missing at first, then the network is small."""
    learnt = Learnt((0.45 if number == 1 else 0.9) * holdout, 0.95 * holdout, VALID, gain=0.02)
    return {"learnt": asdict(learnt), "limit": asdict(learnt.limit(holdout, 100))}


def explore_and_pick(folder, place, number, frames, level, holdout) -> list[float]:
    """Two trajectories, of which the hot one was stopped; the second pick fails and is replaced in a second wave."""
    write_json(
        place / "explored.json",
        {
            "trajectories": [
                trajectory(500, 2000, 30, None, None),
                trajectory(900, 740, 15, "conformal threshold", "U = 0.41 above 0.38 at three frames in a row"),
            ]
        },
    )
    pool = [(candidate(entry, level), *entry[1:]) for entry in frames[:POOL]]
    write_structures(place / "pool.xyz", [atoms for atoms, *_ in pool])
    order = sorted(range(POOL), key=lambda i: -pool[i][0].info["ntk_variance"])
    chosen, failed, extra = order[:BATCH], order[1], order[BATCH]
    waves = [[entry_of(pool[i][0], n) for n, i in enumerate(chosen)], [entry_of(pool[extra][0], BATCH)]]
    write_json(place / "picks.json", {"waves": [{"picks": wave} for wave in waves]})
    for index in [*chosen, extra]:
        _, temperature, step = pool[index]
        original = frames[index][0]
        if index == failed:
            add_quarantined(folder, original, number)
            continue
        entry = entry_of(pool[index][0])
        add_label(folder, original, number, "train", "adaptntk", temperature, step, holdout, entry)
    for atoms, temperature, step in frames[POOL : POOL + NEW_HOLDOUT]:
        add_label(folder, atoms, number, "holdout", "random", temperature, step, holdout)
    return [entry_of(pool[i][0])["information"] for i in [*chosen, extra] if i != failed]


def trajectory(temperature, steps, frames, stopped_by, reason) -> dict:
    return {
        "name": f"start 0, {temperature} K",
        "temperature": temperature,
        "steps": steps,
        "frames": frames,
        "stopped_by": stopped_by,
        "reason": reason,
    }


def expected_error(atoms: Atoms, level: float) -> float:
    """Strained structures are the uncertain ones."""
    return level * (0.3 + float(np.sqrt(np.mean(atoms.arrays[FORCES] ** 2))) / 1.5)


def candidate(entry, level) -> Atoms:
    atoms, temperature, step = entry
    sigma = expected_error(atoms, level)
    bare = Atoms(numbers=atoms.numbers, positions=atoms.positions)
    bare.info = {
        "hash": structure_hash(atoms),
        "ntk_variance": sigma**2 / 2.8,
        "forces_uncertainty": sigma,
        "trajectory": f"start 0, {temperature} K",
        "temperature": temperature,
        "step": 10 * step,
    }
    return bare


def entry_of(atoms: Atoms, number: int = 0) -> dict:
    score = atoms.info["ntk_variance"]
    return {"hash": atoms.info["hash"], "number": number, "score": score, "information": float(np.log1p(score / 0.004))}


def add_label(folder, atoms, number, role, chosen_by, temperature, step, holdout, entry=None) -> None:
    atoms = atoms.copy()
    name = structure_hash(atoms)
    atoms.info |= {"hash": name, "round": number, "role": role, "chosen_by": chosen_by, "label_seconds": 0.4}
    atoms.info["number"] = len(list((folder / "labels").iterdir()))
    if number:
        atoms.info |= {"trajectory": f"start 0, {temperature} K", "temperature": temperature, "step": 10 * step}
    if entry:
        atoms.info |= {"score": entry["score"], "information": entry["information"]}
    if role == "holdout":
        holdout.append(atoms)
    write_structures(folder / "labels" / f"{name}.xyz", [atoms])


def add_quarantined(folder, atoms, number) -> None:
    name = structure_hash(atoms)
    write_structures(folder / "quarantine" / f"{name}.xyz", [Atoms(atoms.numbers, atoms.positions)])
    attempts = [{"error": FAILURE, "seconds": 2.5}, {"error": "no result within 60 s", "seconds": 60.0}]
    write_json(
        folder / "quarantine" / f"{name}.json",
        {"hash": name, "round": number, "role": "train", "chosen_by": "adaptntk", "attempts": attempts},
    )


def write_holdout(path, holdout, level, rng) -> dict:
    sigma = np.array([expected_error(atoms, level) for atoms in holdout])
    error = sigma * np.sqrt(rng.chisquare(6, len(sigma)) / 6)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["hash", "force_error", "forces_uncertainty", "forces_error_bound", "energy_error", "energy_uncertainty"]
        )
        for atoms, s, e in zip(holdout, sigma, error, strict=True):
            writer.writerow([structure_hash(atoms), e, s, 1.5 * s, 0.03 * e, 0.03 * s])
    rmse = float(np.sqrt(np.mean(error**2)))
    errors = {
        "force_rmse": rmse,
        "force_rmse_low": 0.88 * rmse,
        "force_rmse_high": 1.13 * rmse,
        "force_rmse_p99": float(np.quantile(error, 0.99)),
        "energy_mae_per_atom": 0.02 * rmse,
    }
    ranks = [np.argsort(np.argsort(values)) for values in (sigma, error)]
    return {"errors": errors, "spearman": float(np.corrcoef(*ranks)[0, 1])}


def cut_off(run: Path, copy: Path, number: int, keep: tuple[str, ...]) -> Path:
    """The run as it was when round ``number`` had only these files, with the labels of earlier rounds."""
    shutil.copytree(run, copy)
    (copy / "verdict.json").unlink()
    for place in sorted((copy / "rounds").iterdir()):
        if int(place.name) > number:
            shutil.rmtree(place)
        elif int(place.name) == number:
            for path in place.iterdir():
                if path.name not in keep:
                    path.unlink()
    for path in [*(copy / "labels").glob("*.xyz"), *(copy / "quarantine").glob("*.json")]:
        if round_of(path) >= number and "labels" not in keep:
            path.unlink()
    return copy


def round_of(path: Path) -> int:
    if path.suffix == ".json":
        return json.loads(path.read_text())["round"]
    comment = path.read_text().splitlines()[1]
    return int(next(word for word in comment.split() if word.startswith("round=")).removeprefix("round="))
