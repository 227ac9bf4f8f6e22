"""What a training leaves beside its model: its state while it is unfinished, and weights along its end, for SWAG."""

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from ase import Atoms
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from adaptntk.data.labels import reference_stresses
from adaptntk.data.structures import reference_energies, reference_forces, structure_hash
from adaptntk.errors import InputError
from adaptntk.files import write_atomically
from adaptntk.models.protocol import Potential
from adaptntk.training.limits import Point
from adaptntk.training.recipe import Recipe
from adaptntk.training.schedule import Plan
from adaptntk.training.weights import Weights

log = logging.getLogger(__name__)


def checkpoint_file(model: str | Path) -> Path:
    """Where the state of an unfinished training is."""
    return Path(f"{model}.checkpoint")


def training_identity(
    train: Sequence[Atoms], valid: Sequence[Atoms], recipe: Recipe, seed: int, dtype: str, start: Potential | None
) -> str:
    """A hash of all that determines the result: a checkpoint of anything else must not be resumed."""
    first = None if start is None else start.fingerprint
    settings = {"recipe": recipe.settings(), "seed": seed, "dtype": dtype, "start": first}
    if start is not None and len(start.heads) > 1:
        settings["head"] = start.head
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    frames = [*train, *valid]
    digest.update("".join(map(structure_hash, frames)).encode())
    digest.update(reference_energies(frames).tobytes())
    for forces in reference_forces(frames):
        digest.update(forces.tobytes())
    for stress in reference_stresses(frames) if recipe.stress_weight else ():
        digest.update(b"" if stress is None else stress.tobytes())
    return digest.hexdigest()


class Best(NamedTuple):
    """The best of the validated weights so far, after how many steps, and their validation loss."""

    steps: int
    loss: float
    weights: dict[str, Tensor]


class Stage(NamedTuple):
    """How far a training has come: steps done, the plan, the best weights, validation errors, and snapshots.

    ``kept`` is the state of the `Weights` after the last moment that brought something, as long as it may be needed: up
    to the beginning of the anneal.
    """

    steps: int
    plan: Plan
    best: Best
    path: tuple[Point, ...]
    snapshots: dict[str, Tensor]
    kept: dict[str, Any] | None = None


@dataclass(frozen=True)
class Checkpoint:
    """The file that is written after each lap of a training of that identity."""

    model: Path
    identity: str

    @property
    def path(self) -> Path:
        return checkpoint_file(self.model)

    def save(self, stage: Stage, weights: Weights) -> None:
        state = {"identity": self.identity, **weights.state(), "steps": stage.steps, "plan": tuple(stage.plan)}
        state |= {
            "best": tuple(stage.best),
            "path": [tuple(point) for point in stage.path],
            "snapshots": stage.snapshots,
            "kept": stage.kept,
        }
        write_atomically(self.path, lambda temporary: torch.save(state, temporary))

    def load(self, weights: Weights) -> Stage | None:
        """Put the weights back to where they were."""
        if not self.path.exists():
            log.info("no checkpoint at %s: starting from the beginning", self.path)
            return None
        try:
            state: dict[str, Any] = torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception:  # torch raises whatever the bytes lead it to
            raise InputError(f"{self.path}: not a training checkpoint, or truncated; remove it") from None
        if not isinstance(state, dict) or state.get("identity") != self.identity:
            other = "belongs to a training with other data, seed or settings"
            raise InputError(f"{self.path}: {other}; remove it, or train without --resume")
        try:
            weights.load(state)
            path = tuple(Point(*point) for point in state["path"])
            plan, best = Plan(*state["plan"]), Best(*state["best"])
            stage = Stage(int(state["steps"]), plan, best, path, dict(state["snapshots"]), state.get("kept"))
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError):
            raise InputError(f"{self.path}: was changed or damaged, or is of another version; remove it") from None
        log.info("resuming after step %d", stage.steps)
        return stage


def snapshot_laps(laps: int, share: float = 0.25) -> list[int]:
    """Up to 20 laps (counted from 0), evenly spaced over the last share of them; always the last."""
    first = laps - max(1, int(laps * share))
    return sorted({int(lap) for lap in np.linspace(first, laps - 1, min(20, laps - first)).round()})


def snapshot_file(model: str | Path) -> Path:
    """Where the snapshots of a model's training are."""
    return Path(f"{model}.snapshots")


def write_snapshots(model: str | Path, taken: Mapping[str, Tensor]) -> None:
    """Write weights by ``lap/name``, if there are any."""
    if taken:
        contents = {name: tensor.cpu().contiguous() for name, tensor in taken.items()}
        write_atomically(snapshot_file(model), lambda temporary: save_file(contents, temporary))


def read_snapshots(model: str | Path) -> list[dict[str, Tensor]]:
    """The weights that `train` kept, in the order of the laps."""
    path = snapshot_file(model)
    if not path.exists():
        raise InputError(f"{path}: no such file; train the model with snapshots")
    found: dict[int, dict[str, Tensor]] = defaultdict(dict)
    try:
        for key, tensor in load_file(path).items():
            lap, name = key.split("/", 1)
            found[int(lap)][name] = tensor
    except (SafetensorError, OSError, ValueError):
        raise InputError(f"{path}: no snapshots of a training, or damaged; train the model again") from None
    return [found[lap] for lap in sorted(found)]
