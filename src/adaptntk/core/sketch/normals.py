"""Standard normal numbers as a pure function of (seed, row, column): the same bits everywhere.

Library generators promise that neither across devices nor across versions. So we hash the position
(``counter_hash.py``), and let each 16 bits of the hash choose one of 65,536 equally likely quantiles of the normal
distribution: numbers up to 4.3, with unit variance, independent, sub-Gaussian.
"""

import hashlib
import math
from functools import cache

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from adaptntk.core.sketch.counter_hash import random_bits
from adaptntk.errors import AdaptNTKError

# Four neighbouring columns come from the same 64 bits; (row i, group of columns g) has counter g * 2^21 + i.
_LANES = 4
_LEVELS = 2**16
MOST_ROWS = 2**21
_TABLE_SHA256 = "8babbcaf96568f10165a1eab530c0e5c92d04de96761b6dbb3dadfa94baba37f"
# Columns drawn at a time: the temporaries of 512 rows then stay in the processor's cache.
_DRAW_COLUMNS = 1024


def normal_numbers(seed: int, rows: int, start: int, stop: int, device: torch.device) -> Tensor:
    """Columns ``start..stop`` of a matrix of standard normal numbers, rows x (stop - start), float32."""
    result = torch.empty(rows, stop - start, device=device, dtype=torch.float32)
    for low in range(start, stop, _DRAW_COLUMNS):
        high = min(low + _DRAW_COLUMNS, stop)
        result[:, low - start : high - start] = _columns(seed, rows, low, high, device)
    return result


def _columns(seed: int, rows: int, start: int, stop: int, device: torch.device) -> Tensor:
    groups = torch.arange(start // _LANES, -(-stop // _LANES), dtype=torch.int64, device=device)
    numbers = torch.arange(rows, dtype=torch.int64, device=device)
    bits = random_bits(seed, numbers[:, None] + MOST_ROWS * groups[None, :])
    # Each 64 bits as four numbers below 2^16, the lowest bits first, for four columns side by side.
    lanes = bits.view(torch.int16).to(torch.int32).bitwise_and_(_LEVELS - 1)
    normals = _quantiles(device).index_select(0, lanes.flatten()).view(rows, -1)
    first = start - start % _LANES
    return normals[:, start - first : stop - first]


@cache
def _quantiles(device: torch.device) -> Tensor:
    """The normal distribution in 2^16 equally likely numbers, scaled to unit variance."""
    upper = ndtri((np.arange(_LEVELS // 2, _LEVELS) + 0.5) / _LEVELS)
    upper *= math.sqrt(len(upper) / math.fsum(upper**2))
    table = np.concatenate([-upper[::-1], upper]).astype(np.float32)
    # Rounded to single precision they are the same on all machines that we know of; files depend on it.
    if hashlib.sha256(table.tobytes()).hexdigest() != _TABLE_SHA256:
        raise AdaptNTKError("the quantiles of the normal distribution differ on this machine: try another scipy")
    return torch.from_numpy(table).to(device)
