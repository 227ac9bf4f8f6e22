"""Which score speaks of the force error of a structure: that of its energy, that of its forces, or both.

U is the variance of the energy per atom, at the price of one gradient: is this structure new? V is the mean variance of
the force components, from a committee (see ``uncertainty/committee.py``), at the price of a force call for each member:
how wrong are the forces? Among frames of one composition both rank the force errors, each with a noise of its own, so
``sqrt(U V)`` often ranks them better than either. Between different systems the energies of new ones say little about
their forces, and V is the better number by far.
"""

from dataclasses import dataclass

import numpy as np

from adaptntk.core import metrics
from adaptntk.core.metrics import Array
from adaptntk.errors import InputError

ENERGY, COMMITTEE, BOTH = "energy", "committee", "both"
QUESTIONS = (ENERGY, COMMITTEE, BOTH)
AUTO = "auto"  # whichever ranks the errors of labelled structures best
# What is written of each; V is the variance of the forces of a committee.
SYMBOLS = {ENERGY: "U", COMMITTEE: "V", BOTH: "sqrt(U V)"}
DRAWS = 200


def check_question(question: str) -> None:
    """Refuse an unknown name."""
    if question not in (*QUESTIONS, AUTO):
        raise InputError(f"forces cannot be judged by {question!r}: choose one of {', '.join((*QUESTIONS, AUTO))}")


def force_scores(question: str, variance: Array, spread: Array | None) -> Array:
    """One number per structure, meant as a variance: from U, and where it is asked for from V, the ``spread``."""
    if question == ENERGY:
        return variance
    assert spread is not None, "this question is one to a committee"
    return spread if question == COMMITTEE else np.sqrt(np.maximum(variance, 0.0) * spread)


@dataclass(frozen=True)
class Question:
    """The score that was chosen, and why; ``ranks`` are the rank correlations of each with the errors."""

    name: str
    ranks: dict[str, float]
    reason: str

    def __str__(self) -> str:
        """For instance ``both, rank correlation 0.81 (energy 0.79, committee 0.77): no other ranks the errors ...``."""
        others = ", ".join(f"{name} {rank:.2f}" for name, rank in self.ranks.items() if name != self.name)
        return f"{self.name}, rank correlation {self.ranks[self.name]:.2f} ({others}): {self.reason}"


def choose_question(
    variance: Array, spread: Array, errors: Array, rng: np.random.Generator, wanted: str = AUTO
) -> Question:
    """``both``, unless another is wanted or ranks the errors of labelled structures better, beyond a standard error.

    No score is fitted to the errors here, so nothing grades itself but this choice, which the standard error keeps from
    following noise.
    """
    rows = np.array([force_scores(name, variance, spread) for name in QUESTIONS])
    samples = [np.arange(len(errors))] + [rng.integers(0, len(errors), len(errors)) for _ in range(DRAWS)]
    with np.errstate(invalid="ignore"):  # NaN where all ranks are the same
        table = np.array([metrics.spearman_rows(rows[:, s], errors[s]) for s in samples])
    ranks = dict(zip(QUESTIONS, table[0].tolist(), strict=True))
    if wanted != AUTO:
        return Question(wanted, ranks, "as wanted")
    prior = QUESTIONS.index(BOTH)
    gain = table - table[:, [prior]]
    if not np.isfinite(gain[0]).all():
        return Question(BOTH, ranks, "all errors are the same")
    best = int(np.argmax(gain[0]))
    doubt = float(np.nanstd(gain[1:, best]))
    if gain[0, best] > doubt:
        return Question(QUESTIONS[best], ranks, f"better than both by {gain[0, best]:.2g} ± {doubt:.1g}")
    return Question(BOTH, ranks, "no other ranks the errors better" if best == prior else "none is better beyond noise")
