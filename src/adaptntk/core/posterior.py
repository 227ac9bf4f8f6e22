"""The uncertainty: a regularised Mahalanobis distance from the training rows.

With training rows ``Phi`` (n x p), ``F = Phi^T Phi`` and ``C = F + lam I``, the score of a query row is the
paper's Eq. 5, ``U(x) = lam phi^T C^-1 phi``; of a structure with several rows, it is the sum over those asked about.
Woodbury's identity gives the same number in the n-dimensional dual form, ``U(x) = k(x,x) - k_x^T (K + lam I)^-1 k_x``
with ``K = Phi Phi^T`` (Eq. 1). `Posterior` holds the first form, `DualPosterior` the second, for rows that are much
wider than there are of them.

Rows that labels teach beyond the blocks of the structures, those of forces, come as one matrix, ``further`` (m x p):
nobody asks which structure one of them belongs to. ``F`` is all that matters of them (see `compressed`), so n below is
the number of rows of both kinds.

Both forms separate one costly factorisation, in float64 (in float32 it fails for small ``lam``), from cheap queries,
and both are values: conditioning on new rows returns a new object.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptntk.core.blocks import Blocks, all_rows, as_blocks, asked_rows, sum_over_asked
from adaptntk.core.rows import gram, inner_products, squared_norms, stacked_products, subtract_combinations
from adaptntk.core.sketch.counter_hash import stream
from adaptntk.core.sketch.normals import normal_numbers
from adaptntk.errors import IndefiniteMatrixError, InputError
from adaptntk.representation import short_repr

# A matrix of 0.5 GB; only full gradients are wider.
WIDEST_PRIMAL = 8192
# Random numbers of a draw, apart from those of any sketch with the same seed.
_PRIOR_STREAM, _NOISE_STREAM = 16, 17


@short_repr
@dataclass(frozen=True)
class Posterior:
    """Primal form: ``C = F + lam I`` and its Cholesky factor, p x p.

    To fit takes ``n p^2 + p^3/3`` operations, a query ``p^2``.
    """

    covariance_matrix: Tensor
    factor: Tensor
    lam: float

    @classmethod
    def fit(cls, features: Tensor | Blocks, lam: float, further: Tensor | None = None) -> "Posterior":
        """Factorise ``F + lam I`` over all rows of the training structures, and the further ones."""
        matrix = gram(_parts(features, further, lam))
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

    def condition(self, features: Tensor | Blocks, further: Tensor | None = None) -> "Posterior":
        """After all these rows joined the training set; no labels are needed. Eq. 6-8: ``C`` gains ``rows^T rows``.

        Refactorised rather than updated, ``O(p^3)``: nothing accumulates.
        """
        matrix = gram(_parts(features, further, self.lam)).add_(self.covariance_matrix)
        return Posterior(matrix, _cholesky(matrix, self.lam), self.lam)

    def effective_dimension(self) -> float:
        """``d_lam = tr[F C^-1] = p - lam tr C^-1``, from the factor: ``2 p^3/3`` operations."""
        return _effective_dimension(self.factor, self.lam)

    def draw(self, count: int, seed: int) -> Tensor:
        """Rows ``w ~ N(0, lam C^-1)``, (count, p): ``phi . w`` has the variance U; ``w = sqrt(lam) L^-T z``.

        The first of many draws are those of few. ``O(count p^2)``.
        """
        normals = _normals(seed, _PRIOR_STREAM, count, self.factor)
        return torch.linalg.solve_triangular(self.factor.T, normals.T, upper=True).T * self.lam**0.5


@short_repr
@dataclass(frozen=True)
class DualPosterior:
    """Dual form: the training rows themselves and the Cholesky factor of ``K + lam I``, n x n; see `Posterior`.

    To fit takes ``2 n^2 p + n^3/3`` operations, a query ``2 n p + n^2``. Rows are kept as they come, in ``parts``.
    """

    parts: tuple[Tensor, ...]
    factor: Tensor
    lam: float

    @classmethod
    def fit(cls, features: Tensor | Blocks, lam: float, further: Tensor | None = None) -> "DualPosterior":
        """Factorise ``K + lam I`` over all rows of the training structures, and the further ones, however wide."""
        parts = _parts(features, further, lam)
        matrix = torch.cat([stacked_products(parts, part) for part in parts], dim=1)
        matrix.diagonal().add_(lam)
        return cls(parts, _cholesky(matrix, lam), lam)

    def explained(self, queries: Tensor) -> Tensor:
        """Rows ``v(x) = L^-1 k_x``: what the training rows explain, ``U(x, z) = k(x, z) - v(x) . v(z)``."""
        cross = stacked_products(self.parts, _checked(queries, self.lam))
        return torch.linalg.solve_triangular(self.factor, cross, upper=False).T

    def variance(self, queries: Tensor | Blocks) -> Tensor:
        # U >= lam k / (tr F + lam): where the difference is nothing but rounding, it may be below, even negative.
        least = self.lam / float(torch.linalg.vector_norm(self.factor)) ** 2

        def of_rows(rows: Tensor) -> Tensor:
            prior = squared_norms(rows)
            return torch.maximum(prior - self.explained(rows).square().sum(1), least * prior)

        return sum_over_asked(as_blocks(queries), of_rows)

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        return inner_products(a, b) - self.explained(a) @ self.explained(b).T

    def condition(self, features: Tensor | Blocks, further: Tensor | None = None) -> "DualPosterior":
        """The factor of the rows so far is the beginning of the new one; b rows take ``2 n b p + n^2 b`` operations."""
        parts = _parts(features, further, self.lam)
        known = torch.cat([self.explained(part) for part in parts])
        own = torch.cat([stacked_products(parts, part) for part in parts], dim=1).addmm_(known, known.T, alpha=-1)
        own.diagonal().add_(self.lam)
        count = len(self.factor)
        factor = own.new_zeros(count + len(own), count + len(own))
        factor[:count, :count], factor[count:, :count] = self.factor, known
        factor[count:, count:] = _cholesky(own, self.lam)
        return DualPosterior(self.parts + parts, factor, self.lam)

    def representers(self, rows: Tensor) -> Tensor:
        """``y(z) = phi(z) - Phi^T (K + lam I)^-1 k_z``."""
        weights = torch.linalg.solve_triangular(self.factor.T, self.explained(rows).T, upper=True)
        result = rows.to(torch.float64, copy=True)
        subtract_combinations(result, self.parts, weights)
        return result

    def effective_dimension(self) -> float:
        """``d_lam = tr[K (K + lam I)^-1] = n - lam tr (K + lam I)^-1``: ``2 n^3/3`` operations."""
        return _effective_dimension(self.factor, self.lam)

    def draw(self, count: int, seed: int) -> Tensor:
        """As in primal form, but not the same numbers. Matheron's rule: a draw of the prior without what the rows say.

        ``w = z - Phi^T (K + lam I)^-1 (Phi z + sqrt(lam) eps)``; ``O(count n (n + p))``.
        """
        result = _normals(seed, _PRIOR_STREAM, count, self.parts[0])
        noise = _normals(seed, _NOISE_STREAM, count, self.factor)
        seen = stacked_products(self.parts, result).add_(noise.T, alpha=self.lam**0.5)
        subtract_combinations(result, self.parts, torch.cholesky_solve(seen, self.factor))
        return result


FeaturePosterior = Posterior | DualPosterior


class RidgePath:
    """Scores at many values of ``lam`` for the price of one eigendecomposition.

    With ``F = V diag(s) V^T`` the score is ``U = lam sum_j (v_j . phi)^2 / (s_j + lam)``; in dual form, with
    ``K = V diag(s) V^T``, it is ``U = k(x,x) - sum_j (v_j . k_x)^2 / (s_j + lam)``. The smaller of the two
    matrices is decomposed, when it is needed: that takes as long as ten to twenty factorisations.
    """

    def __init__(self, features: Tensor | Blocks, further: Tensor | None = None) -> None:
        self.structures = len(features)
        self.parts = _parts(features, further, 1.0)
        self.width = self.parts[0].shape[1]
        self.dual = sum(len(part) for part in self.parts) < self.width
        self.mean_squared_norm = sum(float(squared_norms(part).sum()) for part in self.parts) / self.structures
        self._fitted: FeaturePosterior | None = None

    @property
    def joint(self) -> bool:
        """Whether there are further rows."""
        return len(self.parts) > 1

    @property
    def directions(self) -> int:
        """How many rows there are; of the further ones no more than could be told apart, so compression is not seen."""
        return len(self.parts[0]) + sum(min(len(part), self.width) for part in self.parts[1:])

    @cached_property
    def spectrum(self) -> tuple[Tensor, Tensor]:
        """The eigenvalues s and the eigenvectors V, in columns."""
        parts, self._fitted = self.parts, None  # no longer worth its memory
        matrix = torch.cat([stacked_products(parts, part) for part in parts], dim=1) if self.dual else gram(parts)
        eigenvalues, vectors = torch.linalg.eigh(matrix)
        return eigenvalues.clamp_min(0.0), vectors

    def lam(self, alpha: float) -> float:
        """``lam = alpha tr(F)/n``: relative to the mean squared norm of a training structure's rows."""
        return alpha * self.mean_squared_norm

    def effective_dimension(self, lam: float) -> float:
        """``d_lam = tr[K (K + lam I)^-1]``: how many directions the training data determine."""
        eigenvalues, _ = self.spectrum
        return float((eigenvalues / (eigenvalues + lam)).sum())

    def posterior(self, lam: float) -> FeaturePosterior:
        """That of `fit_posterior`; the latest is kept, so who wants both its dimension and itself pays once."""
        if self._fitted is None or self._fitted.lam != lam:
            self._fitted = fit_posterior(self.parts[0], lam, self.parts[1] if len(self.parts) > 1 else None)
        return self._fitted

    def variances(self, queries: Tensor | Blocks, lams: list[float]) -> Tensor:
        """One row of scores per value of ``lam``."""
        blocks = as_blocks(queries)
        rows = _checked(asked_rows(blocks[:], blocks.asked), min(lams))
        eigenvalues, vectors = self.spectrum
        if self.dual:
            loadings = (vectors.T @ stacked_products(self.parts, rows)).square()
            prior, most = squared_norms(rows), eigenvalues[-1]
            # No less than U can be, see `DualPosterior.variance`.
            scores = torch.stack(
                [
                    torch.maximum(prior - (loadings.T / (eigenvalues + lam)).sum(1), prior * (lam / (most + lam)))
                    for lam in lams
                ]
            )
        else:
            loadings = (rows.double() @ vectors).square()
            scores = torch.stack([lam * (loadings / (eigenvalues + lam)).sum(1) for lam in lams])
        return scores.view(len(lams), len(blocks), blocks.asked).sum(2)


