"""How well a score predicts the error: ranking, retention, calibration.

Scores ``u`` and errors ``e`` are one number per structure; ``e`` is a root mean square force error, ``sigma`` a
predicted one in the same unit.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]
LEVEL = 0.95  # of intervals


def spearman(u: Array, e: Array) -> float:
    """Rank correlation; ``nan`` when one side is constant."""
    return float("nan") if np.ptp(u) == 0 or np.ptp(e) == 0 else float(stats.spearmanr(u, e).statistic)


def spearman_rows(u: Array, e: Array) -> Array:
    """Rank correlation of each row of ``u`` with ``e``: one call for a whole grid."""
    ranks = stats.rankdata(np.vstack([u, e]), axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    ranks /= np.linalg.norm(ranks, axis=1, keepdims=True)
    return ranks[:-1] @ ranks[-1]


def pearson(u: Array, e: Array) -> float:
    """Linear correlation; ``nan`` when one side is constant."""
    return float("nan") if np.ptp(u) == 0 or np.ptp(e) == 0 else float(stats.pearsonr(u, e).statistic)


def risk_coverage(ranking: Array, e: Array) -> tuple[Array, Array]:
    """Retained fraction (1/N .. 1) and RMSE of the retained structures, the most uncertain removed first."""
    counts = np.arange(1, len(e) + 1)
    risk = np.sqrt(np.cumsum(e[np.argsort(ranking, kind="stable")] ** 2) / counts)
    return counts / len(e), risk


def aurc(ranking: Array, e: Array) -> float:
    """Area under the exact N-point risk-coverage curve, by the trapezoidal rule."""
    coverage, risk = risk_coverage(ranking, e)
    return float(np.trapezoid(risk, coverage))


def normalised_aurc(u: Array, e: Array, rng: np.random.Generator) -> float:
    """AURC_n: 0 when u ranks as the true error does, 1 when no better than chance; ``nan`` for equal errors."""
    oracle = aurc(e, e)
    chance = np.mean([aurc(rng.permutation(len(e)).astype(float), e) for _ in range(5)])
    return float((aurc(u, e) - oracle) / (chance - oracle)) if chance > oracle else float("nan")


def calibration_bins(sigma: Array, e: Array, bins: int = 10) -> tuple[Array, Array]:
    """Root mean predicted variance and RMSE of equal-count bins of rising sigma."""
    parts = np.array_split(np.argsort(sigma, kind="stable"), min(bins, len(sigma)))
    rmv, rmse = (np.array([np.sqrt(np.mean(values[part] ** 2)) for part in parts]) for values in (sigma, e))
    return rmv, rmse


def ence(sigma: Array, e: Array, bins: int = 10) -> float:
    """Expected normalised calibration error: mean over bins of ``|RMV - RMSE| / RMV``."""
    rmv, rmse = calibration_bins(sigma, e, bins)
    return float(np.mean(np.abs(rmv - rmse) / rmv))


def ence_floor(sigma: Array, freedom: float, rng: np.random.Generator) -> float:
    """ENCE that a perfectly calibrated sigma would show, by simulation: it is not zero.

    A structure's squared error is the mean of ``freedom`` squared normal numbers of variance ``sigma^2`` (3 N if all
    force components erred independently, 1 if they erred together).
    """
    errors = (sigma * np.sqrt(rng.chisquare(freedom, len(sigma)) / freedom) for _ in range(100))
    return float(np.mean([ence(sigma, simulated) for simulated in errors]))


def attainable_spearman(sigma: Array, rng: np.random.Generator) -> float:
    """Rank correlation of a perfectly calibrated sigma with the size of normal errors, by simulation: it is not one.

    The less sigma differs between structures, the less it can say about which error will be the larger one.
    """
    return float(np.mean([spearman(sigma, sigma * np.abs(rng.standard_normal(len(sigma)))) for _ in range(100)]))


def error_degrees_of_freedom(sigma: Array, e: Array) -> float:
    """How many independent components the scatter of e/sigma suggests: a mean of k has relative variance ``2/k``."""
    ratio = (e / sigma) ** 2
    return float(np.clip(2 * ratio.mean() ** 2 / max(ratio.var(), 1e-300), 1.0, 1e9))


def bootstrap_interval(
    statistic: Callable[..., float], arrays: tuple[Array, ...], rng: np.random.Generator, draws: int = 500
) -> tuple[float, float]:
    """Interval of a statistic of per-structure arrays, resampling structures."""
    samples = (rng.integers(0, len(arrays[0]), len(arrays[0])) for _ in range(draws))
    values = [statistic(*(array[sample] for array in arrays)) for sample in samples]
    return centred_interval(statistic(*arrays), np.array(values))


def centred_interval(estimate: float, values: Array) -> tuple[float, float]:
    """The outer quantiles of resampled values, moved so that their mean is the estimate.

    A resampled set holds structures twice and bins of fewer different ones, so that a calibration error, a mean of
    absolute values, is larger on it: its plain quantiles may not even contain the estimate. ``nan`` where that is
    undefined.
    """
    if not np.isfinite(estimate) or not np.isfinite(values).any():
        return float("nan"), float("nan")
    low, high = np.nanquantile(values - np.nanmean(values) + estimate, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
