"""``adaptntk md`` as a user runs it."""

import itertools
import re

import ase.io
import numpy as np
import pytest
from typer.testing import CliRunner

from adaptntk.cli.app import app
from adaptntk.data.structures import ENERGY, FORCES, read_structures, structure_hash, write_structures
from adaptntk.md.distinct import structure_distance
from adaptntk.uncertainty.file import save_fitted
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.workbench import GivenModel


@pytest.fixture
def starts(parts, tmp_path):
    write_structures(tmp_path / "start.xyz", parts["train"][:2])
    return tmp_path / "start.xyz"


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def test_trajectories_candidates_and_reasons(ntk_file, starts, fitted, tmp_path):
    output, pool = tmp_path / "trajectory.xyz", tmp_path / "pool.xyz"
    result = run(
        "md", ntk_file, starts, "-o", output, "--temperature", 100, "--temperature", 4000, "--steps", 200,
        "--every", 5, "--friction", 0.05, "--coverage", 0.9, "--patience", 4, "--lost", 10, "--candidates", pool,
    )  # fmt: skip
    assert result.exit_code == 0
    lines = [line for line in result.output.splitlines() if line.startswith("trajectory")]
    assert len(lines) == 4
    assert "(start 1, 4000 K): stopped at step" in lines[3]
    assert "conformal-threshold" in lines[3]
    frames = read_structures(output)  # refuses duplicates
    assert {frame.info["trajectory"] for frame in frames} == {0, 1, 2, 3}
    assert {frame.info["target_temperature"] for frame in frames} == {100, 4000}
    assert [f.info["ntk_variance"] for f in frames] == pytest.approx(fitted.score(frames).variance, rel=1e-3)
    assert all(f.info["forces_error_bound"] > f.info["forces_uncertainty"] > 0 for f in frames)
    # What the model says is there, but not as a label.
    assert all(ENERGY not in f.info and FORCES not in f.arrays and "energy" in f.info for f in frames)
    candidates = read_structures(pool)
    told = re.search(rf"{len(candidates)} candidates \((\d+) frames: (.*)\)", result.output)
    assert int(told[1]) == len(frames) == sum(int(part.split()[0]) for part in told[2].split(", "))
    assert "lost (beyond 10 times the alarm)" in told[2]
    threshold = fitted.calibration.variance_threshold(0.9)
    assert 0 < len(candidates) < len(frames)
    assert all(threshold < frame.info["ntk_variance"] <= 10 * threshold for frame in candidates)
    assert {structure_hash(a) for a in candidates} < {structure_hash(a) for a in frames}
    assert min(structure_distance(*pair) for pair in itertools.combinations(candidates, 2)) >= 0.049
    assert "too near to another (0.05 Å)" in result.output


def test_the_seed_fixes_the_file(ntk_file, starts, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        arguments = ("md", ntk_file, starts, "-o", tmp_path / f"{name}.xyz", "--steps", 10, "--seed", seed)
        assert run(*arguments, "--keep-going").exit_code == 0
    a, b, c = ((tmp_path / f"{name}.xyz").read_text() for name in "abc")
    assert a == b != c


def test_max_error_and_keep_going(ntk_file, starts, fitted, tmp_path):
    options = ("md", ntk_file, starts, "-o", tmp_path / "out.xyz", "--steps", 40, "--every", 5)
    level = 3 * float(np.median(fitted.calibration.forces.sigma(fitted.calibration.variances)))
    result = run(*options, "--temperature", 4000, "--friction", 0.05, "--max-error", level, "--coverage", 0.9)
    assert "error-level" in result.output
    assert result.exit_code == 0
    result = run(*options, "--keep-going", "--temperature", 100)
    assert "40 steps, no rule broken" in result.output


def test_uncalibrated(trained, parts, starts, refused, tmp_path):
    save_fitted(fit(GivenModel(parts["train"], [], potential=trained)), tmp_path / "raw.ntk")
    arguments = ("md", tmp_path / "raw.ntk", starts, "-o", tmp_path / "out.xyz", "--steps", 10)
    refused(*arguments, cause="needs a calibrated uncertainty")
    assert run(*arguments, "--keep-going", "--candidates", tmp_path / "pool.xyz").exit_code == 0
    assert "ntk_variance" in ase.io.read(tmp_path / "out.xyz").info
    assert "forces_uncertainty" not in ase.io.read(tmp_path / "out.xyz").info


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (("--coverage", 0.999), "calibrate on at least 999"),
        (("--coverage", 1.5), "the coverage must lie between 0 and 1"),
        (("--max-error", 1e-9, "--coverage", 0.9), "can never be kept"),
        (("--max-error", -1, "--coverage", 0.9), "must be positive"),
        (("--patience", 0, "--coverage", 0.9), "patience"),
        (("--temperature", 0, "--coverage", 0.9), "temperature"),
        (("--steps", 0, "--coverage", 0.9), "steps"),
        (("--every", 0, "--coverage", 0.9), "interval"),
        (("--candidates", "nowhere/pool.xyz", "--coverage", 0.9), "does not exist"),
    ],
)
def test_bad_options(ntk_file, starts, refused, tmp_path, options, cause):
    refused("md", ntk_file, starts, "-o", tmp_path / "out.xyz", *options, cause=cause)


def test_bad_starts(ntk_file, parts, refused, tmp_path):
    arguments = ("-o", tmp_path / "out.xyz", "--coverage", 0.9)
    refused("md", ntk_file, tmp_path / "none.xyz", *arguments, cause="no such file")
    start = parts["train"][0].copy()
    start.numbers[0] = 17
    write_structures(tmp_path / "start.xyz", [start])
    refused("md", ntk_file, tmp_path / "start.xyz", *arguments, cause="does not know the element Cl")
