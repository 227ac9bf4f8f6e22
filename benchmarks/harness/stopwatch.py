"""Times that can be compared: taken in turns, so that a slow minute of the machine hits all alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Timing:
    """Repeated times of one kind of work, each divided by the amount of it."""

    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def over(self, other: "Timing") -> "Timing":
        """Ratios round by round."""
        return Timing([a / b for a, b in zip(self.seconds, other.seconds, strict=True)])

    def summary(self, scale: float = 1.0) -> dict[str, float]:
        """Median and range."""
        return {
            "median": round(scale * self.median, 4),
            "low": round(scale * min(self.seconds), 4),
            "high": round(scale * max(self.seconds), 4),
        }


def time_in_turns(
    work: Mapping[str, tuple[Callable[[], object], float]],
    rounds: int,
    device: torch.device | str = "cpu",
    warm_up: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time each piece of work (a function and the amount it does) once per round, after a first round for nothing.

    On a machine that others use, ``clock=time.process_time`` counts what the processor did for this process.
    """
    times: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(rounds + warm_up):
        for name, (function, amount) in work.items():
            _finish(device)
            began = clock()
            function()
            _finish(device)
            if turn >= warm_up:
                times[name].append((clock() - began) / amount)
    return {name: Timing(seconds) for name, seconds in times.items()}


def show_range(summary: Mapping[str, float]) -> str:
    """Of a summary: the median, and in brackets the range."""
    return f"{summary['median']:.2f} ({summary['low']:.2f} .. {summary['high']:.2f})"


def _finish(device: torch.device | str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
