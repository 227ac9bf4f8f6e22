"""A folder in which methods find the networks they need, each trained once."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ase import Atoms
from torch import Tensor

from adaptntk.files import make_folder
from adaptntk.models.mace import MACEPotential, load_mace
from adaptntk.models.mace_dropout import insert_dropout
from adaptntk.training import EpochReport, Recipe, checkpoint_file, read_snapshots, train


class FolderWorkbench:
    """Trains on demand, resumes what was interrupted, and remembers how long each training took.

    ``used`` are the names of the networks that were asked for, ``seconds_in_training`` how long that took by now.

    Args:
        train, valid: labelled structures.
        folder: where networks are kept.
        recipe: how they are trained.
        seed: of the model itself; other members follow from it.
    """

    def __init__(
        self,
        train: Sequence[Atoms],
        valid: Sequence[Atoms],
        folder: str | Path,
        recipe: Recipe,
        seed: int = 0,
        device: str = "auto",
        on_epoch: Callable[[str, EpochReport], None] = lambda name, report: None,
    ) -> None:
        self.train = train
        self.valid = valid
        self.folder = make_folder(folder)
        self.recipe = recipe
        self.seed = seed
        self.device = device
        self._on_epoch = on_epoch
        self._loaded: dict[str, MACEPotential] = {}
        self.used: set[str] = set()
        self.seconds_in_training = 0.0

    def member(self, number: int) -> MACEPotential:
        """A network trained with a seed of its own; number 0 is the model itself."""
        name = f"member-{number}"
        self.used.add(name)
        if name not in self._loaded:
            # A thousand members of one seed come before the first of the next.
            path = self._trained(name, self.recipe, 1000 * self.seed + number, snapshots=number == 0)
            self._loaded[name] = load_mace(path, self.device)
        return self._loaded[name]

    def snapshots(self) -> list[dict[str, Tensor]]:
        """Weights of the model itself, from the last quarter of the epochs of its training."""
        self.member(0)
        return read_snapshots(self.folder / "member-0.model")

    def dropout_member(self, rate: float) -> MACEPotential:
        """A network trained with dropout, which is still active in it when it is in training mode."""
        name = f"dropout-{rate:g}"
        self.used.add(name)
        if name not in self._loaded:
            recipe = dataclasses.replace(self.recipe, dropout=rate)
            path = self._trained(name, recipe, 1000 * self.seed)
            stock = load_mace(path, self.device)
            insert_dropout(stock.module, rate)
            self._loaded[name] = MACEPotential(stock.module, stock.fingerprint, stock.source, stock.head)
        return self._loaded[name]

    def training_seconds(self) -> dict[str, float]:
        """How long each network was trained, interruptions not counted."""
        return self.read_seconds(self.folder)

    @staticmethod
    def read_seconds(folder: Path) -> dict[str, float]:
        """How long each network in a folder was trained."""
        return {
            path.name.removesuffix(".seconds"): sum(float(line) for line in path.read_text().split())
            for path in sorted(folder.glob("*.seconds"))
        }

    def _trained(self, name: str, recipe: Recipe, seed: int, snapshots: bool = False) -> Path:
        path = self.folder / f"{name}.model"
        begun = checkpoint_file(path).exists()
        if begun or not path.exists():

            def report(epoch: EpochReport) -> None:
                with (self.folder / f"{name}.seconds").open("a") as file:
                    file.write(f"{epoch.seconds:.4f}\n")
                self._on_epoch(name, epoch)

            began = time.perf_counter()
            train(
                self.train, self.valid, path, recipe, seed, self.device,
                resume=begun, on_epoch=report, snapshots=snapshots,
            )  # fmt: skip
            self.seconds_in_training += time.perf_counter() - began
        return path
