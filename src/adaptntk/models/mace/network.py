"""Building MACE networks."""

import importlib.util

import torch

from adaptntk.errors import ModelError
from adaptntk.models.family import EnergyReference
from adaptntk.models.mace.architecture import MACEArchitecture
from adaptntk.models.mace.stock import modules, o3, quiet


def build_network(
    architecture: MACEArchitecture, reference: EnergyReference, mean_neighbours: float, dtype: torch.dtype, seed: int
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
                    avg_num_neighbors=mean_neighbours,
                    atomic_numbers=list(reference.atomic_numbers),
                    correlation=architecture.correlation,
                    gate=torch.nn.functional.silu,
                    radial_MLP=list(architecture.radial_mlp),
                    atomic_inter_scale=reference.scale,
                    atomic_inter_shift=reference.shift,
                )
        finally:
            torch.set_default_dtype(default)
