"""Habits of the house that can be counted: sizes of files and functions, and what is imported from where."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
SOURCE = sorted((ROOT / "src").rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
LONGEST_FILE = 400
LONGEST_FUNCTION = 60
MOST_PARAMETERS = 8
# The commands of a command line have as many parameters as it has options.
COMMAND_LINES = ("src/adaptntk/cli/", "benchmarks/__main__.py")
# Packages that come with one that is declared, and are pinned by it.
COMES_WITH = {"e3nn": "mace-torch", "markupsafe": "jinja2"}
# MACE imports them where they are installed, and builds another network where they are not.
USED_BY_MACE = {"cuequivariance", "cuequivariance-torch"}

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def place(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def test_no_file_is_too_long():
    lengths = {place(path): len(path.read_text().splitlines()) for path in (*SOURCE, *BENCHMARKS)}
    assert {path: lines for path, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_no_function_is_too_long():
    lengths = {
        f"{place(path)}: {function.name}": function.end_lineno - function.lineno + 1
        for path in (*SOURCE, *BENCHMARKS)
        for function in functions(path)
    }
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


def test_no_function_has_too_many_parameters():
    counts = {
        f"{place(path)}: {function.name}": len(parameters(function))
        for path in (*SOURCE, *BENCHMARKS)
        if not place(path).startswith(COMMAND_LINES)
        for function in functions(path)
    }
    assert {name: count for name, count in counts.items() if count > MOST_PARAMETERS} == {}


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def imports(tree: ast.AST, whole: bool) -> set[str]:
    """Packages that a module imports: all of them, or only those it needs to be imported itself."""
    found = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.split(".")[0])
        elif whole or not (isinstance(node, ast.FunctionDef) or _only_for_types(node)):
            found |= imports(node, whole)
    return found


def _only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def distributions(paths: list[Path], whole: bool) -> dict[str, str]:
    """Distributions that files import, each with one of the files."""
    known = packages_distributions()
    found = {}
    for path in paths:
        for package in imports(ast.parse(path.read_text()), whole):
            for distribution in known.get(package, set() if package in sys.stdlib_module_names else {package}):
                name = canonicalize_name(distribution)
                found[COMES_WITH.get(name, name)] = place(path)
    return {name: path for name, path in found.items() if name not in ("adaptntk", "benchmarks")}


@pytest.mark.parametrize("whole", [False, True], ids=["to import it", "somewhere"])
def test_what_is_imported_is_declared(whole):
    """Extras may be imported where they are used, never on import of a module."""
    declared = names(PROJECT["dependencies"])
    if whole:
        declared |= set.union(*(names(extra) for extra in PROJECT["optional-dependencies"].values()))
    undeclared = {name: path for name, path in distributions(SOURCE, whole).items() if name not in declared}
    assert undeclared == {}


def test_what_is_declared_is_imported():
    declared = names(PROJECT["dependencies"])
    assert declared - distributions(SOURCE, whole=True).keys() == USED_BY_MACE


def test_benchmarks_import_what_their_extra_declares():
    declared = names(PROJECT["dependencies"]) | names(PROJECT["optional-dependencies"]["benchmarks"])
    undeclared = {name: path for name, path in distributions(BENCHMARKS, whole=True).items() if name not in declared}
    assert undeclared == {}


def test_the_package_does_not_need_the_benchmarks_or_the_tests():
    for path in SOURCE:
        assert not imports(ast.parse(path.read_text()), whole=True) & {"benchmarks", "tests"}, place(path)
