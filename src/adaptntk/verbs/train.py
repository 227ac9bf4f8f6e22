"""``adaptntk train``"""

from collections.abc import Callable

from adaptntk.data.splits import check_disjoint
from adaptntk.files import check_writable
from adaptntk.training.loop import PRESETS, EpochReport, Recipe, Trained, train
from adaptntk.verbs.labels import STANDARD_KEYS, LabelKeys, PathLike


def train_model(
    train_file: PathLike,
    valid_file: PathLike,
    output: PathLike,
    recipe: Recipe = PRESETS["small"],
    keys: LabelKeys = STANDARD_KEYS,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "float32",
    resume: bool = False,
    on_epoch: Callable[[EpochReport], None] = lambda report: None,
) -> Trained:
    """``adaptntk train``: train a MACE network on labelled files and write a stock ``.model``."""
    check_writable(output)
    sets = keys.read(train_file), keys.read(valid_file)
    check_disjoint({f"--train {train_file}": sets[0], f"--valid {valid_file}": sets[1]})
    return train(*sets, output, recipe, seed, device, dtype, resume, on_epoch)
