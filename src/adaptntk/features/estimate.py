"""What the work will take, told before it begins."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from adaptntk.errors import InputError
from adaptntk.memory import GIBIBYTE, size_of
from adaptntk.progress import counted, duration


@dataclass(frozen=True)
class Estimate:
    """What extracting features will take; ``advice`` needs less memory, ``remark`` is what else is worth knowing.

    ``further`` rows are made beyond those of the structures.
    """

    structures: int
    parameters: int
    seconds: float
    memory: int
    advice: str
    remark: str | None = None
    further: int = 0

    def __str__(self) -> str:
        size = f"{self.structures:,} structures x {self.parameters:,} parameters"
        more = f", with {counted(self.further, 'force row')}" if self.further else ""
        return f"{size}{more}: about {duration(self.seconds)}, {size_of(self.memory)}"

    def check(self, memory_budget: int) -> None:
        """Refuse work that needs more memory than allowed, before it starts."""
        if self.memory > 1.1 * memory_budget:
            budget = f"{memory_budget / GIBIBYTE:.2g} GiB"
            raise InputError(f"{self} is more than the memory budget of {budget}: {self.advice}")


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """How long something takes, on a GPU as well."""

    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    finish()
    began = time.perf_counter()
    work()
    finish()
    return time.perf_counter() - began
