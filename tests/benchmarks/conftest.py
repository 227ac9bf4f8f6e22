"""What the tests of the benchmarks share."""

from pathlib import Path

import pytest
from benchmarks.__main__ import app
from typer.testing import CliRunner, Result

REACTIONS_FILE = Path(__file__).parents[1] / "data_files" / "reactions.h5"


def invoke(*words: object) -> Result:
    """``python -m benchmarks ...``, in this process."""
    return CliRunner().invoke(app, [str(word) for word in words])


def succeed(*words: object) -> str:
    """What it printed."""
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="session")
def reactions_file() -> Path:
    """Five proton transfers, made by tests/data_files/make.py."""
    return REACTIONS_FILE
