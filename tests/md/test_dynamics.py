"""Runs that end as they should, the same each time."""

import numpy as np
import pytest
from ase import Atoms, units
from ase.calculators.lj import LennardJones
from ase.constraints import FixAtoms
from ase.md.verlet import VelocityVerlet

from adaptntk.data.structures import ENERGY, FORCES, read_structures, write_structures
from adaptntk.errors import InputError
from adaptntk.md.calculator import UncertaintyCalculator
from adaptntk.md.dynamics import MDSettings, run_md, watch
from adaptntk.md.physical_rules import PHYSICAL_RULES, FlyingAtoms, FusedAtoms, NotFinite, TemperatureLimit
from adaptntk.md.rules import ConformalThreshold, ErrorLevel, RelativeThreshold
from adaptntk.uncertainty.committee import Committee
from adaptntk.uncertainty.method import OF_ATOMS

SHORT = MDSettings(temperature=300, steps=40, interval=10)


def test_a_quiet_run_has_all_its_frames(fitted, parts, tmp_path):
    start = parts["train"][0]
    run = run_md(fitted, start, SHORT, PHYSICAL_RULES, seed=1)
    assert run.stopped is None
    assert run.steps == 40
    assert [frame.info["step"] for frame in run.frames] == [0, 10, 20, 30, 40]
    assert [frame.info["time"] for frame in run.frames] == pytest.approx([0, 5, 10, 15, 20])
    scores = fitted.score(run.frames)
    assert [f.info["ntk_variance"] for f in run.frames] == pytest.approx(scores.variance, rel=1e-4)
    assert [f.info["forces_uncertainty"] for f in run.frames] == pytest.approx(scores.sigma, rel=1e-4)
    assert all(0 < f.info["temperature"] < 1500 for f in run.frames)
    # No label of the start is handed on.
    assert all(ENERGY not in frame.info and FORCES not in frame.arrays for frame in run.frames)
    assert ENERGY in start.info
    write_structures(tmp_path / "run.xyz", run.frames)
    read = read_structures(tmp_path / "run.xyz")
    assert [f.info["forces_uncertainty"] for f in read] == pytest.approx(scores.sigma, rel=1e-4)
    assert [f.info["step"] for f in read] == [0, 10, 20, 30, 40]


def test_the_seed_fixes_everything(fitted, parts):
    runs = [run_md(fitted, parts["train"][0], SHORT, seed=seed) for seed in (1, 1, 2)]
    ends = [run.frames[-1].positions for run in runs]
    assert np.array_equal(ends[0], ends[1])
    assert not np.allclose(ends[0], ends[2], atol=1e-3)


def test_one_pass_per_step(paper, parts):
    passes = []
    handle = paper.potential.network._twin.readouts[-1].register_forward_hook(lambda *_: passes.append(1))
    run_md(paper, parts["train"][0], SHORT)
    handle.remove()
    assert len(passes) == 41


def test_the_committee_is_asked_of_all_frames_together_unless_a_rule_needs_it(fitted, parts, monkeypatch):
    """Rules on the score do not; the numbers are the same."""
    assert fitted.asks_committee
    asked, spread = [], Committee.spread

    def counted(self, frames, *others):
        asked.append(len(frames))
        return spread(self, frames, *others)

    monkeypatch.setattr(Committee, "spread", counted)
    later = run_md(fitted, parts["train"][0], SHORT, [ConformalThreshold(0.9)], per_atom=True)
    assert asked == [len(later.frames)]
    asked.clear()
    at_once = run_md(fitted, parts["train"][0], SHORT, [ErrorLevel(100.0, 0.9)], per_atom=True)
    assert asked == [1] * len(at_once.frames)
    for one, other in zip(later.frames, at_once.frames, strict=True):
        assert one.info.keys() == other.info.keys() > {"forces_uncertainty", "forces_error_bound", "ntk_variance"}
        assert one.info["forces_uncertainty"] == pytest.approx(other.info["forces_uncertainty"], rel=1e-3)
        assert np.allclose(one.arrays[OF_ATOMS], other.arrays[OF_ATOMS], rtol=1e-3)


def test_a_calculator_that_waits_tells_when_it_is_asked(fitted, parts):
    atoms = parts["pool"][0].copy()
    atoms.calc = UncertaintyCalculator(fitted, at_once=False)
    atoms.get_forces()
    assert "ntk_variance" in atoms.calc.results
    assert "forces_uncertainty" not in atoms.calc.results
    found = atoms.calc.get_property("forces_uncertainty", atoms)
    assert found == pytest.approx(fitted.score([atoms]).sigma[0], rel=1e-3)


