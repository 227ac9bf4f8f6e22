"""The one place that imports mace and e3nn, in the order they need and without the warnings they raise."""

import importlib.util
import warnings
from contextlib import AbstractContextManager
from typing import Any

import torch


def quiet() -> AbstractContextManager[Any]:
    """Importing and building MACE networks warns of TorchScript's age, once for each compiled layer."""
    return warnings.catch_warnings(action="ignore")


with quiet():
    # mace before e3nn: it sets an environment variable without which e3nn 0.4 fails under torch >= 2.6.
    from mace import modules
    from mace.data.neighborhood import get_neighborhood
    from mace.modules.blocks import LinearReadoutBlock, NonLinearBiasReadoutBlock, NonLinearReadoutBlock
    from mace.modules.radial import BesselBasis
    from mace.modules.symmetric_contraction import SymmetricContraction

    from e3nn import nn, o3  # isort: skip
    from e3nn.math import normalize2mom  # isort: skip
    from e3nn.nn import FullyConnectedNet  # isort: skip
    from e3nn.nn._fc import _Layer  # isort: skip
    from e3nn.nn._gate import _Sortcut  # isort: skip
    from e3nn.o3._irreps import _MulIr  # isort: skip
    from e3nn.o3._linear import Instruction as LinearInstruction  # isort: skip
    from e3nn.o3._tensor_product._instruction import Instruction  # isort: skip

readouts = (LinearReadoutBlock, NonLinearReadoutBlock, NonLinearBiasReadoutBlock)
irreps = (o3.Irrep, o3.Irreps, _MulIr)
values = (*irreps, LinearInstruction, Instruction)
"""Of what the settings of a network consist, besides numbers and strings."""


def layers() -> list[type[torch.nn.Module]]:
    """The classes that a network consists of, itself included."""
    # Not every release of mace has all of them.
    names = (
        f"mace.modules.{name}"
        for name in ["blocks", "embeddings", "gate", "irreps_tools", "radial", "symmetric_contraction"]
    )
    of_mace = [importlib.import_module(name) for name in names if importlib.util.find_spec(name)]
    defined = [kind for module in of_mace for kind in vars(module).values() if _is_layer(kind, module.__name__)]
    of_torch = "Identity Linear Embedding LayerNorm Dropout SiLU Tanh Sigmoid ReLU GELU Softplus"
    containers = "Module Sequential ModuleList ModuleDict ParameterList ParameterDict"
    found = [getattr(torch.nn, name) for name in f"{of_torch} {containers}".split()]
    found += [getattr(nn, name) for name in ("Activation", "FullyConnectedNet", "Gate", "Extract", "ExtractIr")]
    of_e3nn = "Linear TensorProduct FullyConnectedTensorProduct ElementwiseTensorProduct SphericalHarmonics"
    found += [getattr(o3, name) for name in of_e3nn.split()]
    return [modules.MACE, modules.ScaleShiftMACE, *defined, *found, _Layer, _Sortcut, normalize2mom]


def _is_layer(kind: Any, module: str) -> bool:
    return isinstance(kind, type) and issubclass(kind, torch.nn.Module) and kind.__module__ == module


__all__ = [
    "BesselBasis",
    "FullyConnectedNet",
    "SymmetricContraction",
    "get_neighborhood",
    "irreps",
    "layers",
    "modules",
    "o3",
    "quiet",
    "readouts",
    "values",
]
