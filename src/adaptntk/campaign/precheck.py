"""What can be known of a campaign before the first label is paid for."""

import importlib.util
import os
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
from ase import Atoms
from ase.data import chemical_symbols

from adaptntk.campaign.config import MANY, Campaign, FirstLabels
from adaptntk.campaign.layout import read_given
from adaptntk.data.geometry import fused_atoms
from adaptntk.data.labels import check_stress_unit, parse_energies, split_isolated, without_isolated
from adaptntk.data.splits import check_disjoint
from adaptntk.data.structures import (
    ENERGY,
    FORCES,
    check_force_unit,
    has_labels,
    read_structures,
    structure_hash,
    structure_species,
)
from adaptntk.data.xtb_md import build_molecule
from adaptntk.errors import InputError, require
from adaptntk.execution import check_executor
from adaptntk.features.dimension import choose_force_rows, choose_sketch
from adaptntk.labelers.process import Request, check_spec, label_structure
from adaptntk.labelers.record import Role, read_label
from adaptntk.memory import DEFAULT_BUDGET, GIBIBYTE, size_of
from adaptntk.progress import counted, duration

if TYPE_CHECKING:
    from adaptntk.models.protocol import Potential

# Parameters of the networks of the presets: so many, and so many more for each element.
PARAMETERS = {
    "fast": (37_152, 1_968),
    "standard": (46_624, 2_288),
    "paper": (461_968, 87_424),
    "small": (12_064, 1_216),
    "tiny": (536, 84),
}
SECONDS_TO_ANSWER = 5.0


@dataclass(frozen=True)
class Inputs:
    """What the files of a campaign hold, and that in words."""

    starts: Sequence[Atoms]
    given: Sequence[Atoms]  # labelled already
    pool: Sequence[Atoms]
    test: Sequence[Atoms]
    lines: tuple[str, ...]
    isolated: frozenset[int] = frozenset()  # whose energies are given with the labels

    @property
    def species(self) -> set[int]:
        """Of all that there is to begin with."""
        return structure_species([*self.starts, *self.given])


def check_campaign(config: Campaign) -> tuple[Inputs, list[str]]:
    """Refuse what would fail later, when labels are paid for; no label is computed.

    Returns what the files hold, and in words what was checked.
    """
    found = _read_files(config)
    _check_elements(config, found)
    start = _start_model(config, found)
    counts, features = _check_counts(config, found), _check_features(config, found, start)
    check_place(config)
    require(config.label.folder.is_dir(), f"label.folder {config.label.folder}: no such folder")
    check_spec(config.label.spec)
    where = config.execution
    place = f"device {where.device}, executor {where.executor}, run directory {config.output}"
    return found, [counts, *found.lines, features, place]


def check_place(config: Campaign) -> None:
    """Refuse a device that is not there, an executor that does not answer, and a folder that cannot be written to."""
    where = config.execution
    if where.device not in ("auto", "cpu"):
        from adaptntk.models.protocol import choose_device  # torch takes longer to import than all else

        choose_device(where.device)
    check_executor(where.executor, where.scheduler)
    if where.executor == "dask":
        found = importlib.util.find_spec("distributed") is not None
        require(found, "the executor dask needs the package: pip install adaptntk[dask]")
    if where.scheduler is not None:
        _check_answers(where.scheduler)
    folder = config.output
    assert folder is not None
    there = next(path for path in (folder, *folder.parents) if path.exists())
    require(there.is_dir(), f"{there}: is a file, and {folder} cannot be made; choose another output")
    require(os.access(there, os.W_OK | os.X_OK), f"{there}: may not be written to; choose another output")


def share_out(count: int, first: FirstLabels) -> dict[Role, int]:
    """How many of the labels that are given go where; what is not needed for the others is learnt from."""
    # Too few for all: half to learn from, the rest shared out.
    holdout, valid = min(first.holdout, count // 4), min(first.valid, count // 4)
    return {"train": count - holdout - valid, "valid": valid, "holdout": holdout}


def label_once(config: Campaign, found: Inputs) -> str:
    """One label of a structure of the user's, which is not kept; refused with the reason if it cannot be had."""
    atoms = (found.pool if config.label.kind == "dataset" else found.starts or found.given)[0]
    spec = replace(config.label.spec, attempts=1)
    with tempfile.TemporaryDirectory(prefix="adaptntk-check-") as folder:
        info = {"round": 0, "role": "train", "chosen_by": "start", "number": 0}
        asked = Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc, info=info)
        request = Request(spec, asked, Path(folder))
        if not label_structure(request):
            why = request.failure.get().attempts[-1].error
            raise InputError(f"the labeler {spec.kind} failed ({why}); mend it, or skip this with --no-label")
        labelled, record = read_label(request.label_file)
    largest = np.linalg.norm(labelled.arrays[FORCES], axis=1).max()
    text = f"one label, not kept, by {spec.kind} in {duration(record.label_seconds or 0.0)}: {record.energy:.6g} eV"
    text += f", forces up to {largest:.2g} eV/Å"
    if has_labels(atoms):
        energy = abs(atoms.info[ENERGY] - record.energy) / len(atoms)
        forces = np.sqrt(np.mean((atoms.arrays[FORCES] - labelled.arrays[FORCES]) ** 2))
        text += f"; from the label that was given it differs by {energy:.2g} eV per atom and {forces:.2g} eV/Å"
    return text


