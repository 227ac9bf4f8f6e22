"""Run directories, written once and never changed."""

import pytest

from adaptntk.data.xtb_md import build_molecule, sample_md
from tests.report.example_run import write_run


@pytest.fixture(scope="session")
def hot_frames():
    """20 labelled frames of ethanol at 900 K."""
    return sample_md(build_molecule("ethanol"), frames=20, temperature=900, interval=5, seed=2)


@pytest.fixture(scope="session")
def run_folder(ethanol_frames, hot_frames, tmp_path_factory):
    """A finished campaign."""
    return write_run(tmp_path_factory.mktemp("runs") / "ethanol", ethanol_frames, hot_frames)


@pytest.fixture(scope="session")
def other_folder(ethanol_frames, hot_frames, tmp_path_factory):
    """A second one, whose errors fall more slowly."""
    folder = tmp_path_factory.mktemp("others") / "ethanol-random"
    return write_run(folder, ethanol_frames, hot_frames, name="ethanol, random", better=1.25)
