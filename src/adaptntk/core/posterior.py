"""The uncertainty: a regularised Mahalanobis distance from the training rows.

With training rows ``Phi`` (n x p), ``F = Phi^T Phi`` and ``C = F + lam I``, the score of a query row is the
paper's Eq. 5, ``U(x) = lam phi^T C^-1 phi``; of a structure with several rows, it is the sum over those asked about.
Woodbury's identity gives the same number in the n-dimensional dual form, ``U(x) = k(x,x) - k_x^T (K + lam I)^-1 k_x``
with ``K = Phi Phi^T`` (Eq. 1). `Posterior` holds the first form, `DualPosterior` the second, for rows wider than there
are training structures.

Both separate one costly factorisation, in float64 (in float32 it fails for small ``lam``), from cheap queries, and both
are values: conditioning on new rows returns a new object.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptntk.core.blocks import Blocks, all_rows, as_blocks, asked_rows, sum_over_asked
from adaptntk.core.sketch.counter_hash import stream
from adaptntk.core.sketch.normals import normal_numbers
from adaptntk.errors import IndefiniteMatrixError, InputError
from adaptntk.representation import short_repr

# Wide float32 rows are converted to float64 this many columns at a time.
_COLUMN_BLOCK = 2**16
# Random numbers of a draw, apart from those of any sketch with the same seed.
_PRIOR_STREAM, _NOISE_STREAM = 16, 17


@short_repr
@dataclass(frozen=True)
class Posterior:
    """Primal form: ``C = F + lam I`` and its Cholesky factor, p x p."""

    covariance_matrix: Tensor
    factor: Tensor
    lam: float

    @classmethod
    def fit(cls, features: Tensor | Blocks, lam: float) -> "Posterior":
        """Factorise ``F + lam I`` over all rows of the training structures."""
        rows = _checked(all_rows(features), lam).double()
        matrix = rows.T @ rows
        matrix.diagonal().add_(lam)
        return cls(matrix, _cholesky(matrix, lam), lam)

    def whiten(self, queries: Tensor) -> Tensor:
        """Rows ``w(x) = sqrt(lam) L^-1 phi(x)``, so that ``U(x, z) = w(x) . w(z)``."""
        rows = _checked(queries, self.lam).double()
        return torch.linalg.solve_triangular(self.factor, rows.T, upper=False).T * self.lam**0.5

    def variance(self, queries: Tensor | Blocks) -> Tensor:
        """``U(x)`` of every structure; a matrix of rows is one row for each."""
        return sum_over_asked(as_blocks(queries), lambda rows: self.whiten(rows).square().sum(1))

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """The cross terms ``U(x, z) = lam phi(x)^T C^-1 phi(z)`` for rows x of ``a`` and z of ``b``."""
        return self.whiten(a) @ self.whiten(b).T

    def representers(self, rows: Tensor) -> Tensor:
        """Rows ``y(z) = lam C^-1 phi(z)``, such that ``U(x, z) = phi(x) . y(z)`` for any x."""
        whitened = self.whiten(rows).T
        return torch.linalg.solve_triangular(self.factor.T, whitened, upper=True).T * self.lam**0.5

    def condition(self, features: Tensor | Blocks) -> "Posterior":
        """After all these rows joined the training set; no labels are needed. Eq. 6-8: ``C`` gains ``rows^T rows``.

        Refactorised rather than updated: nothing accumulates.
        """
        rows = _checked(all_rows(features), self.lam).double()
        matrix = self.covariance_matrix + rows.T @ rows
        return Posterior(matrix, _cholesky(matrix, self.lam), self.lam)

    def draw(self, count: int, seed: int) -> Tensor:
        """Rows ``w ~ N(0, lam C^-1)``, (count, p): ``phi . w`` has the variance U; ``w = sqrt(lam) L^-T z``.

        The first of many draws are those of few. ``O(count p^2)``.
        """
        normals = _normals(seed, _PRIOR_STREAM, count, self.factor)
        return torch.linalg.solve_triangular(self.factor.T, normals.T, upper=True).T * self.lam**0.5


@short_repr
@dataclass(frozen=True)
class DualPosterior:
    """Dual form: the training rows themselves and the Cholesky factor of ``K + lam I``, n x n; see `Posterior`."""

    rows: Tensor
    factor: Tensor
    lam: float

    @classmethod
    def fit(cls, features: Tensor | Blocks, lam: float) -> "DualPosterior":
        """Factorise ``K + lam I`` over all rows of the training structures, however wide."""
        rows = _checked(all_rows(features), lam)
        matrix = inner_products(rows, rows)
        matrix.diagonal().add_(lam)
        return cls(rows, _cholesky(matrix, lam), lam)

    def explained(self, queries: Tensor) -> Tensor:
        """Rows ``v(x) = L^-1 k_x``: what the training rows explain, ``U(x, z) = k(x, z) - v(x) . v(z)``."""
        cross = inner_products(self.rows, _checked(queries, self.lam))
        return torch.linalg.solve_triangular(self.factor, cross, upper=False).T

    def variance(self, queries: Tensor | Blocks) -> Tensor:
        def of_rows(rows: Tensor) -> Tensor:
            return squared_norms(rows) - self.explained(rows).square().sum(1)

        return sum_over_asked(as_blocks(queries), of_rows)

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        return inner_products(a, b) - self.explained(a) @ self.explained(b).T

    def condition(self, features: Tensor | Blocks) -> "DualPosterior":
        return DualPosterior.fit(torch.cat([self.rows, all_rows(features).to(self.rows.dtype)]), self.lam)

    def representers(self, rows: Tensor) -> Tensor:
        """``y(z) = phi(z) - Phi^T (K + lam I)^-1 k_z``."""
        weights = torch.linalg.solve_triangular(self.factor.T, self.explained(rows).T, upper=True)
        result = rows.to(torch.float64, copy=True)
        for left, known in zip(result.split(_COLUMN_BLOCK, 1), self.rows.split(_COLUMN_BLOCK, 1), strict=True):
            left -= weights.T @ known.double()
        return result

    def draw(self, count: int, seed: int) -> Tensor:
        """As in primal form, but not the same numbers. Matheron's rule: a draw of the prior without what the rows say.

        ``w = z - Phi^T (K + lam I)^-1 (Phi z + sqrt(lam) eps)``; with n rows ``O(count n (n + p))``.
        """
        result = _normals(seed, _PRIOR_STREAM, count, self.rows)
        noise = _normals(seed, _NOISE_STREAM, count, self.factor)
        seen = inner_products(self.rows, result) + self.lam**0.5 * noise.T
        weights = torch.cholesky_solve(seen, self.factor)
        for left, known in zip(result.split(_COLUMN_BLOCK, 1), self.rows.split(_COLUMN_BLOCK, 1), strict=True):
            left -= weights.T @ known.double()
        return result


FeaturePosterior = Posterior | DualPosterior


class RidgePath:
    """Scores at many values of ``lam`` for the price of one eigendecomposition.

    With ``F = V diag(s) V^T`` the score is ``U = lam sum_j (v_j . phi)^2 / (s_j + lam)``; in dual form, with
    ``K = V diag(s) V^T``, it is ``U = k(x,x) - sum_j (v_j . k_x)^2 / (s_j + lam)``. The smaller of the two
    matrices is decomposed.
    """

    def __init__(self, features: Tensor | Blocks) -> None:
        self.structures = len(features)
        self.rows = rows = _checked(all_rows(features), 1.0)
        self.dual = rows.shape[0] < rows.shape[1]
        matrix = inner_products(rows, rows) if self.dual else rows.double().T @ rows.double()
        eigenvalues, self.vectors = torch.linalg.eigh(matrix)
        self.eigenvalues = eigenvalues.clamp_min(0.0)
        self.mean_squared_norm = float(squared_norms(rows).sum() / self.structures)

    def lam(self, alpha: float) -> float:
        """``lam = alpha tr(F)/n``: relative to the mean squared norm of a training structure's rows."""
        return alpha * self.mean_squared_norm

    def effective_dimension(self, lam: float) -> float:
        """``d_lam = tr[K (K + lam I)^-1]``: how many directions the training data determine."""
        return float((self.eigenvalues / (self.eigenvalues + lam)).sum())

    def variances(self, queries: Tensor | Blocks, lams: list[float]) -> Tensor:
        """One row of scores per value of ``lam``."""
        blocks = as_blocks(queries)
        rows = _checked(asked_rows(blocks[:], blocks.asked), min(lams))
        if self.dual:
            loadings = (self.vectors.T @ inner_products(self.rows, rows)).square()
            prior = squared_norms(rows)
            scores = torch.stack([prior - (loadings.T / (self.eigenvalues + lam)).sum(1) for lam in lams])
        else:
            loadings = (rows.double() @ self.vectors).square()
            scores = torch.stack([lam * (loadings / (self.eigenvalues + lam)).sum(1) for lam in lams])
        return scores.view(len(lams), len(blocks), blocks.asked).sum(2)