def _read_files(config: Campaign) -> Inputs:
    start, lines = config.start, list[str]()
    isolated: dict[str, frozenset[int]] = {}

    def read(path: Path | None, what: str, labelled: bool) -> list[Atoms]:
        if path is None:
            return []
        found = read_given(start, path, labelled)
        frames = [*without_isolated(found)]
        require(bool(frames), f"{path}: holds isolated atoms and no structures")
        if labelled:
            check_force_unit(frames, str(path))
            check_stress_unit(frames, str(path))
            isolated[what] = frozenset(split_isolated(found, str(path))[1])
        sizes = sorted({len(atoms) for atoms in frames})
        atoms = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else str(sizes[0])
        kinds = structure_species(frames), isolated.get(what, ())
        species, alone = (" ".join(chemical_symbols[z] for z in sorted(numbers)) for numbers in kinds)
        text = f"{what} {path}: {len(frames):,} structures of {atoms} atoms ({species})"
        lines.append(f"{text}, and energies of isolated {alone}" if alone else text)
        return frames

    given = read(start.labelled, "labelled", True)
    starts = read(start.structures, "start", False) if start.molecule is None else [build_molecule(start.molecule)]
    for index, atoms in enumerate(starts):
        fused = fused_atoms(atoms, config.label.closest)
        place = f"{start.structures or start.molecule}, frame {index}"
        require(fused is None, f"{place}: {fused}; fused atoms are not calculated (label.closest): mend the structure")
    pool, test = read(config.explore.pool, "pool", False), read(config.test, "test", True)
    check_disjoint({f"start.labelled {start.labelled}": given, f"test {config.test}": test})
    return Inputs(starts, given, pool, test, tuple(lines), isolated.get("labelled", frozenset()))


def _check_elements(config: Campaign, found: Inputs) -> None:
    """What is evaluated must have been learnt: refuse elements that no label has."""
    known = found.species
    for path, frames in ((config.explore.pool, found.pool), (config.test, found.test)):
        new = structure_species(frames) - known if frames else set()
        names = ", ".join(chemical_symbols[z] for z in sorted(new))
        require(not new, f"{path}: has {names}, which no structure to begin with has; add one to start.structures")
    e0s = config.train.e0s
    told = {*parse_energies(e0s, "train.e0s")} if isinstance(e0s, dict) else found.isolated
    new = known - told if told and e0s not in ("average", "mean") else set()
    names, cure = ", ".join(chemical_symbols[z] for z in sorted(new)), "add it, or take train.e0s: average"
    require(not new, f"no energy is given of an isolated {names}, which the structures hold; {cure}")


def _start_model(config: Campaign, found: Inputs) -> "Potential | None":
    """The model to begin with; refused if it does not know what there is, has no such head, or cannot be trained."""
    model, dtype = config.start.model, config.train.dtype
    if model is None:
        return None
    from adaptntk.models.family import as_trainable
    from adaptntk.models.protocol import check_species
    from adaptntk.models.registry import load_potential

    continued = config.train.mode == "fine-tune"
    potential = load_potential(model, "cpu", dtype if continued else None, config.start.head)
    check_species(potential, [*found.starts, *found.given], f"start.model {model}")
    return as_trainable(potential) if continued else potential


def _check_counts(config: Campaign, found: Inputs) -> str:
    """Refuse budgets and pools that do not suffice."""
    stop, each, pool = config.stop, config.round.total, config.explore.pool
    shared = share_out(len(found.given), config.first)
    bought = sum(max(0, getattr(config.first, role) - count) for role, count in shared.items())
    enough = stop.labels is None or bought <= stop.labels
    require(enough, f"stop.labels of {stop.labels} are fewer than the {bought} labels to begin with (see first)")
    enough = pool is None or len(found.pool) >= each
    require(enough, f"{pool}: holds {len(found.pool)} structures, and a round wants {each} (see round)")
    if config.label.kind == "dataset":
        _check_oracle(config, found, bought)
    most = min(bought + each * stop.rounds, stop.labels or MANY)
    given = f" ({len(found.given)} are given)" if found.given else ""
    text = f"{bought} labels to begin with{given}, then {each} in each of up to {counted(stop.rounds, 'round')}"
    return f"{text}, by {config.label.kind}; at most {most:,} in all"


