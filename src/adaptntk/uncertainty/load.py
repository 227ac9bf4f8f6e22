"""Reading what ``adaptntk fit`` wrote, whichever method it was."""

from pathlib import Path

from adaptntk.memory import DEFAULT_BUDGET
from adaptntk.uncertainty.calibrated import CalibratedMethod, load_method
from adaptntk.uncertainty.header import read_file
from adaptntk.uncertainty.ntk import NTKUncertainty
from adaptntk.uncertainty.ntk_file import load_uncertainty

Fitted = NTKUncertainty | CalibratedMethod


def load_fitted(
    path: str | Path, model: str | Path | None = None, device: str = "auto", memory_budget: int = DEFAULT_BUDGET
) -> Fitted:
    """The fitted uncertainty in a file, with its model from where it was, or from ``model``."""
    if "method" in read_file(Path(path))[0]:
        return load_method(path, device, model)
    return load_uncertainty(path, model=model, device=device, memory_budget=memory_budget)
