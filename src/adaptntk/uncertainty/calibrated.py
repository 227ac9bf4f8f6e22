"""Any method with a calibration: what `adaptntk fit --method` makes, in the same physical units as ours."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from adaptntk.core.calibration import Calibration, check_calibration_size
from adaptntk.core.metrics import force_rmse
from adaptntk.data.structure_file import structure_hashes, structure_sizes
from adaptntk.data.structures import reference_energies, reference_forces, structure_hash
from adaptntk.errors import InputError
from adaptntk.models.protocol import Potential
from adaptntk.models.registry import load_potential
from adaptntk.progress import Progress, silent
from adaptntk.uncertainty import header
from adaptntk.uncertainty.method import Assessment, Method, MethodState
from adaptntk.uncertainty.ntk import Scores
from adaptntk.uncertainty.registry import find_method
from adaptntk.version import __version__

Array = NDArray[np.float64]

FORMAT = 1


@dataclass(frozen=True)
class CalibratedMethod:
    """A fitted method and what turns its scores into eV/Å. Energies are calibrated per atom."""

    method: Method
    calibration: Calibration
    train_hashes: tuple[str, ...]
    calibration_hashes: tuple[str, ...]

    @classmethod
    def fit(
        cls,
        method: Method,
        train: Sequence[Atoms],
        labelled: Sequence[Atoms],
        batch_size: int = 16,
        seed: int = 0,
        progress: Progress = silent,
        also_used: Sequence[Atoms] = (),
    ) -> "CalibratedMethod":
        """Calibrate on labelled structures outside the training set.

        ``also_used`` are others that the method has seen the labels of: it is not to be evaluated on those either.
        """
        check_calibration_size(len(labelled))
        found = method.assess(labelled, batch_size, progress)
        force_errors = force_rmse(found.forces, reference_forces(labelled))
        energy_errors = (found.energies - reference_energies(labelled)) / structure_sizes(labelled)
        rng = np.random.default_rng(seed)
        calibration = Calibration.fit(found.variance, force_errors, energy_errors, rng)
        hashes = [tuple(structure_hash(atoms) for atoms in frames) for frames in (train, [*labelled, *also_used])]
        return cls(method, calibration, *hashes)

    @property
    def name(self) -> str:
        """Of the method."""
        return self.method.name

    @property
    def potential(self) -> Potential:
        """The model itself."""
        return self.method.state().networks[0]

    def assess(self, structures: Sequence[Atoms], batch_size: int = 16, progress: Progress = silent) -> Assessment:
        """Scores and predictions."""
        return self.method.assess(structures, batch_size, progress)

    def score(self, structures: Sequence[Atoms], name: str = "structures", progress: Progress = silent) -> Scores:
        """The uncertainty of each structure."""
        if not structures:
            raise InputError(f"{name}: no structures")
        return self.scores_of_variance(self.assess(structures, progress=progress).variance, structures)

    def scores_of_variance(self, variance: Array, structures: Sequence[Atoms]) -> Scores:
        """Raw scores in physical units."""
        energy_sigma = self.calibration.energy.sigma(variance) * structure_sizes(structures)
        return Scores(variance, self.calibration.forces.sigma(variance), energy_sigma)

    def excluded(self, pool: Sequence[Atoms], exclude: Iterable[str] = ()) -> list[bool]:
        """Which candidates are in the training set or in ``exclude``, by hash."""
        known = {*self.train_hashes, *exclude}
        return [digest in known for digest in structure_hashes(pool)]


def save_method(fitted: CalibratedMethod, path: str | Path) -> None:
    """Write one file: the method's tensors and settings, and where its networks are."""
    path, state = Path(path), fitted.method.state()
    about: dict[str, Any] = {
        "method": fitted.name,
        "format": FORMAT,
        "written_by": f"adaptntk {__version__}",
        "networks": [
            {"path": header.relative_to(network.source, path.parent), "sha256": network.fingerprint}
            for network in state.networks
        ],
        "dtype": str(state.networks[0].dtype).removeprefix("torch."),
        "head": state.networks[0].head,
        "settings": state.settings,
        "calibration": header.calibration_header(fitted.calibration, f"{fitted.name}_variance"),
        "train_hashes": list(fitted.train_hashes),
        "calibration_hashes": list(fitted.calibration_hashes),
    }
    tensors = {f"state.{name}": tensor for name, tensor in state.tensors.items()}
    header.write_file(path, about, tensors | header.calibration_tensors(fitted.calibration))


def load_method(path: str | Path, device: str = "auto", model: str | Path | None = None) -> CalibratedMethod:
    """Read what `save_method` wrote; networks that are not the ones it was written for are refused.

    ``model`` says where the first network is now.
    """
    path = Path(path)
    about, tensors = header.read_file(path)
    if "method" not in about:
        raise InputError(f"{path}: holds the method 'ntk'; read it with load_uncertainty")
    header.check_format(path, about, FORMAT)
    networks = []
    for number, network in enumerate(about["networks"]):
        moved = number == 0 and model is not None
        location = Path(str(model)) if moved else header.find_model(path, network["path"], number == 0)
        potential = load_potential(location, device, about["dtype"], about["head"])
        header.check_hash(path, f"network {number}", network["sha256"], potential.fingerprint)
        networks.append(potential)
    held = {name.removeprefix("state."): t for name, t in tensors.items() if name.startswith("state.")}
    method = find_method(about["method"]).restore(MethodState(tuple(networks), held, about["settings"]))
    calibration = header.read_calibration(about, tensors)
    assert calibration is not None
    return CalibratedMethod(method, calibration, tuple(about["train_hashes"]), tuple(about["calibration_hashes"]))
