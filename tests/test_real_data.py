"""Published ab-initio data, where they are present: other keys, periodic cells, mixed sizes, real units."""

import dataclasses

import numpy as np
import pytest

from adaptntk import verbs
from adaptntk.data.published import load_rmd17
from adaptntk.data.splits import split_structures
from adaptntk.data.structures import read_structures, write_structures
from adaptntk.models.mace.family import TINY
from adaptntk.training.loop import train
from adaptntk.training.recipe import PRESETS
from adaptntk.uncertainty.evaluate import evaluate
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.workbench import GivenModel
from tests.conftest import TINY_RECIPE

QUICK = dataclasses.replace(PRESETS["small"], epochs=30)


@pytest.mark.long
def test_aspirin(real_data, tmp_path):
    frames = load_rmd17("aspirin", real_data)
    parts = split_structures(frames, {"train": 100, "valid": 60, "test": 200}, seed=0)
    trained = train(parts["train"], parts["valid"], tmp_path / "aspirin.model", QUICK, device="cpu")
    fitted = fit(GivenModel(parts["train"], parts["valid"], potential=trained.potential))
    metrics = evaluate(fitted, parts["test"]).metrics
    assert metrics["spearman"] > 0.3
    assert metrics["aurc_n"] < 0.8
    for coverage in metrics["conformal"].values():
        assert abs(coverage["observed"] - coverage["stated"]) < 4 * coverage["standard_error"]


def test_acetylacetone_with_plain_keys(real_data, tmp_path):
    frames = read_structures(real_data / "acac" / "train_300K.xyz", "energy", "forces", labelled=True)
    parts = split_structures(frames, {"train": 60, "valid": 40}, seed=0)
    for name, part in parts.items():
        write_structures(tmp_path / f"{name}.xyz", part)
    model, ntk = tmp_path / "acac.model", tmp_path / "acac.ntk"
    files = {name: tmp_path / f"{name}.xyz" for name in parts}
    verbs.train(**files, output=model, preset="tiny", epochs=6, device="cpu")
    verbs.fit(**files, model=model, output=ntk)
    keys = {"energy_key": "energy", "forces_key": "forces"}
    test = real_data / "acac" / "test_MD_300K.xyz"
    evaluation = verbs.evaluate(ntk=ntk, test=test, output=tmp_path / "report", **keys)
    assert evaluation.metrics["structures"] == 650
    assert np.isfinite(evaluation.metrics["spearman"])


def test_periodic_silicon_of_mixed_sizes(real_data, tmp_path):
    frames = read_structures(real_data / "silicon" / "Si_training.xyz", labelled=True)
    parts = split_structures(frames, {"train": 60, "valid": 40, "pool": 80}, seed=0)
    recipe = dataclasses.replace(TINY_RECIPE, architecture=dataclasses.replace(TINY, cutoff=5.0), epochs=2)
    for name, part in parts.items():
        write_structures(tmp_path / f"{name}.xyz", part)
    model, ntk = tmp_path / "si.model", tmp_path / "si.ntk"
    train(parts["train"], parts["valid"], model, recipe, device="cpu")
    fitted = verbs.fit(model=model, train=tmp_path / "train.xyz", valid=tmp_path / "valid.xyz", output=ntk).fitted
    assert fitted.features.feature_map.normalise == "per_atom"
    files = {"pool": tmp_path / "pool.xyz", "output": tmp_path / "batch.xyz"}
    report = verbs.select(ntk=ntk, **files, count=12, per_group_max=("config_type", 4))
    groups = [atoms.info["config_type"] for atoms in report.batch]
    assert max(groups.count(group) for group in groups) <= 4
    assert all(atoms.pbc.all() for atoms in report.batch)


@pytest.mark.parametrize("name", ["rmd17/rmd17_aspirin.npz", "acac/train_300K.xyz", "silicon/Si_test.xyz"])
def test_data_are_where_the_page_says(real_data, name):
    assert (real_data / name).is_file()