def fit_posterior(features: Tensor | Blocks, lam: float) -> FeaturePosterior:
    """The form whose matrix is smaller: primal for sketched rows, dual for full gradients."""
    count, width = all_rows(features).shape
    return (DualPosterior if width > max(count, 4096) else Posterior).fit(features, lam)


def sequential_variances(posterior: FeaturePosterior, picks: Tensor | Blocks) -> Tensor:
    """The score of each structure given that all before it were labelled, from one factorisation.

    With ``L L^T = K + lam I`` over all rows of the picks (K their posterior covariance), the rows of L up to those of a
    structure are what the ones before it explain: ``U(x | before) = U(x) - |l(x)|^2``.
    """
    blocks = as_blocks(picks)
    structures, height, _ = blocks.shape
    rows = all_rows(blocks)
    matrix = posterior.covariance(rows, rows)
    variances = matrix.diagonal().clone()
    matrix.diagonal().add_(posterior.lam)
    factor = _cholesky(matrix, posterior.lam).view(structures, height, structures, height)
    number = torch.arange(structures, device=factor.device)
    before = factor * (number[:, None] > number)[:, None, :, None]
    left = variances.view(structures, height) - before.square().sum((2, 3))
    return left[:, : blocks.asked].sum(1)


def principal_plane(rows: Tensor) -> NDArray[np.float64]:
    """Coordinates of the rows in the plane in which they spread most, for a picture of them."""
    if len(rows) < 3:
        return np.zeros((len(rows), 2))
    centred = rows - rows.mean(0)
    if rows.shape[0] < rows.shape[1]:
        eigenvalues, vectors = torch.linalg.eigh(inner_products(centred, centred))
        plane = vectors[:, -2:] * eigenvalues[-2:].clamp_min(0.0).sqrt()
    else:
        centred = centred.double()
        plane = centred @ torch.linalg.eigh(centred.T @ centred)[1][:, -2:]
    return plane.flip(1).cpu().numpy()