def fit_posterior(features: Tensor | Blocks, lam: float, further: Tensor | None = None) -> FeaturePosterior:
    """The cheaper form: dual for full gradients and for few rows, primal else.

    To fit, the dual form is cheaper whenever ``n < p``; a query costs ``2 n p + n^2`` in it and ``p^2`` in the primal
    one, which is less from ``n = 0.41 p`` on. Half is where few queries and many would agree about.

    Args:
        further: rows that the labels of the structures teach beyond their blocks, (m, p) or (structures, K, p).
    """
    structures, height, width = as_blocks(features).shape
    count = structures * height + (0 if further is None else further.shape[:-1].numel())
    return (DualPosterior if 2 * count < width else Posterior).fit(features, lam, further)


def as_primal(posterior: FeaturePosterior) -> Posterior | None:
    """The same in primal form; None for rows that are too wide for it."""
    if isinstance(posterior, Posterior):
        return posterior
    if posterior.parts[0].shape[1] > WIDEST_PRIMAL:
        return None
    first, *others = posterior.parts
    return Posterior.fit(first, posterior.lam, torch.cat(others) if others else None)


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


def _parts(features: Tensor | Blocks, further: Tensor | None, lam: float) -> tuple[Tensor, ...]:
    """All rows, checked: those of the blocks, and the further ones if there are any."""
    rows = _checked(all_rows(features), lam)
    if further is None or further.numel() == 0:
        return (rows,)
    if further.shape[-1] != rows.shape[1]:
        raise InputError(f"further rows have {further.shape[-1]} numbers, those of the structures {rows.shape[1]}")
    return rows, _checked(further.flatten(0, -2), lam)


def _effective_dimension(factor: Tensor, lam: float) -> float:
    return len(factor) - lam * float(torch.cholesky_inverse(factor).diagonal().sum())


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
