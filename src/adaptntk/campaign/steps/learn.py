"""The model of a round and its uncertainty."""

import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ase import Atoms

from adaptntk.campaign.config import Campaign
from adaptntk.campaign.layout import RoundDirectory
from adaptntk.campaign.steps.driver import Driver
from adaptntk.files import write_atomically
from adaptntk.models.registry import load_potential
from adaptntk.training.checkpoint import checkpoint_file
from adaptntk.training.loop import TrainingOptions, train
from adaptntk.uncertainty.file import load_fitted, save_fitted
from adaptntk.uncertainty.fit import fit as fit_method
from adaptntk.uncertainty.fitted import Fitted
from adaptntk.uncertainty.workbench import GivenModel


def learn(driver: Driver, here: RoundDirectory) -> None:
    """Train the network on all labels so far."""
    if here.model.exists():
        return
    config = driver.config
    given = config.start.model
    if here.number == 0 and given is not None:
        write_atomically(here.model, lambda temporary: shutil.copyfile(given, temporary))
        return
    continued = config.train.mode == "fine-tune" and here.number > 0
    start = driver.run.round(here.number - 1).model if continued else None
    training, valid = driver.run.labelled("train"), driver.run.labelled("valid")
    driver.do(train_model, here.model, training, valid, start, config, driver.seed(here.number, 0))


def fit(driver: Driver, here: RoundDirectory) -> None:
    """Fit the uncertainty of the round's model."""
    if not here.ntk.exists():
        training, valid = driver.run.labelled("train"), driver.run.labelled("valid")
        driver.do(fit_ntk, here.model, here.ntk, training, valid, driver.config)


def train_model(
    output: Path, training: Sequence[Atoms], valid: Sequence[Atoms], start: Path | None, config: Campaign, seed: int
) -> None:
    """Train the network of a round; goes on where it was interrupted."""
    potential = None if start is None else load_potential(start, config.execution.device, config.train.dtype)
    options = TrainingOptions(config.train.dtype, checkpoint_file(output).exists(), start=potential)
    train(training, valid, output, config.train.recipe, seed, config.execution.device, options=options)


def fit_ntk(model: Path, output: Path, training: Sequence[Atoms], valid: Sequence[Atoms], config: Campaign) -> None:
    """Fit and calibrate the uncertainty of a round."""
    settings = config.uncertainty
    bench = GivenModel(training, valid, config.seed, potential=load_potential(model, config.execution.device))
    options = {"sketch": settings.sketch, "dim": settings.sketch_dim, "alpha": settings.alpha}
    save_fitted(fit_method(bench, "ntk", options), output)


def load_ntk(path: Path, device: str) -> Fitted:
    """The uncertainty of a round; a worker that has it in memory does not read it again."""
    return _load(path, path.stat().st_mtime_ns, device)


@lru_cache(maxsize=1)
def _load(path: Path, changed: int, device: str) -> Fitted:
    return load_fitted(path, device=device)
