"""Uncertainties of single atoms, from the committee."""

from dataclasses import replace

import numpy as np
import pytest
from ase.io import read
from ase.md.verlet import VelocityVerlet

from adaptntk.core.calibration import Calibration, fit_variance
from adaptntk.core.question import ENERGY, QUESTIONS, force_scores
from adaptntk.data.structures import read_structures, write_structures
from adaptntk.errors import InputError
from adaptntk.evaluation import atom_errors, atom_ranking, force_errors
from adaptntk.md.calculator import UncertaintyCalculator
from adaptntk.md.dynamics import MDSettings, run_md, watch
from adaptntk.md.rules import AtomErrorLevel
from adaptntk.uncertainty.evaluate import evaluate
from adaptntk.uncertainty.file import load_fitted, save_fitted
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.method import OF_ATOMS
from adaptntk.verbs import score, select
from adaptntk.verbs.fit import FitReport


@pytest.fixture(scope="module")
def joint(given):
    return fit(given, "ntk", {"features": "joint", "force_rows": 4, "dim": 512, "committee": 8})


def test_the_scale_of_atoms_is_that_of_their_errors(joint, parts):
    scores = joint.score_atoms(parts["valid"])
    errors = atom_errors(joint.potential.predict(parts["valid"]).forces, parts["valid"])
    expected = fit_variance(np.concatenate(scores.variance), np.concatenate(errors))
    assert joint.calibration.atoms.a == pytest.approx(expected.a, rel=1e-3)
    assert joint.calibration.atoms.b == pytest.approx(expected.b, rel=1e-3)
    assert len(joint.calibration.atom_ratios) == sum(map(len, parts["valid"]))
    for sigma, variance in zip(scores.sigma, scores.variance, strict=True):
        assert np.allclose(sigma, expected.sigma(variance), rtol=1e-3)


# In float32 a difference of forces is right to a hundredth or so; `test_committee` has the same in float64, exactly.
def test_atoms_turn_and_change_places_with_their_structure(joint, parts):
    atoms = parts["pool"][0]
    before = joint.score_atoms([atoms]).sigma[0]
    turned = atoms.copy()
    turned.rotate(67, (1, 2, 3))
    assert np.allclose(joint.score_atoms([turned]).sigma[0], before, rtol=3e-2)
    order = np.random.default_rng(0).permutation(len(atoms))
    assert np.allclose(joint.score_atoms([atoms[order]]).sigma[0], before[order], rtol=3e-2)


def test_structures_are_scored_alike_alone_and_together(joint, parts):
    together = joint.score_atoms(parts["pool"][:5]).variance
    for atoms, expected in zip(parts["pool"][:5], together, strict=True):
        assert np.allclose(joint.score_atoms([atoms]).variance[0], expected, rtol=5e-2)


def test_a_displaced_atom_is_the_most_uncertain(joint, parts):
    rng, found = np.random.default_rng(0), 0
    for atoms in parts["pool"][:20]:
        moved, place = atoms.copy(), int(rng.integers(len(atoms)))
        # Outwards, so that it meets no other.
        outwards = atoms.positions[place] - atoms.positions.mean(axis=0)
        moved.positions[place] += 0.5 * outwards / np.linalg.norm(outwards)
        before, after = joint.score_atoms([atoms, moved]).variance
        found += int(np.argmax(after / before)) == place
    assert found >= 14


def test_a_file_keeps_the_scale(joint, parts, tmp_path):
    save_fitted(joint, tmp_path / "joint.ntk")
    loaded = load_fitted(tmp_path / "joint.ntk", potential=joint.potential)
    assert loaded.calibration.atoms == joint.calibration.atoms
    assert np.array_equal(loaded.calibration.atom_ratios, joint.calibration.atom_ratios)
    same = zip(loaded.score_atoms(parts["pool"][:3]).sigma, joint.score_atoms(parts["pool"][:3]).sigma, strict=True)
    assert all(np.allclose(a, b, rtol=1e-6) for a, b in same)


def test_members_differ_as_much_as_they_are_wrong(joint, parts):
    frames = parts["valid"]
    members, predicted = joint.members(frames), joint.potential.predict(frames)
    assert members.energies.shape == (len(frames), 8)
    spread = [
        np.sqrt(np.mean((m - f) ** 2, axis=(0, 2))) for m, f in zip(members.forces, predicted.forces, strict=True)
    ]
    scale = joint.calibration.atoms
    for rms, variance in zip(spread, joint.score_atoms(frames).variance, strict=True):
        assert np.allclose(rms, np.sqrt(scale.a * variance), rtol=1e-2)


