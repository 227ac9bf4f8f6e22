"""Which sketch suits so many labels. Needs no torch: a configuration is checked with it."""

import math

# Force rows of a label, and of all labels together: more directions than these tell little that is new, and a row costs
# two gradients.
FORCE_ROWS, ALL_FORCE_ROWS = 16, 16_000


def choose_force_rows(wanted: int | None, labels: int) -> int:
    """Of each label: what is wanted, or 16, and fewer where labels are many."""
    return wanted or max(1, min(FORCE_ROWS, ALL_FORCE_ROWS // max(labels, 1)))


def choose_sketch(kind: str, dim: int | None, labels: int, further_rows: int, parameters: int) -> tuple[str, int]:
    """Kind and dimension asked for; for ``auto`` and None those that suit labels with so many further rows each."""
    if kind == "auto":
        kind = "sparse" if further_rows else "gaussian"
    if dim is None:
        dim = joint_dimension(labels * (1 + further_rows), parameters) if further_rows else 512
    return kind, dim


def joint_dimension(rows: int, parameters: int) -> int:
    """As many dimensions as tell so many rows apart: a quarter more than there are, from 1,024 to 4,096.

    With so many, scores of the networks tried had the ranks of the exact ones to 0.99; `fit` measures it. A query takes
    p^2 operations, and beyond 4,096 they are no longer small beside the gradient itself.
    """
    wanted = min(max(128 * math.ceil(1.25 * rows / 128), 1024), 4096)
    return min(wanted, parameters - parameters % 2)