@pytest.mark.parametrize(
    "rule", [ConformalThreshold(0.9, patience=2), ErrorLevel(1.0, 0.9, patience=2), RelativeThreshold(3.0, patience=2)]
)
def test_uncertainty_rules_end_a_hot_run(fitted, parts, rule):
    hot = MDSettings(temperature=4000, steps=600, interval=5, friction=0.05)
    run = run_md(fitted, parts["train"][0], hot, [rule], seed=0)
    assert run.stopped is not None
    assert run.stopped.rule == rule.name
    assert run.stopped.step == run.steps == run.frames[-1].info["step"]
    assert run.steps < 600
    # From the training set at a low temperature it does not.
    calm = run_md(fitted, parts["train"][0], MDSettings(temperature=100, steps=20, interval=5), [rule], seed=0)
    assert calm.stopped is None


def test_a_temperature_limit_ends_an_explosion(fitted, parts):
    start = parts["train"][0].copy()
    start.positions[3] = start.positions[4] + [0.25, 0, 0]
    run = run_md(fitted, start, MDSettings(steps=200, interval=1), [TemperatureLimit(5.0)])
    assert run.stopped is not None
    assert run.stopped.rule == "temperature-limit"


def test_fused_and_flying_atoms_end_a_run(fitted, parts):
    start = parts["train"][0].copy()
    start.positions[3] = start.positions[4] + [0.25, 0, 0]
    run = run_md(fitted, start, SHORT, [FusedAtoms()])
    assert (run.stopped.rule, run.stopped.step) == ("fused-atoms", 0)
    assert len(run.frames) == 1
    hot = MDSettings(temperature=60_000, steps=400, interval=5, friction=0.1)
    run = run_md(fitted, parts["train"][0], hot, [FlyingAtoms()])
    assert run.stopped.rule == "flying-atoms"


def test_a_run_that_blows_up_has_a_reason_and_no_traceback(fitted, parts):
    """No rules at all, and a time step at which positions overflow."""
    settings = MDSettings(temperature=1e5, steps=2000, timestep=1e3, interval=3)
    run = run_md(fitted, parts["train"][0], settings, rules=[])
    assert run.stopped is not None
    assert run.stopped.rule == NotFinite.name
    assert all(np.isfinite(frame.positions).all() for frame in run.frames)


@pytest.mark.parametrize("rules", [[], [NotFinite()], [ConformalThreshold(0.9, patience=1)]])
def test_atoms_on_one_another(fitted, parts, rules):
    """The network's forces and gradient are NaN there."""
    start = parts["train"][0].copy()
    start.positions[3] = start.positions[4]
    run = run_md(fitted, start, SHORT, rules)
    assert run.stopped.rule == (rules[0].name if rules else NotFinite.name)
    assert run.frames == []


def test_constraints_and_masses_are_kept(fitted, parts):
    start = parts["train"][0].copy()
    start.set_constraint(FixAtoms([0]))
    start.set_masses([2.0 if s == "H" else None for s in start.symbols])
    end = run_md(fitted, start, SHORT).frames[-1]
    assert np.allclose(end.positions[0], start.positions[0])
    assert not np.allclose(end.positions[1], start.positions[1])
    assert end.get_masses()[3] == 2.0


def test_any_dynamics_can_be_watched(fitted, parts):
    atoms = parts["train"][0].copy()
    atoms.calc = UncertaintyCalculator(fitted, every=4)
    run = watch(VelocityVerlet(atoms, 0.5 * units.fs), [NotFinite()], steps=8, interval=4)
    assert [frame.info["step"] for frame in run.frames] == [0, 4, 8]
    atoms.calc = LennardJones()
    with pytest.raises(InputError, match="UncertaintyCalculator"):
        watch(VelocityVerlet(atoms, 0.5 * units.fs), [NotFinite()], steps=8)


def test_nonsense_is_refused(fitted):
    for option in ({"temperature": 0}, {"steps": 0}, {"timestep": -1}, {"friction": np.inf}, {"interval": 0}):
        with pytest.raises(InputError, match="must be positive"):
            MDSettings(**option)
    with pytest.raises(InputError, match="Cl"):
        run_md(fitted, Atoms("Cl2", positions=[[0, 0, 0], [2, 0, 0]]), SHORT)
