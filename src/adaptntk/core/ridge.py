"""The ridge ``lam``: how it is chosen, and why."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from adaptntk.core import metrics
from adaptntk.core.blocks import Blocks
from adaptntk.core.calibration import fit_variance
from adaptntk.core.metrics import Array
from adaptntk.core.posterior import RidgePath
from adaptntk.errors import InputError

PRIOR_ALPHA = 1e-4
# With force rows: from 1e-10 to 1e-7 scores hardly depend on it, so no labels are spent on the choice.
JOINT_ALPHA = 1e-8
ALPHA_GRID = tuple(float(10.0**exponent) for exponent in np.arange(-8, -0.75, 0.5))
CRITERIA = ("spearman", "nll", "effective_dimension", "fixed")
# A gain with a larger standard error says more about the size of the validation set than about the ridge.
RESOLUTION = 0.02
# Where the optimum lies on the data we have studied: the training set determines a third of its directions.
TARGET_DIMENSION_FRACTION = 1 / 3


def check_criterion(criterion: str) -> None:
    """Refuse an unknown name."""
    if criterion not in CRITERIA:
        raise InputError(f"unknown criterion {criterion!r}: choose one of {', '.join(CRITERIA)}")


@dataclass(frozen=True)
class RidgeChoice:
    """The chosen regularisation and why."""

    alpha: float
    lam: float
    criterion: str
    effective_dimension: float
    reason: str

    @property
    def at_edge(self) -> bool:
        """Chosen among the values of a grid, and the first or the last of them: a better one may lie beyond."""
        return self.criterion in CRITERIA[:-1] and self.alpha in (ALPHA_GRID[0], ALPHA_GRID[-1])


def fixed_ridge(path: RidgePath, lam: float, criterion: str = "fixed", reason: str = "given") -> RidgeChoice:
    """The ridge that somebody else chose; one factorisation, no eigendecomposition."""
    dimension = path.posterior(lam).effective_dimension()
    return RidgeChoice(lam / path.mean_squared_norm, lam, criterion, dimension, reason)


def choose_ridge(
    path: RidgePath,
    criterion: str,
    queries: Tensor | Blocks | None,
    errors: Array | None,
    rng: np.random.Generator,
    prior_alpha: float = PRIOR_ALPHA,
) -> RidgeChoice:
    """Choose ``alpha = lam n / tr(F)``.

    A hundred validation structures alone would choose almost anything, so ``spearman`` and ``nll`` start from
    ``prior_alpha`` and leave it only when the best value of the grid improves the criterion by more than one bootstrap
    standard error of the improvement, and only as far as needed: of all values within one standard error of the best,
    the nearest to the prior is taken. ``effective_dimension`` needs no labels.

    Args:
        queries: the validation structures, and
        errors: their true errors.
    """
    check_criterion(criterion)
    if criterion == "fixed":
        return fixed_ridge(path, path.lam(prior_alpha))
    if criterion == "effective_dimension":
        target = TARGET_DIMENSION_FRACTION * path.directions
        distance = [abs(path.effective_dimension(path.lam(alpha)) - target) for alpha in ALPHA_GRID]
        return _choice(path, ALPHA_GRID[int(np.argmin(distance))], criterion, f"d_lam nearest {target:.0f} (n/3)")
    if queries is None or errors is None:
        raise InputError(f"the criterion {criterion!r} needs labelled validation structures")
    grid = sorted({*ALPHA_GRID, prior_alpha})
    scores = path.variances(queries, [path.lam(alpha) for alpha in grid]).cpu().numpy()
    samples = [np.arange(len(errors))] + [rng.integers(0, len(errors), len(errors)) for _ in range(200)]
    if criterion == "spearman":
        with np.errstate(invalid="ignore"):  # NaN where all ranks are the same
            table = np.array([metrics.spearman_rows(scores[:, s], errors[s]) for s in samples])
    else:
        likelihoods = np.array([_log_likelihoods(row, errors) for row in scores])
        table = np.array([likelihoods[:, s].mean(axis=1) for s in samples])
    prior = grid.index(prior_alpha)
    gain = table - table[:, [prior]]
    if not np.isfinite(gain[0]).any():
        return _choice(path, prior_alpha, criterion, "prior kept: all errors of the validation set are the same")
    best = int(np.nanargmax(gain[0]))
    # How far each value falls short of the best one, and the standard error of that difference.
    shortfall = gain[:, [best]] - gain
    good_enough = shortfall[0] <= np.nanstd(shortfall[1:], axis=0)
    steps = np.abs(np.log(np.array(grid) / prior_alpha))
    chosen = int(np.argmin(np.where(good_enough, steps, np.inf)))
    if chosen == prior:
        alike = np.array(grid)[good_enough]
        deviation = float(np.nanstd(shortfall[1:, prior]))
        few = f"{len(errors)} validation structures are too few to choose, "
        why = (
            f"{few if deviation > RESOLUTION else ''}alpha {alike.min():.0e} .. {alike.max():.0e} cannot be told apart"
        )
        best_of_all = f"no alpha has a better {criterion}"
        return _choice(path, prior_alpha, criterion, f"prior kept: {best_of_all if best == prior else why}")
    return _choice(path, grid[chosen], criterion, f"{criterion} better than the prior's by {gain[0, chosen]:.2g}")


def _choice(path: RidgePath, alpha: float, criterion: str, reason: str) -> RidgeChoice:
    lam = path.lam(alpha)
    return RidgeChoice(alpha, lam, criterion, path.effective_dimension(lam), reason)


def _log_likelihoods(variance: Array, errors: Array) -> Array:
    """Twice the log likelihood of each error under the calibrated sigma, up to a constant."""
    sigma = fit_variance(variance, errors).sigma(variance)
    return -(np.log(sigma**2) + errors**2 / sigma**2)
