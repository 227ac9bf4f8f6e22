"""The whole way on aspirin of the revised MD17 data set: 400 training, 100 validation, 1,000 test structures.

Needs the data set (see docs/data.md). An interrupted run goes on where it stopped.

    python benchmarks/aspirin.py WORK_FOLDER
"""

import argparse
from pathlib import Path

from adaptntk import load_rmd17, split_structures, verbs, write_structures
from benchmarks.record import save_result

SIZES = {"train": 400, "valid": 100, "test": 1000, "pool": 2000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in split_structures(load_rmd17("aspirin"), SIZES, seed=0).items():
        write_structures(folder / f"{name}.xyz", part)
    train, valid, model, ntk = (folder / n for n in ("train.xyz", "valid.xyz", "aspirin.model", "aspirin.ntk"))
    trained = verbs.train(train=train, valid=valid, output=model, resume=True).trained
    fitted = verbs.fit(model=model, train=train, valid=valid, output=ntk).fitted
    evaluation = verbs.evaluate(ntk=ntk, test=folder / "test.xyz", output=folder / "report")
    result = {
        "data": "rMD17 aspirin, 400 training, 100 validation, 1,000 test structures, split seed 0",
        "preset": "small",
        "validation_force_rmse": trained.force_rmse,
        "ridge": vars(fitted.ridge),
        "sketch_check": vars(fitted.sketch_advice),
        "metrics": evaluation.metrics,
    }
    print(f"Spearman {evaluation.metrics['spearman']:.3f}")
    print(f"wrote {save_result(Path(__file__).parent / 'results', 'aspirin', result)}")


if __name__ == "__main__":
    main()
