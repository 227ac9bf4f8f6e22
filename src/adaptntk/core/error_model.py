"""A small regression of the error on several scores: few parameters, and more of any score never means less error."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from adaptntk.errors import InputError

Array = NDArray[np.float64]

# Ridges relative to the number of structures; the largest leaves weights proportional to the covariances.
RIDGES = (0.01, 0.1, 1.0, 10.0)
FOLDS = 5


@dataclass(frozen=True)
class LogErrorRegression:
    """``log e = intercept + sum_j w_j (c_j - mean_j) / spread_j`` with ``w_j >= 0``.

    Args:
        means, spreads: of the covariates c over the structures it was fitted on.
        weights: one per covariate.
        intercept: the mean of log e.
        ridge: the strength of the ridge, which cross-validation chose.
    """

    means: Array
    spreads: Array
    weights: Array
    intercept: float
    ridge: float

    @classmethod
    def fit(cls, covariates: Array, errors: Array, rng: np.random.Generator) -> "LogErrorRegression":
        """Fit on labelled structures, one row of covariates each.

        The ridge is the largest whose cross-validated squared error is within one standard error of the smallest: with
        a hundred structures more freedom fits noise.
        """
        if len(errors) < 2 * FOLDS:
            raise InputError(f"the error model needs at least {2 * FOLDS} labelled structures, not {len(errors)}")
        target = np.log(np.maximum(errors, 1e-12 * errors.max()))
        folds = np.array_split(rng.permutation(len(target)), FOLDS)
        losses = np.array([_held_out_losses(covariates, target, folds, ridge) for ridge in RIDGES])
        means = losses.mean(axis=1)
        best = int(np.argmin(means))
        margin = (losses - losses[best]).std(axis=1, ddof=1) / np.sqrt(losses.shape[1])
        ridge = max(r for r, mean, se in zip(RIDGES, means, margin, strict=True) if mean - means[best] <= se)
        return cls._solve(covariates, target, ridge)

    @classmethod
    def _solve(cls, covariates: Array, target: Array, ridge: float) -> "LogErrorRegression":
        """Non-negative least squares; rows ``sqrt(ridge n) I`` below the covariates are the ridge."""
        means, spreads = covariates.mean(axis=0), np.maximum(covariates.std(axis=0), 1e-12)
        standard = (covariates - means) / spreads
        intercept = float(target.mean())
        width = covariates.shape[1]
        matrix = np.vstack([standard, np.sqrt(ridge * len(target)) * np.eye(width)])
        weights, _ = optimize.nnls(matrix, np.concatenate([target - intercept, np.zeros(width)]))
        return cls(means, spreads, weights, intercept, ridge)

    def predict(self, covariates: Array) -> Array:
        """The expected error, the exponential of the regression: a standard deviation up to a factor."""
        return np.exp(self.intercept + ((covariates - self.means) / self.spreads) @ self.weights)


def _held_out_losses(covariates: Array, target: Array, folds: Sequence[NDArray[np.int64]], ridge: float) -> Array:
    losses = np.empty(len(target))
    for held_out in folds:
        kept = np.setdiff1d(np.arange(len(target)), held_out)
        fitted = LogErrorRegression._solve(covariates[kept], target[kept], ridge)
        losses[held_out] = (np.log(fitted.predict(covariates[held_out])) - target[held_out]) ** 2
    return losses
