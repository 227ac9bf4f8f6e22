"""Tiny networks of every kind that the fast twin knows."""

from functools import cache

import numpy as np
import torch

from adaptntk.models.mace.potential import MACEPotential
from adaptntk.models.mace.stock import modules, o3, quiet, readouts

NUMBERS = [1, 6, 7, 8, 14]


NETWORKS = {
    "plain": {},
    "degree 1": {"correlation": 1},
    "degree 3, l = 3": {"correlation": 3, "max_ell": 3},
    "l = 2 hidden": {"hidden_irreps": o3.Irreps("4x0e + 4x1o + 4x2e"), "correlation": 3, "max_ell": 2},
    "scalars only": {"hidden_irreps": o3.Irreps("8x0e")},
    "one layer": {"num_interactions": 1},
    "three layers": {"num_interactions": 3},
    "many channels": {"hidden_irreps": o3.Irreps("40x0e + 40x1o")},
    "residual first": {"interaction_cls_first": modules.RealAgnosticResidualInteractionBlock},
    "density": {
        "interaction_cls_first": modules.RealAgnosticDensityInteractionBlock,
        "interaction_cls": modules.RealAgnosticDensityResidualInteractionBlock,
    },
    "agnostic product": {"use_agnostic_product": True},
    "no parity": {"use_so3": True, "correlation": 3, "hidden_irreps": o3.Irreps("4x0e + 4x1e")},
    "an output that nothing reaches": {"use_so3": True},
    "full couplings": {"use_reduced_cg": False, "correlation": 3},
    "foundation": {"pair_repulsion": True, "distance_transform": "Agnesi", "radial_MLP": [8, 8, 8]},
    "cutoff on the weights": {"apply_cutoff": False},
    "last readout": {"use_last_readout_only": True},
    "biased readout": {"readout_cls": readouts[2]},
    "two heads": {"heads": ["one", "two"]},
}


@cache
def network(name: str, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    return build(NETWORKS[name], dtype)


def build(options: dict, dtype: torch.dtype = torch.float64, kind=modules.ScaleShiftMACE) -> torch.nn.Module:
    heads = options.get("heads", ["Default"])
    settings = {
        "r_max": 4.0,
        "num_bessel": 4,
        "num_polynomial_cutoff": 5,
        "max_ell": 2,
        "interaction_cls": modules.RealAgnosticResidualInteractionBlock,
        "interaction_cls_first": modules.RealAgnosticInteractionBlock,
        "num_interactions": 2,
        "num_elements": len(NUMBERS),
        "hidden_irreps": o3.Irreps("4x0e + 4x1o"),
        "MLP_irreps": o3.Irreps("4x0e"),
        "atomic_energies": np.array([[-float(z) for z in NUMBERS]] * len(heads)),
        "avg_num_neighbors": 8.0,
        "atomic_numbers": NUMBERS,
        "correlation": 2,
        "gate": torch.nn.functional.silu,
        "radial_MLP": [8],
    }
    if kind is modules.ScaleShiftMACE:
        settings |= {"atomic_inter_scale": [1.3] * len(heads), "atomic_inter_shift": [0.2] * len(heads)}
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with quiet(), torch.random.fork_rng():
            torch.manual_seed(0)
            module = kind(**(settings | options))
            for parameter in module.parameters():  # biases begin at zero
                parameter.data += 0.1 * torch.randn_like(parameter) * parameter.requires_grad
            return module
    finally:
        torch.set_default_dtype(default)


def potential(name: str, fast: bool, dtype: torch.dtype = torch.float64) -> MACEPotential:
    head = NETWORKS[name].get("heads", [None])[-1]
    return MACEPotential(network(name, dtype), "0" * 64, head=head, fast=fast)
