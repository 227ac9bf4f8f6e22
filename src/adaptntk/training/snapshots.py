"""Weights along the end of a training, kept beside the model for SWAG."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.torch import load_file, save_file
from torch import Tensor

from adaptntk.errors import InputError
from adaptntk.files import write_atomically


def snapshot_epochs(epochs: int, share: float = 0.25) -> list[int]:
    """Up to 20 epochs (counted from 0), evenly spaced over the last share of them; always the last."""
    first = epochs - max(1, int(epochs * share))
    return sorted({int(epoch) for epoch in np.linspace(first, epochs - 1, min(20, epochs - first)).round()})


def snapshot_file(model: str | Path) -> Path:
    """Where the snapshots of a model's training are."""
    return Path(model).with_name(Path(model).name + ".snapshots")


def write_snapshots(model: str | Path, taken: Mapping[str, Tensor]) -> None:
    """Write weights by ``epoch/name``, if there are any."""
    if taken:
        contents = {name: tensor.cpu().contiguous() for name, tensor in taken.items()}
        write_atomically(snapshot_file(model), lambda temporary: save_file(contents, temporary))


def read_snapshots(model: str | Path) -> list[dict[str, Tensor]]:
    """The weights that `train` kept, in the order of the epochs."""
    path = snapshot_file(model)
    if not path.exists():
        raise InputError(f"{path}: no such file; train the model with snapshots")
    found: dict[int, dict[str, Tensor]] = {}
    for key, tensor in load_file(path).items():
        epoch, name = key.split("/", 1)
        found.setdefault(int(epoch), {})[name] = tensor
    return [found[epoch] for epoch in sorted(found)]