def inner_products(a: Tensor, b: Tensor) -> Tensor:
    """``a b^T`` in float64 without a float64 copy of wide rows."""
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.float64, device=a.device)
    for left, right in zip(a.split(_COLUMN_BLOCK, 1), b.split(_COLUMN_BLOCK, 1), strict=True):
        total += left.double() @ right.double().T
    return total


def squared_norms(rows: Tensor) -> Tensor:
    """``k(x, x)`` of every row, in float64."""
    total = torch.zeros(rows.shape[0], dtype=torch.float64, device=rows.device)
    for part in rows.split(_COLUMN_BLOCK, 1):
        total += part.double().square().sum(1)
    return total


def _normals(seed: int, number: int, count: int, like: Tensor) -> Tensor:
    """``count`` rows as wide as ``like``, in float64."""
    return normal_numbers(stream(seed, number), count, 0, like.shape[1], like.device).double()


def _checked(rows: Tensor, lam: float) -> Tensor:
    if rows.ndim != 2:
        raise InputError(f"features must be a matrix of rows, not an array of shape {tuple(rows.shape)}")
    if not 0 < lam < float("inf"):
        raise InputError(f"lam and alpha must be positive, but lam is {lam}")
    # The sum is not finite if any number is not; to test each would take as long as the solution itself.
    if not torch.isfinite(rows.sum()) and not torch.isfinite(rows).all():
        bad = (~torch.isfinite(rows).all(dim=1)).nonzero()[0].item()
        raise InputError(f"features of row {bad} are not finite")
    return rows


def _cholesky(matrix: Tensor, lam: float) -> Tensor:
    factor, info = torch.linalg.cholesky_ex(matrix)
    if int(info) != 0:
        what = f"the covariance is not positive definite at lam = {lam:.3g}, although lam is added to its diagonal"
        why = f"lam is too small beside its largest entry {float(matrix.diagonal().max()):.3g}"
        raise IndefiniteMatrixError(f"{what}: {why}; use a larger alpha or lam")
    return factor
