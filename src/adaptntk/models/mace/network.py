"""Building MACE networks: the paper's, a small one for the CPU, and a toy."""

import importlib.util
from dataclasses import dataclass

import torch

from adaptntk.errors import ModelError
from adaptntk.models.mace.stock import modules, o3, quiet


@dataclass(frozen=True)
class Architecture:
    """Size of a ScaleShiftMACE network; all others of its settings are the paper's."""

    hidden_irreps: str
    max_ell: int
    correlation: int
    cutoff: float
    radial_mlp: tuple[int, ...]
    readout_irreps: str = "16x0e"
    interactions: int = 2
    bessel_functions: int = 8
    polynomial_cutoff: int = 5


PAPER = Architecture("128x0e + 128x1o", max_ell=3, correlation=3, cutoff=6.0, radial_mlp=(64, 64, 64))
TINY = Architecture("4x0e + 4x1o", max_ell=1, correlation=2, cutoff=4.0, radial_mlp=(8,), readout_irreps="4x0e")
SMALL = Architecture("16x0e + 16x1o", max_ell=2, correlation=2, cutoff=5.0, radial_mlp=(32, 32))


@dataclass(frozen=True)
class EnergyReference:
    """Where the network's energy scale begins: ``E = sum E0 + sum (scale x output + shift)``."""

    atomic_numbers: tuple[int, ...]
    isolated_energies: tuple[float, ...]
    scale: float
    shift: float
    mean_neighbours: float


def build_network(
    architecture: Architecture, reference: EnergyReference, dtype: torch.dtype, seed: int
) -> torch.nn.Module:
    """An untrained ScaleShiftMACE with weights drawn from ``seed``; the global generator is left as it was."""
    for package in ("cuequivariance", "cuequivariance_torch"):
        if importlib.util.find_spec(package) is None:
            raise ModelError(
                f"{package} is not installed: MACE would silently build another, larger network; pip install {package}"
            )
    default = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_default_dtype(dtype)
        try:
            with quiet():
                return modules.ScaleShiftMACE(
                    r_max=architecture.cutoff,
                    num_bessel=architecture.bessel_functions,
                    num_polynomial_cutoff=architecture.polynomial_cutoff,
                    max_ell=architecture.max_ell,
                    interaction_cls=modules.RealAgnosticResidualInteractionBlock,
                    interaction_cls_first=modules.RealAgnosticInteractionBlock,
                    num_interactions=architecture.interactions,
                    num_elements=len(reference.atomic_numbers),
                    hidden_irreps=o3.Irreps(architecture.hidden_irreps),
                    MLP_irreps=o3.Irreps(architecture.readout_irreps),
                    atomic_energies=torch.tensor(reference.isolated_energies, dtype=torch.float64).numpy(),
                    avg_num_neighbors=reference.mean_neighbours,
                    atomic_numbers=list(reference.atomic_numbers),
                    correlation=architecture.correlation,
                    gate=torch.nn.functional.silu,
                    radial_MLP=list(architecture.radial_mlp),
                    atomic_inter_scale=reference.scale,
                    atomic_inter_shift=reference.shift,
                )
        finally:
            torch.set_default_dtype(default)
