"""What the documentation shows must run."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from benchmarks.__main__ import app as benchmarks
from typer.testing import CliRunner

from adaptntk.cli.app import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PUBLIC = {"adaptntk", "adaptntk.testing", "adaptntk.verbs"}
PROGRAMS = {"adaptntk ": app, "python -m benchmarks ": benchmarks}


def code_blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[str]:
    lines = [line.removeprefix("$ ") for block in code_blocks(page, "") for line in block.splitlines()]
    # With a colon it is what a command says, not a command.
    return [line for line in lines if re.match(rf"({'|'.join(PROGRAMS)})[a-z]", line) and ": " not in line]


WITH_PYTHON = [page for page in PAGES if code_blocks(page, "python")]
WITH_COMMANDS = [page for page in PAGES if commands(page)]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_python_examples_run(page, files, ntk_file, tmp_path, monkeypatch):
    """In the order of the page. A block that begins with the name of a file is that file."""
    for file in (files["train"], files["valid"], files["pool"], ntk_file, ntk_file.with_suffix(".model")):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for block in code_blocks(page, "(?:python|yaml)"):
        named = re.match(r"# (\S+\.(?:py|yaml))\n", block)
        if named:
            Path(named[1]).write_text(block)
    for block in code_blocks(page, "python"):
        exec(compile(block, page.name, "exec"), {"__name__": "example"})


def test_pages_import_public_names_only():
    """What a page shows is there to stay; inner modules may move."""
    found = {
        (page.name, module)
        for page in PAGES
        for block in code_blocks(page, "python")
        for module in re.findall(r"^\s*(?:from|import) (adaptntk[\w.]*)", block, re.MULTILINE)
    }
    assert len(found) > 3
    assert {(page, module) for page, module in found if module not in PUBLIC} == set()


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_commands_have_the_options_they_show(page):
    for command in commands(page):
        program = next(name for name in PROGRAMS if command.startswith(name))
        # Unknown options are refused before --help is looked at.
        arguments = shlex.split(command.removeprefix(program), comments=True)
        result = CliRunner().invoke(PROGRAMS[program], [*arguments, "--help"])
        assert result.exit_code == 0, f"{command}: {result.output}"


def test_links_lead_somewhere():
    links = [(page, target) for page in PAGES for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())]
    own = [(page, target) for page, target in links if not target.startswith("http")]
    assert len(own) > len(PAGES)
    assert [f"{page.name}: {target}" for page, target in own if not (page.parent / target).exists()] == []


def test_there_are_examples():
    assert len(WITH_PYTHON) > 4
    assert sum(len(commands(page)) for page in PAGES) > 8
