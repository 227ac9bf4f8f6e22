"""The one way to an uncertainty: what is checked, for every method."""

import shutil

import numpy as np
import pytest
from ase import Atoms

from adaptntk.data.structures import ENERGY, FORCES, structure_hash
from adaptntk.errors import InputError
from adaptntk.evaluation import summarise_errors
from adaptntk.models.registry import load_potential
from adaptntk.training.limits import Point
from adaptntk.training.record import SetErrors, TrainingRecord, training_record_file, write_training_record
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.folder_workbench import FolderWorkbench
from adaptntk.uncertainty.registry import METHODS
from adaptntk.uncertainty.workbench import GivenModel
from tests.uncertainty.conftest import OPTIONS, RECIPE


def in_unit(potential, frames, factor):
    """Labels against a model that predicts well: here its own forces, times a factor."""
    wrong = [atoms.copy() for atoms in frames]
    for atoms, forces in zip(wrong, potential.predict(frames).forces, strict=True):
        atoms.arrays[FORCES] = forces * factor
    return wrong


@pytest.mark.parametrize(("unit", "factor"), [("kcal/mol", 23.06), ("kJ/mol", 96.5), ("Hartree/Bohr", 1 / 51.42)])
def test_labels_in_other_units_are_noticed(trained, parts, unit, factor):
    bench = GivenModel(parts["train"], in_unit(trained, parts["valid"], factor), potential=trained)
    with pytest.raises(InputError, match=rf"validation set: .* look like {unit}"):
        fit(bench)


@pytest.mark.parametrize("name", METHODS)
def test_no_method_takes_labels_in_kcal(name, workbench, parts, tmp_path):
    """Nor does any train a network before that is noticed."""
    wrong = in_unit(workbench.member(0), parts["valid"], 23.06)
    given = {"member-0": workbench.folder / "member-0.model"}
    bench = FolderWorkbench(parts["train"], wrong, 1, folder=tmp_path, recipe=RECIPE, device="cpu", given=given)
    with pytest.raises(InputError, match="look like kcal/mol"):
        fit(bench, name, OPTIONS.get(name))
    assert not list(tmp_path.glob("*.model"))


@pytest.mark.parametrize("name", ["ntk", "distance"])
def test_a_calibration_set_in_kcal(name, given, trained, parts):
    with pytest.raises(InputError, match=r"calibration set: .* look like kcal/mol"):
        fit(given, name, calibration=in_unit(trained, parts["test"], 23.06))


@pytest.mark.parametrize("name", ["ntk", "last_layer", "energy"])
def test_a_separate_calibration_set(name, given, parts):
    own, other = fit(given, name), fit(given, name, calibration=parts["test"])
    assert len(other.calibration.ratios) == len(parts["test"])
    assert other.calibration.forces != own.calibration.forces
    assert other.calibration_hashes == tuple(structure_hash(a) for a in (*parts["valid"], *parts["test"]))
    expected = fit(given, name).score(parts["pool"]).variance
    assert np.allclose(other.score(parts["pool"]).variance, expected, rtol=1e-6)


def test_what_was_seen_is_remembered(fitted, parts):
    assert fitted.train_hashes == tuple(structure_hash(atoms) for atoms in parts["train"])
    assert fitted.calibration_hashes == tuple(structure_hash(atoms) for atoms in parts["valid"])


def test_without_a_validation_set_nothing_is_calibrated(trained, parts):
    fitted = fit(GivenModel(parts["train"], potential=trained))
    assert fitted.calibration is None
    assert fitted.score(parts["pool"]).sigma is None
    assert fitted.calibration_hashes == ()


def test_the_same_fit_twice(given, parts):
    """A generator of its own: what was fitted before decides nothing."""
    first = fit(given, "ntk", {"criterion": "nll"})
    fit(given, "last_layer")
    again = fit(given, "ntk", {"criterion": "nll"})
    assert again.features.ridge == first.features.ridge
    assert np.array_equal(again.calibration.ratios, first.calibration.ratios)


def test_training_labels_are_needed_only_where_they_are_used(trained, parts):
    bare = [Atoms(atoms.numbers, positions=atoms.positions) for atoms in parts["train"]]
    bench = GivenModel(bare, parts["valid"], potential=trained)
    fit(bench, "last_layer")
    with pytest.raises(InputError, match="training set, frame 0: no REF_energy"):
        fit(bench, "evidential")


def test_bad_sets_are_refused(trained, parts):
    def attempt(train, valid=(), calibration=None, names=None):
        fit(GivenModel(train, valid, potential=trained), calibration=calibration, names=names)

    train, valid = parts["train"], parts["valid"]
    with pytest.raises(InputError, match="training set is empty"):
        attempt([])
    with pytest.raises(InputError, match="validation set, frame 30 is the same structure as training set, frame 3"):
        attempt(train, [*valid, train[3]])
    with pytest.raises(InputError, match="calibration set, frame 40 is the same structure as training set, frame 3"):
        attempt(train, valid, [*parts["test"], train[3]])
    for count in (1, 3, 9):
        with pytest.raises(InputError, match="at least 10 labelled structures"):
            attempt(train, valid[:count])
        with pytest.raises(InputError, match="at least 10 labelled structures"):
            attempt(train, valid, parts["test"][:count])
    unlabelled = valid[0].copy()
    del unlabelled.info[ENERGY]
    with pytest.raises(InputError, match="validation set, frame 11: no label 'REF_energy'"):
        attempt(train, [*valid[1:12], unlabelled])
    with pytest.raises(InputError, match=r"v\.xyz, frame 11: no label 'REF_energy'"):
        attempt(train, [*valid[1:12], unlabelled], names={"valid": "v.xyz"})
    with pytest.raises(InputError, match="does not know the element"):
        attempt([*train, Atoms("Fe")], valid)


def a_record(model, exponent):
    """Of a training whose validation error fell with that power of the steps."""
    path = tuple(Point(100 * k, 0.1 * k**-exponent) for k in range(1, 21))
    errors = SetErrors(40, 0.1, 0.01)
    record = TrainingRecord(settings={}, seed=0, steps=2000, ended="steps", path=path, train=errors, valid=errors)
    write_training_record(model, record)


def test_how_far_the_model_came_is_measured(trained, parts, fitted):
    predicted = (trained.predict(parts[name]) for name in ("train", "valid"))
    train, valid = (
        summarise_errors(p, parts[n]).force_rmse for p, n in zip(predicted, ("train", "valid"), strict=True)
    )
    assert (fitted.learnt.train, fitted.learnt.valid) == pytest.approx((train, valid), rel=1e-4)
    assert fitted.learnt.structures == len(parts["valid"])


def test_the_record_of_the_training_says_what_more_steps_would_bring(trained, parts, tmp_path):
    model = shutil.copy(trained.source, tmp_path / "ethanol.model")
    bench = GivenModel(parts["train"], parts["valid"], potential=load_potential(model, "cpu"))
    assert fit(bench).learnt.gain is None
    a_record(model, exponent=1.0)
    learnt = fit(bench, "last_layer").learnt
    assert learnt.gain == pytest.approx(0.5)
    assert learnt.limit().by == "steps"


def test_without_labels_nothing_is_said_of_the_training(trained, parts, tmp_path):
    bare = [Atoms(atoms.numbers, atoms.positions) for atoms in parts["train"]]
    assert fit(GivenModel(bare, parts["valid"], potential=trained)).learnt is None
    assert fit(GivenModel(parts["train"], potential=trained)).learnt is None


def test_a_damaged_record_is_told_in_one_line(trained, parts, tmp_path):
    model = shutil.copy(trained.source, tmp_path / "ethanol.model")
    training_record_file(model).write_text("{")
    bench = GivenModel(parts["train"], parts["valid"], potential=load_potential(model, "cpu"))
    with pytest.raises(InputError, match=r"ethanol.model.training.json: cannot be read.*remove it$"):
        fit(bench)
