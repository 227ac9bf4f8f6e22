"""The one place that imports mace and e3nn, in the order they need and without the warnings they raise."""

import warnings
from contextlib import AbstractContextManager
from typing import Any


def quiet() -> AbstractContextManager[Any]:
    """Importing and building MACE networks warns of TorchScript's age, once for each compiled layer."""
    return warnings.catch_warnings(action="ignore")


with quiet():
    # mace before e3nn: it sets an environment variable without which e3nn 0.4 fails under torch >= 2.6.
    from mace import modules
    from mace.data.neighborhood import get_neighborhood
    from mace.modules.blocks import LinearReadoutBlock, NonLinearBiasReadoutBlock, NonLinearReadoutBlock
    from mace.modules.symmetric_contraction import SymmetricContraction

    from e3nn import o3  # isort: skip
    from e3nn.nn import FullyConnectedNet  # isort: skip

readouts = (LinearReadoutBlock, NonLinearReadoutBlock, NonLinearBiasReadoutBlock)

__all__ = ["FullyConnectedNet", "SymmetricContraction", "get_neighborhood", "modules", "o3", "quiet", "readouts"]
