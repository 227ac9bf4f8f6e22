"""``python -m benchmarks aspirin``: the whole way on aspirin of the revised MD17 data set.

200 training, 100 validation and 1,000 test structures. Needs the data set (see docs/data.md). An interrupted run goes
on where it stopped.
"""

from adaptntk import load_rmd17, split_structures, verbs, write_structures
from adaptntk.files import make_folder
from benchmarks.harness.record import save_record
from benchmarks.settings import Aspirin

PRESET = "standard"
SIZES = {"train": 200, "valid": 100, "test": 1000, "pool": 2000}


def run(settings: Aspirin) -> str:
    """Train, fit, evaluate; writes ``aspirin.json``."""
    folder = make_folder(settings.output)
    for name, part in split_structures(load_rmd17("aspirin"), SIZES, seed=0).items():
        write_structures(folder / f"{name}.xyz", part)
    train, valid, model, ntk = (folder / n for n in ("train.xyz", "valid.xyz", "aspirin.model", "aspirin.ntk"))
    trained = verbs.train(train=train, valid=valid, output=model, preset=PRESET, resume=True).trained
    features = verbs.fit(model=model, train=train, valid=valid, output=ntk).fitted.features
    assert features is not None
    evaluation = verbs.evaluate(ntk=ntk, test=folder / "test.xyz", output=folder / "report")
    result = {
        "data": "rMD17 aspirin, 200 training, 100 validation, 1,000 test structures, split seed 0",
        "preset": PRESET,
        "validation_force_rmse": trained.force_rmse,
        "ridge": vars(features.ridge),
        "sketch_check": vars(features.sketch_check),
        "metrics": evaluation.metrics,
    }
    path = save_record(folder, "aspirin", result)
    return f"Spearman {evaluation.metrics['spearman']:.3f}\nwrote {path}"
