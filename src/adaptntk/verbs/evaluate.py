"""``adaptntk evaluate``"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from adaptntk.files import check_folder, make_folder, write_json, write_table
from adaptntk.progress import Show
from adaptntk.verbs.settings import argument, option, verb
from adaptntk.verbs.shared import BatchSize, FittedFile, Seed, size_line

if TYPE_CHECKING:
    from adaptntk.uncertainty.evaluate import Evaluation

# Below this rank correlation a score says little about which errors are large.
WEAK = 0.3
# What needs no uncertainty to rank structures by, and what a reader calls it.
CONTROLS = {"predicted_energy": "the predicted energy", "force_size": "the size of the predicted force"}


class EvaluateSettings(FittedFile, BatchSize, Seed):
    test: Path = argument("Labelled structures outside the training set.")
    output: Path = option("Folder for the report.", short="-o")


class EvaluateReport(NamedTuple):
    """The metrics, with 95 % bootstrap intervals."""

    evaluation: "Evaluation"
    output: Path

    @property
    def metrics(self) -> dict[str, Any]:
        return self.evaluation.metrics

    def lines(self) -> Iterable[str]:
        metrics = self.metrics
        yield f"{metrics['structures']:,} structures"
        yield from _force_lines(metrics)
        yield from _atom_lines(metrics)
        yield from _limit_lines(metrics)
        yield from _energy_lines(metrics)
        yield from _stress_lines(metrics)
        yield from metrics["remarks"]
        yield size_line(metrics["correlation_with_size"])
        yield f"wrote {self.output}/evaluation.json, .csv and .png"


@verb(EvaluateSettings)
def evaluate(settings: EvaluateSettings, show: Show) -> EvaluateReport:
    """Compare the uncertainty with the true errors of the model on labelled structures.

    Labels may be energies, forces or both. Writes evaluation.json, evaluation.csv and evaluation.png.
    """
    from adaptntk.report.figures import draw_evaluation
    from adaptntk.uncertainty.evaluate import evaluate as evaluate_fitted

    check_folder(settings.output)
    fitted, name = settings.load(), str(settings.test)
    test = settings.open(settings.test, fitted, labelled="partly")
    fitted.announce(test, kept=False)
    evaluation = evaluate_fitted(fitted, test, name, settings.batch_size, settings.seed, show.progress)
    folder = make_folder(settings.output)
    write_table(folder / "evaluation.csv", evaluation.columns)
    write_json(folder / "evaluation.json", evaluation.metrics)
    draw_evaluation(folder)
    return EvaluateReport(evaluation, settings.output)


def _force_lines(metrics: dict[str, Any]) -> Iterable[str]:
    """Errors of forces, and what the score knew of them."""
    from adaptntk.core.question import ENERGY, SYMBOLS
    from adaptntk.evaluation import KCAL_PER_MOL

    if "spearman" not in metrics:
        yield "forces: no labels"
        return
    rmse, (energy, size) = metrics["force_rmse"], (metrics[f"control_{name}_spearman"] for name in CONTROLS)
    question = metrics["question"]
    judged = "" if question == ENERGY else f", judged by {question}: {SYMBOLS[question]}"
    yield f"forces: RMSE {rmse:.4f} eV/Å ({rmse / KCAL_PER_MOL:.2f} kcal/mol/Å){judged}"
    alone = f"predicted energy alone: {_number(energy, 3)}, size of the force alone: {_number(size, 3)}"
    yield _metric_line("Spearman", metrics, "spearman", 3, alone)
    of_variance, symbol = _number(metrics["pearson_of_variance"], 3), "U" if question == ENERGY else "score"
    yield _metric_line(f"Pearson, sqrt {symbol}", metrics, "pearson", 3, f"of {symbol} itself: {of_variance}")
    yield _metric_line("AURC_n", metrics, "aurc_n", 3, "0 perfect ranking, 1 chance")
    if "ence" in metrics:
        yield _metric_line("ENCE", metrics, "ence", 4, _ence_remark(metrics))
        yield _metric_line("ENCE, cross-fitted", metrics, "ence_cross_fitted", 4, "as in the paper")
        yield from map(_coverage_line, metrics["conformal"].values())
    else:
        yield "  no uncertainty of forces: it was calibrated without force labels"
    for name, control in zip(CONTROLS.values(), (energy, size), strict=True):
        if metrics["spearman"] is None or metrics["spearman"] <= (control or 0.0):
            yield f"note: the score ranks these structures no better than {name} alone does"


def _atom_lines(metrics: dict[str, Any]) -> Iterable[str]:
    """Of single atoms, where a committee tells of them."""
    atoms = metrics.get("atoms")
    if atoms is None:
        return
    found, control = atoms["spearman"], atoms["control_force_size_spearman"]
    yield "forces of atoms:"
    for key, label in (("within", "within a structure"), ("over_all", "over all atoms")):
        alone = f"size of the force alone: {_number(control[key], 3)}"
        yield f"  Spearman {label:<20}{_number(found[key], 3):>7}  {alone}"
    for coverage in atoms.get("conformal", {}).values():
        every = coverage["all_observed"]
        of_all = "" if every is None else f"; {coverage['all_error_over_sigma']:.2f} sigma for all atoms of a structure"
        observed = "" if every is None else f": {100 * every:.1f} %"
        yield _coverage_line(coverage) + of_all + observed


def _limit_lines(metrics: dict[str, Any]) -> Iterable[str]:
    """What limits the model, where it is known how far it came."""
    from adaptntk.training.limits import Limit

    if "limit" in metrics:
        yield from Limit(**metrics["limit"]).lines()


def _energy_lines(metrics: dict[str, Any]) -> Iterable[str]:
    """Errors of energies, what of them is an offset, and what the score knew of the rest."""
    energy = metrics["energy"]
    if energy is None:
        yield "energies: no labels"
        return

    def pair(key: str, sign: str = "") -> str:
        return _energy(energy[key], energy[f"{key}_per_atom"], sign)

    yield f"energies: MAE {pair('mae')}, RMSE {pair('rmse')}"
    yield f"  {'offset':<20}{pair('offset', '+'):<28} a constant: it cancels in differences"
    if "spearman" not in energy:
        yield "  no uncertainty of energies: it was calibrated without energy labels"
        return
    if energy["offset_removed"]:
        removed = pair("offset_removed", "+")
        yield f"  {'offset, calibrated':<20}{removed:<28} the uncertainty is of what remains without it"
        yield f"  {'remaining':<20}MAE {pair('mae_without_offset')}, RMSE {pair('rmse_without_offset')}"
    attainable = f"a perfect sigma of this spread: {_number(energy['spearman_attainable'], 3)}"
    yield _metric_line("Spearman", energy, "spearman", 3, attainable)
    yield _metric_line("ENCE", energy, "ence", 4, _ence_remark(energy))
    within = " and ".join(f"{100 * energy[f'within_{n}_sigma']:.1f} % within {n} sigma" for n in (1, 2))
    yield f"  {within} (normal errors: 68.3 and 95.4)"
    yield from map(_coverage_line, energy.get("conformal", {}).values())
    yield from _ranking_note(energy)


def _stress_lines(metrics: dict[str, Any]) -> Iterable[str]:
    """Nothing where no structure has that label."""
    from ase.units import GPa

    if found := metrics["stress"]:
        mae, rmse = (f"{1000 * found[key]:.2f} meV/Å^3 ({found[key] / GPa:.3f} GPa)" for key in ("mae", "rmse"))
        yield f"stress: MAE {mae}, RMSE {rmse}, of {found['structures']:,} structures"


def _ranking_note(energy: dict[str, Any]) -> Iterable[str]:
    """Says so where sigma does not tell which energies are wrong."""
    found = energy["spearman"]
    if found is None:
        yield "note: sigma is the same for all energies: it ranks none of their errors"
    elif found < WEAK:
        low, high = energy["spearman_interval"]
        yield f"note: the ranking of energy errors is weak: {found:.2f} ({low:.2f} .. {high:.2f})"


def _energy(total: float, per_atom: float, sign: str = "") -> str:
    """An energy in eV or meV, and per atom."""
    large = abs(total) >= 1
    text = f"{total:{sign}.2f} eV" if large else f"{1000 * total:{sign}.1f} meV"
    return f"{text} ({1000 * per_atom:{sign}.2f} meV/atom)"


def _number(value: float | None, digits: int) -> str:
    return "undefined" if value is None else f"{value:.{digits}f}"


def _metric_line(label: str, metrics: dict[str, Any], key: str, digits: int, remark: str) -> str:
    """A metric with its interval, in columns."""
    low, high = (_number(value, digits) for value in metrics[f"{key}_interval"])
    interval = "" if metrics[key] is None else f"({low} .. {high})"
    return f"  {label:<19}{_number(metrics[key], digits):>7}  {interval:<20} {remark}"


def _ence_remark(metrics: dict[str, Any]) -> str:
    return f"floor {metrics['ence_floor']:.4f}, constant sigma {metrics['ence_constant_sigma']:.4f}"


def _coverage_line(coverage: dict[str, Any]) -> str:
    """Stated and observed coverage of one conformal bound."""
    stated = f"  bound at {100 * coverage['stated']:.0f} %"
    if coverage["observed"] is None:
        return f"{stated}: the calibration set is too small for it"
    return (
        f"{stated}: error <= {coverage['error_over_sigma']:.2f} sigma, observed in "
        f"{100 * coverage['observed']:.1f} % (± {100 * coverage['standard_error']:.1f})"
    )
