"""The labels before the first model."""

from ase import Atoms

from adaptntk.campaign.layout import ROLES, RoundDirectory, read_given, read_own
from adaptntk.campaign.precheck import share_out
from adaptntk.campaign.steps.driver import SPARE, Driver, marked
from adaptntk.campaign.steps.label import label_random, retried_after_a_pause
from adaptntk.core.calibration import MINIMUM_STRUCTURES
from adaptntk.data.labels import is_isolated, split_isolated, without_isolated
from adaptntk.data.structures import write_structures
from adaptntk.data.xtb_md import build_molecule
from adaptntk.errors import require
from adaptntk.labelers.record import GIVEN, Origin, Role, write_label
from adaptntk.md.exploration import displaced, normal_modes


def begin(driver: Driver, here: RoundDirectory) -> None:
    """Take the labels that are given, and buy new ones of structures near the starting ones."""
    run, first = driver.run, driver.config.first
    wanted = {role: getattr(first, role) for role in ROLES}
    if driver.config.start.labelled is not None:
        _take_given(driver)
    missing = {role: wanted[role] - len(run.labelled(role)) for role in ROLES}
    if not here.random.exists():
        count = SPARE * sum(max(0, number) for number in missing.values())
        write_structures(here.random, _near_the_start(driver, count))
    supply = iter(read_own(here.random))
    with retried_after_a_pause(driver, here):
        for role in ROLES:
            label_random(driver, Origin(round=0, role=role, chosen_by="start", number=0), wanted[role], supply)
    had = {role: len(run.labelled(role)) for role in ROLES}
    enough = had["train"] >= 2 and had["valid"] >= MINIMUM_STRUCTURES and had["holdout"] >= 2
    message = f"too few first structures could be labelled to begin with ({had})"
    require(enough, f"{message}; see {run.files.quarantine} for why")


def _take_given(driver: Driver) -> None:
    """Copy labels that the user has; what is not needed for hold-out and validation is learnt from."""
    start, first = driver.config.start, driver.config.first
    assert start.labelled is not None
    given = read_given(start, start.labelled, labelled=True)
    frames, isolated = split_isolated(given, str(start.labelled))
    if isolated:
        write_structures(driver.run.isolated, filter(is_isolated, given))
    shared = share_out(len(frames), first)
    for place, index in enumerate(driver.rng(0, 2).permutation(len(frames)).tolist()):
        random = shared["holdout"], shared["holdout"] + shared["valid"]
        role: Role = "holdout" if place < random[0] else "valid" if place < random[1] else "train"
        atoms = marked(frames[index])
        Origin(round=0, role=role, chosen_by=GIVEN, number=-len(frames) + place).mark(atoms)
        path = driver.run.files.label(atoms.info["hash"])
        if not path.exists():
            write_label(path, atoms)


def starting_structures(driver: Driver) -> list[Atoms]:
    """Where simulations start."""
    start = driver.config.start
    if start.structures is not None:
        return [*without_isolated(read_given(start, start.structures))]
    if start.molecule is not None:
        return [build_molecule(start.molecule)]
    return driver.run.labelled("train", before=1)


def _near_the_start(driver: Driver, count: int) -> list[Atoms]:
    """Displaced starting structures, as many of each."""
    if count <= 0:
        return []
    start, starts = driver.config.start, starting_structures(driver)
    found: list[Atoms] = []
    for index, atoms in enumerate(starts):
        each, seed = -(-count // len(starts)), driver.seed(0, 10 + index)
        if start.sampling == "displacement":
            samples = displaced(atoms, each, start.displacement, seed)
        else:
            from tblite.ase import TBLite

            samples = normal_modes(TBLite(method="GFN2-xTB", verbosity=0), atoms, each, start.temperature, seed)
        for sample in samples:
            sample.info["trajectory"] = f"start {index}, {start.sampling.replace('_', ' ')}"
        found += samples
    return [marked(found[i]) for i in driver.rng(0, 3).permutation(len(found))[:count]]
