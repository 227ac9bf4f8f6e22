"""``adaptntk evaluate``"""

from adaptntk.evaluation import Evaluation, evaluate
from adaptntk.files import check_folder, make_folder, write_json, write_table
from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.models.protocol import check_species
from adaptntk.progress import Progress, silent
from adaptntk.report.figures import draw_evaluation
from adaptntk.uncertainty.load import load_fitted
from adaptntk.uncertainty.ntk import NTKUncertainty
from adaptntk.verbs.labels import STANDARD_KEYS, LabelKeys, PathLike
from adaptntk.verbs.score import announce


def evaluate_uncertainty(
    ntk: PathLike,
    test_file: PathLike,
    output: PathLike,
    model: PathLike | None = None,
    keys: LabelKeys = STANDARD_KEYS,
    device: str = "auto",
    batch_size: int = 16,
    seed: int = 0,
    memory_budget: int = DEFAULT_BUDGET,
    progress: Progress = silent,
) -> Evaluation:
    """``adaptntk evaluate``: metrics on labelled structures; writes JSON, a CSV table and a figure."""
    check_folder(output)
    uncertainty = load_fitted(ntk, model, device, memory_budget)
    test = keys.read(test_file)
    check_species(uncertainty.potential, test, str(test_file))
    if isinstance(uncertainty, NTKUncertainty):
        announce(uncertainty, test, memory_budget)
    evaluation = evaluate(uncertainty, test, str(test_file), batch_size, seed, progress)
    folder = make_folder(output)
    write_table(folder / "evaluation.csv", evaluation.columns)
    write_json(folder / "evaluation.json", evaluation.metrics)
    draw_evaluation(folder)
    return evaluation
