"""What a notebook shows of a value is one line, and no list of numbers."""

import pytest

from adaptntk.core.posterior import DualPosterior
from adaptntk.md.dynamics import MDSettings
from adaptntk.md.exploration import MDJob
from adaptntk.uncertainty.file import load_fitted
from adaptntk.uncertainty.registry import METHODS
from adaptntk.uncertainty.workbench import GivenModel
from tests.conftest import DATA_FILES


def test_what_holds_arrays_is_told_in_one_line(fitted, parts, tmp_path, features):
    pool, held = parts["pool"], fitted.features
    candidates = fitted.candidates(pool, store=tmp_path / "store")
    dual = DualPosterior.fit(features[0], features[2])
    shown = [
        fitted, fitted.calibration, fitted.method, fitted.method.state(), held, held.blocks, held.posterior, dual,
        fitted.score(pool), fitted.assess(pool), candidates, candidates.source, candidates.source.candidates,
        fitted.potential.predict(pool), fitted.potential.single_point(pool[0], gradient=True),
        GivenModel(pool, potential=fitted.potential), MDJob(pool[0], MDSettings(), 0, 0),
    ]  # fmt: skip
    for value in shown:
        text = repr(value)
        assert text.startswith(f"{type(value).__name__}(")
        assert len(text) < 400, text
        assert not any(part in text for part in ("\n", "tensor(", "array(")), text
    blocks = "TensorBlocks(tensor=float64[40, 1, 788], asked=1)"
    assert repr(held.blocks) == blocks
    assert blocks in repr(held)
    assert repr(fitted) == (
        "Fitted(method=NTK(...), calibration=Calibration(...), train_hashes=<tuple of 40>,"
        " calibration_hashes=<tuple of 30>, learnt=Learnt(...))"
    )


OLD = {path.stem: path for path in (DATA_FILES / "old_formats").glob("*.uq")}


@pytest.mark.parametrize("name", sorted(OLD))
def test_every_method_is_told_in_one_line(name):
    assert name in METHODS
    method = load_fitted(OLD[name], device="cpu").method
    assert len(repr(method)) < 320
    assert not any(part in repr(method) for part in ("\n", "tensor(", "array("))
