"""A small regression of the error on several scores, with few parameters."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import optimize

from adaptntk.core.metrics import Array
from adaptntk.errors import InputError
from adaptntk.representation import short_repr

Flags = NDArray[np.bool_]

# Ridges relative to the number of structures.
RIDGES = (0.001, 0.01, 0.1, 1.0)
FOLDS = 5


@short_repr
@dataclass(frozen=True)
class LogErrorRegression:
    """``log e = intercept + sum_j w_j (c_j - mean_j) / spread_j``.

    Covariates that are ``monotone`` have weights that are not negative: more of them never means less error. Those
    that are ``open_ended`` count wherever they lead. The others count only within the range on which they were fitted:
    beyond it they are taken to be at its edge, because a weight found in the middle says nothing there. ``intercept``
    is the mean of log e, ``ridge`` what cross-validation chose.
    """

    means: Array
    spreads: Array
    lowest: Array
    highest: Array
    weights: Array
    open_ended: Flags
    intercept: float
    ridge: float

    @classmethod
    def fit(
        cls, covariates: Array, errors: Array, monotone: Sequence[bool], open_ended: Sequence[bool], rng: Generator
    ) -> "LogErrorRegression":
        """On labelled structures, one row of covariates each."""
        if len(errors) < 2 * FOLDS:
            raise InputError(f"the error model needs at least {2 * FOLDS} labelled structures, not {len(errors)}")
        target = np.log(np.maximum(errors, 1e-12 * errors.max()))
        masks = np.array(monotone), np.array(open_ended)
        folds = np.array_split(rng.permutation(len(target)), FOLDS)

        def held_out_loss(ridge: float) -> float:
            total = 0.0
            for held_out in folds:
                kept = np.setdiff1d(np.arange(len(target)), held_out)
                fitted = cls.solve(covariates[kept], target[kept], masks, ridge)
                total += float(np.sum((np.log(fitted.predict(covariates[held_out])) - target[held_out]) ** 2))
            return total / len(target)

        return cls.solve(covariates, target, masks, min(RIDGES, key=held_out_loss))

    @classmethod
    def solve(cls, covariates: Array, target: Array, masks: tuple[Flags, Flags], ridge: float) -> "LogErrorRegression":
        """Bounded least squares for one ridge; rows ``sqrt(ridge n) I`` below the covariates are the ridge."""
        monotone, open_ended = masks
        means, spreads = covariates.mean(axis=0), np.maximum(covariates.std(axis=0), 1e-12)
        standard = (covariates - means) / spreads
        intercept = float(target.mean())
        width = covariates.shape[1]
        matrix = np.vstack([standard, np.sqrt(ridge * len(target)) * np.eye(width)])
        goal = np.concatenate([target - intercept, np.zeros(width)])
        weights = optimize.lsq_linear(matrix, goal, (np.where(monotone, 0.0, -np.inf), np.inf), method="bvls").x
        edges = covariates.min(axis=0), covariates.max(axis=0)
        return cls(means, spreads, *edges, weights, open_ended, intercept, ridge)

    def predict(self, covariates: Array) -> Array:
        """The expected error, the exponential of the regression: a standard deviation up to a factor."""
        inside = np.where(self.open_ended, covariates, np.clip(covariates, self.lowest, self.highest))
        return np.exp(self.intercept + ((inside - self.means) / self.spreads) @ self.weights)
