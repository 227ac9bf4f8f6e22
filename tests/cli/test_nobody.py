"""Files and folders that one may not read or write, and users without a home: one line, or no difference at all."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adaptntk.cli.app import app
from tests.conftest import DATA_FILES

OLD = DATA_FILES / "old_formats"
NOBODY = 65534


@contextmanager
def as_nobody():
    """Root may do everything: be somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder():
    """A folder that others may enter, unlike those of pytest, but not write to."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        for file in ("ntk-format-3.ntk", "tiny.model", "pool.xyz"):
            shutil.copy(OLD / file, path)
        shutil.copytree(OLD / "campaign" / "run", path / "run")
        shutil.copytree(OLD / "store", path / "store")
        path.chmod(0o755)
        yield path
        for held in (path, path / "run", path / "store"):
            held.chmod(0o755)


def said(folder, *arguments):
    result = CliRunner().invoke(app, [str(folder / each) if (folder / each).exists() else each for each in arguments])
    return result.exit_code, result.output.strip().splitlines()[-1].replace(f"{folder}/", "")


def test_what_may_not_be_read_is_one_line(folder):
    score = "score", "ntk-format-3.ntk", "pool.xyz"
    with tempfile.TemporaryDirectory() as name:
        output = Path(name) / "scored.xyz"
        output.parent.chmod(0o777)
        # Once with all permissions: whatever is imported on the way may not be readable for everybody.
        assert said(folder, *score, "-o", str(output))[0] == 0
        assert said(folder, "status", "run")[0] == 0
        output.unlink()
        for file, why in (
            ("ntk-format-3.ntk", "ntk-format-3.ntk: cannot be read (Permission denied)"),
            ("pool.xyz", "pool.xyz: cannot be read (Permission denied)"),
            ("tiny.model", "tiny.model: cannot be read (Permission denied)"),
        ):
            (folder / file).chmod(0)
            with as_nobody():
                assert said(folder, *score, "-o", str(output)) == (2, f"adaptntk: {why}")
            (folder / file).chmod(0o644)
        (folder / "run").chmod(0)
        with as_nobody():
            assert said(folder, "status", "run") == (2, "adaptntk: cannot use run/run.json: Permission denied")
        assert list(output.parent.iterdir()) == []


def test_what_may_not_be_written_is_one_line(folder):
    score = "score", "ntk-format-3.ntk", "pool.xyz"
    for held in (folder, folder / "store"):
        held.chmod(0o555)
    before = sorted(folder.rglob("*"))
    with as_nobody():
        output = str(folder / "scored.xyz")
        assert said(folder, *score, "-o", output) == (2, "adaptntk: cannot write scored.xyz: Permission denied")
        with tempfile.TemporaryDirectory() as name:
            code, line = said(folder, *score, "-o", f"{name}/scored.xyz", "--store", "store")
    assert (code, line) == (2, "adaptntk: cannot write to store: Permission denied")
    assert sorted(folder.rglob("*")) == before


HOMELESS = """
import os, pwd
from adaptntk.cli import app
def unknown(*which):
    raise KeyError("no such user")
pwd.getpwuid = unknown
del os.environ["HOME"]
app.main()
"""


@pytest.mark.parametrize("home", [False, pytest.param(True, marks=pytest.mark.long)])
def test_nobody_needs_a_home(folder, tmp_path, home):
    """Neither a home that cannot be made, nor none at all, as users have who are not known to the machine."""
    start = ["-m", "adaptntk"] if home else ["-c", HOMELESS]
    arguments = ["select", folder / "ntk-format-3.ntk", folder / "pool.xyz", "-n", "2", "-o", tmp_path / "a.xyz"]
    environment = {key: value for key, value in os.environ.items() if key not in ("MPLCONFIGDIR", "XDG_CACHE_HOME")}
    run = subprocess.run(
        [sys.executable, *start, *map(str, arguments), "--figure", str(tmp_path / "a.png")],
        env=environment | {"HOME": str(folder / "pool.xyz" / "home")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "atplotlib" not in run.stderr
    assert (tmp_path / "a.png").exists()
