"""What tests of the command line share."""

import pytest
from typer.testing import CliRunner

from adaptntk.cli.app import app


@pytest.fixture
def refused(tmp_path):
    """Run a command that must fail cleanly; returns its single line of error."""

    def call(*arguments, cause):
        before = sorted(p.name for p in tmp_path.iterdir())
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        lines = [line for line in result.stderr.splitlines() if line.startswith("adaptntk: ")]
        assert result.exit_code == 2, result.output
        assert len(lines) == 1, result.stderr
        assert "Traceback" not in result.output
        assert cause in lines[0]
        assert sorted(p.name for p in tmp_path.iterdir()) == before, "something was written"
        return lines[0]

    return call