def test_without_a_committee_nothing_is_said_of_atoms(paper, parts):
    for ask in (paper.score_atoms, paper.members):
        with pytest.raises(InputError, match="without a committee: fit with --committee 16"):
            ask(parts["pool"])
    with pytest.raises(InputError, match="without a committee"):
        UncertaintyCalculator(paper, per_atom=True)
    assert evaluate(paper, parts["pool"]).metrics["atoms"] is None


def test_the_calculator_tells_of_atoms(joint, parts):
    atoms = parts["pool"][0].copy()
    atoms.calc = UncertaintyCalculator(joint, per_atom=True)
    atoms.get_forces()
    assert np.allclose(atoms.calc.results[OF_ATOMS], joint.score_atoms([atoms]).sigma[0], rtol=1e-6)
    frame = atoms.calc.frame(atoms)
    assert np.array_equal(frame.arrays[OF_ATOMS], atoms.calc.results[OF_ATOMS])
    seldom = UncertaintyCalculator(joint, every=None, per_atom=True)
    assert OF_ATOMS not in seldom.results
    assert len(seldom.get_property(OF_ATOMS, atoms)) == len(atoms)


def test_an_evaluation_has_atoms_and_both_controls(joint, parts):
    found = evaluate(joint, parts["pool"]).metrics
    atoms = found["atoms"]
    assert atoms["spearman"]["within"] > atoms["control_force_size_spearman"]["within"]
    bound = atoms["conformal"]["0.9"]
    for key in ("observed", "all_observed"):  # of one atom, and of all of a structure
        assert abs(bound[key] - 0.9) < 3 * bound["standard_error"]
    assert bound["all_error_over_sigma"] > bound["error_over_sigma"]
    assert {"control_predicted_energy_spearman", "control_force_size_spearman"} <= found.keys()


def test_fit_tells_the_scale_of_atoms(joint, tmp_path):
    (line,) = [line for line in FitReport(joint, tmp_path / "joint.ntk").lines() if line.startswith("atoms")]
    assert f"from {len(joint.calibration.atom_ratios)} atoms" in line
    assert f"{joint.calibration.atoms.a:.4g} v" in line


def test_the_verb_writes_a_number_for_each_atom(joint, parts, tmp_path):
    save_fitted(joint, tmp_path / "joint.ntk")
    write_structures(tmp_path / "pool.xyz", parts["pool"][:3])
    files = {"ntk": tmp_path / "joint.ntk", "structures": tmp_path / "pool.xyz", "output": tmp_path / "o.xyz"}
    score(**files, model=joint.potential.source, per_atom=True)
    for frame, sigma in zip(read(tmp_path / "o.xyz", ":"), joint.score_atoms(parts["pool"][:3]).sigma, strict=True):
        assert np.allclose(frame.arrays[OF_ATOMS], sigma, rtol=3e-2)


def test_atoms_are_calibrated_by_structures():
    """Nothing grades itself: with one structure's errors a hundred times larger, the other half's sigma meets them."""
    rng = np.random.default_rng(0)
    variances = [np.full(5, 1.0) for _ in range(10)]
    errors = [np.full(5, 0.1 if number else 10.0) for number in range(10)]
    empty = Calibration(None, None, np.zeros(0), np.ones(10))
    found = empty.with_atoms(variances, errors, rng)
    assert found.atom_ratios[-1] == pytest.approx(100, rel=1e-3)
    assert len(found.atom_ratios) == 50


def test_ranks_within_a_structure_and_over_all():
    errors = [np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 30.0])]
    scores = [np.array([1.0, 2.0, 3.0]), np.array([0.3, 0.2, 0.1])]
    found = atom_ranking(scores, errors)
    assert found["within"] == pytest.approx(0)
    assert found["over_all"] == pytest.approx(-0.77, abs=0.02)


def judged_by(fitted, question, parts):
    """The same uncertainty with another question."""
    frames = parts["valid"]
    found, errors = fitted.assess(frames), force_errors(fitted.potential.predict(frames).forces, frames)
    spread = fitted.method.committee.spread(frames).mean_forces
    asked = None if question == ENERGY else force_scores(question, found.variance, spread)
    rng = np.random.default_rng(0)
    calibration = Calibration.fit(found.variance, errors, np.full(len(errors), np.nan), rng, 1.0, question, asked)
    of_atoms = {name: getattr(fitted.calibration, name) for name in ("atoms", "atom_ratios", "worst_ratios")}
    return replace(fitted, calibration=replace(calibration, **of_atoms))


