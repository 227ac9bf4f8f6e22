"""Dropout in the last readout of a MACE network, for Monte Carlo dropout.

It is put in for training and for sampling and left out of what is saved, which is a stock network.
"""

from typing import Any

import torch

from adaptntk.errors import ModelError
from adaptntk.models.protocol import check_dropout_rate


def has_non_linear_readout(module: Any) -> bool:
    """Whether there is a place for dropout."""
    return hasattr(module.readouts[-1], "non_linearity")


def insert_dropout(module: Any, rate: float) -> None:
    """Let features after the non-linearity of the last readout drop out, in training mode."""
    check_dropout_rate(rate)
    if not has_non_linear_readout(module):
        raise ModelError("dropout needs a network whose last readout has a non-linearity")
    remove_dropout(module)
    readout = module.readouts[-1]
    readout.non_linearity = _WithDropout(readout.non_linearity, torch.nn.Dropout(rate))


def remove_dropout(module: Any) -> None:
    """Make it a stock network again."""
    if has_non_linear_readout(module) and isinstance(module.readouts[-1].non_linearity, _WithDropout):
        module.readouts[-1].non_linearity = module.readouts[-1].non_linearity[0]


class _WithDropout(torch.nn.Sequential):
    """The non-linearity, then dropout."""
