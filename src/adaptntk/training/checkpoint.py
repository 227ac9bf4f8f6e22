"""The state of an unfinished training on disk."""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from ase import Atoms
from torch import Tensor

from adaptntk.data.structures import reference_energies, reference_forces, structure_hash
from adaptntk.errors import InputError
from adaptntk.files import write_atomically
from adaptntk.models.protocol import Potential
from adaptntk.training.recipe import Recipe

log = logging.getLogger(__name__)


def checkpoint_file(model: str | Path) -> Path:
    """Where the state of an unfinished training is."""
    return Path(model).with_name(Path(model).name + ".checkpoint")


def training_identity(
    train: Sequence[Atoms],
    valid: Sequence[Atoms],
    recipe: Recipe,
    seed: int,
    dtype: str,
    start: Potential | None = None,
) -> str:
    """A hash of all that determines the result: a checkpoint of anything else must not be resumed."""
    first = None if start is None else start.fingerprint
    settings = {"recipe": dataclasses.asdict(recipe), "seed": seed, "dtype": dtype, "start": first}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    frames = [*train, *valid]
    digest.update("".join(map(structure_hash, frames)).encode())
    digest.update(reference_energies(frames).tobytes())
    for forces in reference_forces(frames):
        digest.update(forces.tobytes())
    return digest.hexdigest()


class Best(NamedTuple):
    """The best epoch so far, counted from 1, with its validation loss."""

    epoch: int
    loss: float
    weights: dict[str, Tensor]


class Stage(NamedTuple):
    """How far a training has come: epochs done, the best of them, and the snapshots that were taken."""

    epochs: int
    best: Best
    snapshots: dict[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """The file that is written after each epoch, with the identity of the training."""

    path: Path
    identity: str

    def save(self, stage: Stage, module: torch.nn.Module, optimiser: torch.optim.Optimizer) -> None:
        state = {
            "identity": self.identity,
            "epochs": stage.epochs,
            "weights": module.state_dict(),
            "optimiser": optimiser.state_dict(),
            "best": stage.best._asdict(),
            "snapshots": stage.snapshots,
        }
        write_atomically(self.path, lambda temporary: torch.save(state, temporary))

    def load(self, module: torch.nn.Module, optimiser: torch.optim.Optimizer) -> Stage | None:
        """Put module and optimiser back to where they were."""
        if not self.path.exists():
            log.info("no checkpoint at %s: starting from the beginning", self.path)
            return None
        try:
            state: dict[str, Any] = torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception:  # torch raises whatever the bytes lead it to
            raise InputError(f"{self.path}: not a training checkpoint, or truncated; remove it") from None
        if state.get("identity") != self.identity:
            raise InputError(
                f"{self.path}: belongs to a training with other data, seed or settings; remove it, or train "
                "without --resume"
            )
        module.load_state_dict(state["weights"])
        optimiser.load_state_dict(state["optimiser"])
        log.info("resuming after epoch %d", state["epochs"])
        return Stage(state["epochs"], Best(**state["best"]), state["snapshots"])
