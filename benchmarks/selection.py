"""50 picks from 75,000 x 512 features: incremental against naive, in one run, and the same picks.

The naive algorithm refits the posterior and rescores the whole pool after every pick. Times are given as
ratios to one pass over the pool (a matrix-vector product with the candidate matrix).

    python benchmarks/selection.py [--candidates 75000] [--dim 512] [--picks 50]
"""

import argparse
import statistics
import time

import torch

import record
from adaptntk.core.acquisition import greedy
from adaptntk.core.posterior import Posterior


def features(rows: int, dim: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    spectrum = torch.logspace(0, -2, dim, dtype=torch.float64)
    return torch.randn(rows, dim, generator=generator, dtype=torch.float64) * spectrum


def naive(train: torch.Tensor, candidates: torch.Tensor, lam: float, picks: int) -> list[int]:
    chosen: list[int] = []
    for _ in range(picks):
        scores = Posterior.fit(torch.cat([train, candidates[chosen]]), lam).variance(candidates)
        scores[chosen] = -torch.inf
        chosen.append(int(scores.argmax()))
    return chosen


def seconds(work, repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=75_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--picks", type=int, default=50)
    options = parser.parse_args()
    rows = features(1000 + options.candidates, options.dim)
    train, candidates = rows[:1000], rows[1000:]
    lam = 1e-4 * float(train.square().sum(1).mean())
    posterior = Posterior.fit(train, lam)
    vector = candidates[0].clone()
    one_pass = statistics.median(seconds(lambda: candidates @ vector, 20))
    whitening = statistics.median(seconds(lambda: posterior.whiten(candidates), 3))
    incremental = seconds(lambda: greedy(posterior, candidates, options.picks), 5)
    picks = greedy(posterior, candidates, options.picks).indices
    began = time.perf_counter()
    reference = naive(train, candidates, lam, options.picks)
    naive_seconds = time.perf_counter() - began
    median = statistics.median(incremental)
    result = {
        "candidates": options.candidates,
        "dim": options.dim,
        "picks": options.picks,
        "same_picks_as_naive": picks == reference,
        "seconds": {"incremental": incremental, "whitening": whitening, "naive": naive_seconds, "one_pass": one_pass},
        "naive_over_incremental": naive_seconds / median,
        "incremental_over_passes": (median - whitening) / (options.picks * one_pass),
    }
    path = record.save("selection", result)
    print(f"same picks: {result['same_picks_as_naive']}")
    print(f"incremental {median:.2f} s (whitening {whitening:.2f} s), naive {naive_seconds:.1f} s")
    print(f"naive / incremental = {result['naive_over_incremental']:.1f}")
    print(f"picking / {options.picks} passes over the pool = {result['incremental_over_passes']:.2f}")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