@pytest.mark.parametrize("question", QUESTIONS)
def test_forces_are_judged_by_the_question(joint, parts, tmp_path, question):
    fitted, pool = judged_by(joint, question, parts), parts["pool"][:6]
    scores, known = fitted.score(pool), fitted.calibration
    spread = fitted.method.committee.spread(pool).mean_forces
    expected = known.forces.sigma(force_scores(question, scores.variance, spread))
    assert np.allclose(scores.sigma, expected, rtol=5e-3)
    assert known.usual_sigma == pytest.approx(np.median(fitted.score(parts["valid"]).sigma), rel=1e-2)
    # Alone as together, from the calculator, among candidates, and from a file.
    _, alone = fitted.observe(pool[0], per_atom=True)
    assert alone.sigma[0] == pytest.approx(scores.sigma[0], rel=3e-2)
    assert np.allclose(alone.atoms.sigma[0], joint.score_atoms(pool[:1]).sigma[0], rtol=3e-2)
    candidates = fitted.candidates(pool)
    assert (candidates.scores.sigma is None) == (question != ENERGY)
    assert np.allclose(candidates.scores_of([2, 0]).sigma, scores.sigma[[2, 0]], rtol=3e-2)
    save_fitted(fitted, tmp_path / "asked.ntk")
    loaded = load_fitted(tmp_path / "asked.ntk", potential=fitted.potential)
    assert loaded.calibration.question == question
    assert np.array_equal(loaded.calibration.force_scores, known.force_scores)
    assert np.allclose(loaded.score(pool).sigma, scores.sigma, rtol=1e-4)


def test_parts_of_the_energy_have_an_uncertainty(joint, parts):
    """Changes of the parts add up to that of the whole, which the gradient tells exactly, and are far larger."""
    for changes in joint.method.committee.changes(parts["pool"][:3]):
        largest = np.abs(changes.atom_energies).max()
        assert np.allclose(changes.atom_energies.sum(axis=1), changes.energies, atol=0.05 * largest)
        assert largest > 3 * np.abs(changes.energies).max()
    scores = joint.score(parts["pool"][:3], per_atom=True)
    assert [len(sigma) for sigma in scores.atoms.energy_sigma] == [len(atoms) for atoms in parts["pool"][:3]]
    assert all((sigma > 0).all() for sigma in scores.atoms.energy_sigma)


def test_a_batch_by_the_worst_atoms(joint, parts, tmp_path):
    """One atom is displaced in some of the candidates, by so little that the whole structure hides it."""
    save_fitted(joint, tmp_path / "joint.ntk")
    pool = parts["pool"][:20]
    write_structures(tmp_path / "pool.xyz", pool)
    files = {"ntk": tmp_path / "joint.ntk", "pool": tmp_path / "pool.xyz", "output": tmp_path / "o.xyz"}
    options = {"model": joint.potential.source, "per_atom": "max", "count": 5}
    worst = np.array([sigma.max() for sigma in joint.score_atoms(read_structures(tmp_path / "pool.xyz")).sigma])
    report = select(**files, **options, rule="topb")
    assert report.selection.indices == np.argsort(-worst)[:5].tolist()
    assert np.allclose(report.selection.criteria, np.sort(worst**2)[::-1][:5], rtol=1e-2)
    # The sequential rule begins there, and then counts what the picks leave open.
    later = select(**files, **options).selection
    assert later.indices[0] == report.selection.indices[0]
    assert later.criteria == sorted(later.criteria, reverse=True)
    assert later.criteria[1] <= report.selection.criteria[1] * 1.01
    for wrong, message in (({"rule": "lcmd"}, "compares no scores"), ({"per_atom": "mean"}, "'mean' is not known")):
        with pytest.raises(InputError, match=message):
            select(**files, **options | wrong)


def test_atoms_cannot_choose_without_a_committee(paper_file, files, tmp_path):
    with pytest.raises(InputError, match="without a committee"):
        select(ntk=paper_file, pool=files["pool"], output=tmp_path / "o.xyz", count=3, per_atom="max")


def test_a_run_ends_at_its_worst_atom(joint, parts):
    """A level between what the start has and what heat brings."""
    start = parts["pool"][0]
    worst = joint.calibration.worst_atom_bound(joint.score_atoms([start]).sigma[0], 0.8)
    rules = [AtomErrorLevel(1.2 * worst, 0.8, patience=1)]
    settings = MDSettings(temperature=3000, steps=100, interval=5)
    found = run_md(joint, start, settings, rules)
    assert found.stopped is not None
    assert found.stopped.rule == "atom-error-level"
    last = found.frames[-1].arrays[OF_ATOMS]
    assert joint.calibration.worst_atom_bound(last, 0.8) > 1.2 * worst
    dynamics = VelocityVerlet(start.copy(), 0.5)
    dynamics.atoms.calc = UncertaintyCalculator(joint)
    with pytest.raises(InputError, match="per_atom=True"):
        watch(dynamics, rules, 10)
