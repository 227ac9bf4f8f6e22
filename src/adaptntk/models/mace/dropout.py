"""Dropout in the last readout of a MACE network, for Monte Carlo dropout.

It is put in for training and for sampling and taken out before a network is saved: what is saved is a stock network.
"""

from typing import Any

import torch

from adaptntk.errors import InputError, ModelError
from adaptntk.models.mace.potential import MACEPotential


def check_rate(rate: float) -> None:
    """Refuse what is no probability."""
    if not 0 < rate < 1:
        raise InputError(f"the dropout rate must lie between 0 and 1, not {rate}")


def insert_dropout(module: Any, rate: float) -> None:
    """Let features after the non-linearity of the last readout drop out, in training mode."""
    check_rate(rate)
    readout = module.readouts[-1]
    if not hasattr(readout, "non_linearity"):
        raise ModelError("dropout needs a network whose last readout has a non-linearity")
    if not isinstance(readout.non_linearity, _WithDropout):
        readout.non_linearity = _WithDropout(readout.non_linearity, torch.nn.Dropout(rate))


def with_dropout(stock: MACEPotential, rate: float) -> MACEPotential:
    """The network of a stock file with dropout in it, active in training mode."""
    insert_dropout(stock.module, rate)
    return MACEPotential(stock.module, stock.fingerprint, stock.source, stock.head)


def remove_dropout(module: Any) -> None:
    """Make it a stock network again."""
    readout = module.readouts[-1]
    if isinstance(getattr(readout, "non_linearity", None), _WithDropout):
        readout.non_linearity = readout.non_linearity[0]


class _WithDropout(torch.nn.Sequential):
    """The non-linearity, then dropout."""
