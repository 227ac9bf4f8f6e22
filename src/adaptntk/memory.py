"""How much memory may be used, and what becomes of memory that was used."""

import ctypes
import os
import sys

GIBIBYTE = 2**30
DEFAULT_BUDGET = 4 * GIBIBYTE

# Parameters of glibc's mallopt, and values that it accepts.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 * 2**20


def keep_freed_memory() -> None:
    """Let the C library keep up to a gibibyte of freed memory instead of handing it back at once.

    A network's tensors of megabytes are allocated and freed thousands of times; to get fresh pages for each
    from the system takes up to a third of the time. Does nothing where the C library is not glibc, or where the
    user has set ``MALLOC_TRIM_THRESHOLD_``.
    """
    if sys.platform != "linux" or "MALLOC_TRIM_THRESHOLD_" in os.environ:
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    mallopt(_TRIM_THRESHOLD, GIBIBYTE)


def size_of(size: float) -> str:
    """Bytes in GiB, to two decimals: less than that does not matter to anybody."""
    return f"{size / GIBIBYTE:.2f} GiB" if size >= GIBIBYTE / 100 else "less than 0.01 GiB"
