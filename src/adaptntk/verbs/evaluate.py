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
        from adaptntk.evaluation import KCAL_PER_MOL

        metrics = self.metrics
        force, alone = metrics["force_rmse"], metrics["control_predicted_energy_spearman"]
        yield (
            f"{metrics['structures']:,} structures: force RMSE {force:.4f} eV/Å ({force / KCAL_PER_MOL:.2f} "
            f"kcal/mol/Å), energy MAE {1000 * metrics['energy_mae_per_atom']:.2f} meV/atom"
        )
        floor = f"floor {metrics['ence_floor']:.4f}, constant sigma {metrics['ence_constant_sigma']:.4f}"
        for label, key, digits, remark in (
            ("Spearman", "spearman", 3, f"predicted energy alone: {alone:.3f}"),
            ("Pearson, sqrt U", "pearson", 3, f"of U itself: {metrics['pearson_of_variance']:.3f}"),
            ("AURC_n", "aurc_n", 3, "0 perfect ranking, 1 chance"),
            ("ENCE", "ence", 4, floor),
            ("ENCE, cross-fitted", "ence_cross_fitted", 4, "as in the paper"),
        ):
            low, high = metrics[f"{key}_interval"]
            interval = f"({low:.{digits}f} .. {high:.{digits}f})"
            yield f"  {label:<19}{metrics[key]:>7.{digits}f}  {interval:<20} {remark}"
        if metrics["spearman"] is None or metrics["spearman"] <= alone:
            yield "note: the score ranks these structures no better than the predicted energy alone does"
        yield from map(_coverage_line, metrics["conformal"].values())
        yield size_line(metrics["correlation_with_size"])
        yield f"wrote {self.output}/evaluation.json, .csv and .png"


@verb(EvaluateSettings)
def evaluate(settings: EvaluateSettings, show: Show) -> EvaluateReport:
    """Compare the uncertainty with the true errors of the model on labelled structures.

    Writes evaluation.json, evaluation.csv and evaluation.png.
    """
    from adaptntk.report.figures import draw_evaluation
    from adaptntk.uncertainty.evaluate import evaluate as evaluate_fitted

    check_folder(settings.output)
    fitted, name = settings.load(), str(settings.test)
    test = settings.open(settings.test, fitted, labelled=True)
    fitted.announce(test, kept=False)
    evaluation = evaluate_fitted(fitted, test, name, settings.batch_size, settings.seed, show.progress)
    folder = make_folder(settings.output)
    write_table(folder / "evaluation.csv", evaluation.columns)
    write_json(folder / "evaluation.json", evaluation.metrics)
    draw_evaluation(folder)
    return EvaluateReport(evaluation, settings.output)


def _coverage_line(coverage: dict[str, Any]) -> str:
    """Stated and observed coverage of one conformal bound."""
    stated = f"conformal bound at {100 * coverage['stated']:.0f} %"
    if coverage["observed"] is None:
        return f"{stated}: the calibration set is too small for it"
    return (
        f"{stated}: error <= {coverage['error_over_sigma']:.2f} sigma, observed in "
        f"{100 * coverage['observed']:.1f} % (± {100 * coverage['standard_error']:.1f})"
    )