def _check_oracle(config: Campaign, found: Inputs, bought: int) -> None:
    """A file of labels knows its own structures alone, not those that are made on the way."""
    of, settings = "the labeler dataset", config.label.settings
    require(config.explore.pool is not None, f"{of} needs explore.pool: it knows no frames of simulations")
    cure = "give more of them, or ask for fewer in first"
    require(bought == 0, f"{of} cannot label {bought} displaced structures that start.labelled lacks; {cure}")
    keys = {key: settings[key] for key in ("energy_key", "forces_key") if key in settings}
    known = {structure_hash(atoms) for atoms in read_structures(settings["file"], labelled=True, **keys)}
    unknown = sum(structure_hash(atoms) not in known for atoms in found.pool)
    message = f"{unknown} of {len(found.pool)} structures of {config.explore.pool} have no label in {settings['file']}"
    require(unknown == 0, f"{message}: remove them, or add labels")


def _check_features(config: Campaign, found: Inputs, start: "Potential | None") -> str:
    """Refuse a sketch larger than a network, and features that cannot be held in memory."""
    settings, first, later, stop = config.uncertainty, config.first, config.round, config.stop
    training = max(first.train, len(found.given)) + later.train * stop.rounds
    networks = _networks(config, found, start)
    smallest = min(parameters for parameters, _ in networks.values())
    rows = choose_force_rows(settings.force_rows, training) if settings.features == "joint" else 0
    rows += settings.strain_rows
    kind, dim = choose_sketch(settings.sketch, settings.sketch_dim, training, rows, smallest)
    exact = kind == "none"
    for name, (parameters, _) in networks.items():
        why = f"more than the {parameters:,} parameters of the network {name}"
        require(exact or dim <= parameters, f"uncertainty.sketch_dim of {dim:,} is {why}: take fewer, or sketch: none")
    widest = max(parameters * (8 if dtype == "float64" else 4) for parameters, dtype in networks.values())
    row = widest if exact else 8 * dim
    explore = config.explore
    runs = len(explore.temperatures) * explore.trajectories * min(explore.starts, max(1, len(found.starts)))
    candidates = len(found.pool) or runs * (explore.steps // explore.interval + 1)
    memory = (training * (1 + rows) + candidates) * row / GIBIBYTE
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIBIBYTE
    text = f"features of {training:,} training structures and {candidates:,} candidates: {size_of(memory * GIBIBYTE)}"
    cure = "take a smaller uncertainty.sketch_dim" if not exact else "take uncertainty.sketch: gaussian"
    require(training * row <= DEFAULT_BUDGET and memory < 0.8 * free, f"{text} is more than can be held; {cure}")
    size = "no sketch" if exact else f"sketch {kind} of {dim}"
    names = [f"network {name}, {parameters:,} parameters in {dtype}" for name, (parameters, dtype) in networks.items()]
    return "; ".join([*names, size, text])


def _networks(config: Campaign, found: Inputs, start: "Potential | None") -> dict[str, tuple[int, str]]:
    """Parameters and precision of the networks that there will be, by what they are called."""
    networks, train = dict[str, tuple[int, str]](), config.train
    if start is not None:
        from adaptntk.models.protocol import parameter_count

        head = f", head {start.head}" if config.start.head else ""
        networks[f"of {config.start.model}{head}"] = parameter_count(start), str(start.dtype).removeprefix("torch.")
    if start is None or train.mode == "scratch":
        networks[train.preset] = _parameters(config, found), train.dtype or "float32"
    return networks


def _parameters(config: Campaign, found: Inputs) -> int:
    """Of a network that is built."""
    if not config.train.sizes:
        constant, each = PARAMETERS[config.train.preset]
        return constant + each * len(found.species)
    from adaptntk.models.family import EnergyReference
    from adaptntk.models.registry import choose_dtype, find_family

    architecture, numbers = config.train.recipe.architecture, tuple(sorted(found.species))
    reference = EnergyReference(numbers, (0.0,) * len(numbers), 1.0, 0.0)
    family, structures = find_family(architecture.family), [*found.starts, *found.given][:1]
    network = family.build(architecture, reference, structures, choose_dtype("float32"), seed=0)
    return sum(parameter.numel() for parameter in network.module.parameters())


def _check_answers(address: str) -> None:
    try:
        place = urlsplit(address if "://" in address else f"tcp://{address}")
        socket.create_connection((place.hostname or "", place.port or 0), SECONDS_TO_ANSWER).close()
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(f"no Dask scheduler answers at {address} ({error}); start one, or leave it out") from None
