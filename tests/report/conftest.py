"""Run directories, written once and never changed."""

import pytest

from tests.report.example_run import write_run


@pytest.fixture(scope="session")
def run_folder(ethanol_frames, hot_frames, tmp_path_factory):
    """A finished campaign."""
    return write_run(tmp_path_factory.mktemp("runs") / "ethanol", ethanol_frames, hot_frames)


@pytest.fixture(scope="session")
def other_folder(ethanol_frames, hot_frames, tmp_path_factory):
    """A second one, whose errors fall more slowly."""
    folder = tmp_path_factory.mktemp("others") / "ethanol-random"
    return write_run(folder, ethanol_frames, hot_frames, name="ethanol, random", better=1.25)
