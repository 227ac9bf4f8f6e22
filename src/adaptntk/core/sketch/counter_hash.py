"""Random bits as a pure function of (seed, position): SplitMix64, in integer arithmetic modulo 2^64.

The same on every machine, device and version, which library generators do not promise.
"""

from torch import Tensor

# The increment of SplitMix64's counter and the two multipliers of its output function.
_INCREMENT = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def random_bits(seed: int, counter: Tensor) -> Tensor:
    """64 random bits for each number of ``counter`` (int64, which is overwritten)."""
    # The seed is hashed first, so that neighbouring seeds start at unrelated places of the sequence.
    state = counter.mul_(_signed(_INCREMENT)).add_(_signed(hash_number(seed)))
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        state.bitwise_xor_(_shift_right(state, shift)).mul_(_signed(multiplier))
    return state.bitwise_xor_(_shift_right(state, 31))


def hash_number(number: int) -> int:
    """The hash of one number, as an unsigned integer."""
    mask = 2**64 - 1
    state = (number + _INCREMENT) & mask
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        state = ((state ^ (state >> shift)) * multiplier) & mask
    return state ^ (state >> 31)


def stream(seed: int, number: int) -> int:
    """The seed of an independent sequence of random bits."""
    return hash_number(hash_number(seed) + number + 1)


def _shift_right(bits: Tensor, count: int) -> Tensor:
    """Logical shift: torch shifts signed integers and would copy the sign bit."""
    return (bits >> count).bitwise_and_(2 ** (64 - count) - 1)


def _signed(unsigned: int) -> int:
    """The int64 with the same 64 bits; products then wrap modulo 2^64 as the hash wants."""
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned
