"""Scores and sigmas of copies of a structure: what they say must not depend on how much of it there is."""

import ase.build
import ase.io
import numpy as np
import pytest
from typer.testing import CliRunner

from adaptntk.cli.app import app
from adaptntk.data.structures import ENERGY, FORCES, read_structures, write_structures
from adaptntk.errors import InputError
from adaptntk.uncertainty.file import load_fitted, save_fitted
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.workbench import GivenModel
from tests.conftest import DATA_FILES, tiny_network

FEATURES = ["ntk", "last_layer"]
# Dropout draws another mask for every atom, and random numbers mean nothing.
INTENSIVE = [*FEATURES, "ensemble", "swag", "evidential", "distance", "energy", "error_model"]


def copies(*frames):
    """Structures in one frame, too far from one another to interact; labels too, where all have them."""
    together = frames[0].copy()
    for number, frame in enumerate(frames[1:], start=1):
        moved = frame.copy()
        moved.positions += 30.0 * number
        together += moved
    if all(ENERGY in frame.info for frame in frames):
        together.info[ENERGY] = sum(frame.info[ENERGY] for frame in frames)
    return together


def training_sets(parts):
    """Of one size, and of several."""
    train, valid = parts["train"], parts["valid"]
    pairs = [copies(*pair) for pair in zip(train[:10:2], train[1:10:2], strict=True)]
    valid_pairs = [copies(*pair) for pair in zip(valid[:10:2], valid[1:10:2], strict=True)]
    without_an_atom = [atoms[1:] for atoms in train[10:16]]
    return {"one": (train, valid), "many": (train[10:] + pairs + without_an_atom, valid[10:] + valid_pairs)}


@pytest.fixture(scope="module")
def molecules(tiny, parts):
    """Every method with features, for training sets of one size and of several."""
    benches = {kind: GivenModel(*sets, potential=tiny) for kind, sets in training_sets(parts).items()}
    return {(name, kind): fit(bench, name) for name in FEATURES for kind, bench in benches.items()}


@pytest.mark.parametrize("kind", ["one", "many"])
@pytest.mark.parametrize("name", FEATURES)
def test_equal_copies(name, kind, molecules, parts):
    fitted, frames = molecules[name, kind], parts["pool"][:5]
    one = fitted.score(frames)
    assert one.sigma.std() > 1e-3 * one.sigma.mean() or name == "last_layer"
    for number in (2, 3):
        many = fitted.score([copies(*[atoms] * number) for atoms in frames])
        assert many.variance == pytest.approx(one.variance, rel=1e-6)
        assert many.sigma == pytest.approx(one.sigma, rel=1e-6)
        assert many.energy_sigma == pytest.approx(number * one.energy_sigma, rel=1e-6)


@pytest.mark.parametrize("kind", ["one", "many"])
@pytest.mark.parametrize("name", FEATURES)
def test_different_copies(name, kind, molecules, parts):
    """Never more uncertain than the more uncertain one; the energy never more than both added up."""
    fitted, first, second = molecules[name, kind], parts["pool"][:10], parts["pool"][10:20]
    alone = [fitted.score(frames) for frames in (first, second)]
    together = fitted.score([copies(*pair) for pair in zip(first, second, strict=True)])
    assert (together.sigma <= np.maximum(*(scores.sigma for scores in alone)) * (1 + 1e-9)).all()
    sigmas = np.array([scores.energy_sigma for scores in alone])
    floor = 18 * fitted.calibration.energy.b
    assert (together.energy_sigma <= sigmas.sum(0) * (1 + 1e-9)).all()
    assert (together.energy_sigma >= floor * (1 - 1e-9)).all()


@pytest.mark.parametrize("kind", ["one", "many"])
@pytest.mark.parametrize("name", FEATURES)
def test_supercells(name, kind):
    rng = np.random.default_rng(0)

    def rattled(count, repeat):
        cell = ase.build.bulk("Si")
        frames = [cell.repeat(repeat) for _ in range(count)]
        for atoms in frames:
            atoms.rattle(0.1, rng=rng)
        return frames

    potential, truth = (tiny_network(seed=seed, numbers=(14,)) for seed in (0, 1))
    larger = (1, 1, 1) if kind == "one" else (2, 1, 1)
    train, valid, frames = rattled(12, 1) + rattled(4, larger), rattled(12, 1) + rattled(4, larger), rattled(4, 1)
    predicted = truth.predict(valid)
    for atoms, energy, forces in zip(valid, predicted.energies, predicted.forces, strict=True):
        atoms.info[ENERGY], atoms.arrays[FORCES] = energy, forces
    fitted = fit(GivenModel(train, valid, potential=potential), name)
    one = fitted.score(frames)
    for repeat in ((2, 1, 1), (2, 2, 1)):
        many = fitted.score([atoms.repeat(repeat) for atoms in frames])
        assert many.variance == pytest.approx(one.variance, rel=1e-6)
        assert many.sigma == pytest.approx(one.sigma, rel=1e-6)
        assert many.energy_sigma == pytest.approx(np.prod(repeat) * one.energy_sigma, rel=1e-6)


@pytest.mark.parametrize("name", INTENSIVE)
def test_copies_by_every_method(name, fit_by_name, parts):
    """In float32."""
    fitted, frames = fit_by_name(name), parts["pool"][:5]
    one, two = (fitted.score(each) for each in (frames, [copies(atoms, atoms) for atoms in frames]))
    assert two.sigma == pytest.approx(one.sigma, rel=2e-3)
    assert two.energy_sigma == pytest.approx(2 * one.energy_sigma, rel=2e-3)


def test_copies_by_random_masks(fit_by_name, parts):
    fitted, frames = fit_by_name("dropout"), parts["pool"]
    one, two = (fitted.score(each) for each in (frames, [copies(atoms, atoms) for atoms in frames]))
    assert two.sigma.mean() == pytest.approx(one.sigma.mean(), rel=0.2)


@pytest.mark.parametrize("kind", ["one", "many"])
def test_copies_through_files_and_the_command_line(kind, trained, parts, tmp_path):
    train, valid = training_sets(parts)[kind]
    frames = [copies(*[atoms] * number) for atoms in parts["pool"][:3] for number in (1, 2)]
    for name, part in (("train", train), ("valid", valid), ("pool", frames)):
        write_structures(tmp_path / f"{name}.xyz", part)
    train_file, valid_file, pool, ntk, output = (
        tmp_path / f"{name}.xyz" for name in ("train", "valid", "pool", "a", "s")
    )
    ntk = ntk.with_suffix(".ntk")
    fitting = ["fit", trained.source, "--train", train_file, "--valid", valid_file, "-o", ntk, "--dtype", "float64"]
    for arguments in (fitting, ["score", ntk, pool, "-o", output]):
        assert CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False).exit_code == 0
    scored = [atoms.info for atoms in ase.io.read(output, ":")]
    for one, two in zip(scored[::2], scored[1::2], strict=True):
        for key, factor in (("ntk_variance", 1), ("forces_uncertainty", 1), ("energy_uncertainty", 2)):
            assert two[key] == pytest.approx(factor * one[key], rel=1e-6)


@pytest.mark.parametrize("name", FEATURES)
def test_one_size_is_a_change_of_units(name, tiny, parts):
    """The paper's features of the total energy give the same sigmas and picks."""
    bench = GivenModel(parts["train"], parts["valid"], potential=tiny)
    ours, paper = (fit(bench, name, {"normalise": normalise}) for normalise in ("auto", "none"))
    found, expected = (fitted.score(parts["pool"]) for fitted in (ours, paper))
    assert 81 * found.variance == pytest.approx(expected.variance, rel=1e-6)
    assert found.sigma == pytest.approx(expected.sigma, rel=1e-5)
    assert found.energy_sigma == pytest.approx(expected.energy_sigma, rel=1e-5)
    assert ours.select(parts["pool"], 10).indices == paper.select(parts["pool"], 10).indices


@pytest.mark.parametrize("normalise", ["none", "sqrt_n"])
@pytest.mark.parametrize("name", FEATURES)
def test_features_of_the_total_energy_speak_of_known_sizes_only(name, normalise, tiny, parts, tmp_path):
    train, valid = training_sets(parts)["many"]
    fitted = fit(GivenModel(train, valid, potential=tiny), name, {"normalise": normalise})
    save_fitted(fitted, tmp_path / "total.ntk")
    small, dimer, trimer = parts["pool"][0][1:], copies(*parts["pool"][:2]), copies(*parts["pool"][:3])
    why = "on structures of 8, 9, 18 atoms: cannot speak of 27; fit with --normalise per_atom"
    for each in (fitted, load_fitted(tmp_path / "total.ntk", potential=tiny)):
        known, unknown = [small, parts["pool"][0], dimer], [parts["pool"][0], trimer]
        assert len(each.score(known).variance) == len(each.assess(known).variance) == 3
        for ask in (each.score, each.assess, each.candidates):
            with pytest.raises(InputError, match=f"frame 1: .*--normalise {normalise}. {why}"):
                ask(unknown)
        with pytest.raises(InputError, match=why):
            each.observe(trimer)
        with pytest.raises(InputError, match=why):
            each.score(unknown, store=tmp_path / "store")
    with pytest.raises(InputError, match=r"validation set, frame 20: .* on structures of 9 atoms: cannot speak of 18"):
        fit(GivenModel(parts["train"], valid, potential=tiny), name, {"normalise": normalise})


def test_files_that_do_not_name_their_sizes_are_trusted_with_a_warning(caplog):
    with caplog.at_level("WARNING"):
        fitted = load_fitted(DATA_FILES / "old_formats" / "ntk-format-2.ntk", device="cpu")
    assert "scores hold for those it was trained on" in caplog.text
    assert fitted.features.feature_map.normalise == "none"
    frames = read_structures(DATA_FILES / "old_formats" / "pool.xyz")
    assert len(fitted.score([copies(*frames[:2])]).variance) == 1
