"""The rooms and the direction between them."""

import ast
from pathlib import Path

import adaptntk

SOURCE = Path(adaptntk.__file__).parent

# A room may import from the rooms of earlier rows, and from itself.
ROWS = [
    {"version", "errors", "memory", "progress", "representation"},
    {"files", "execution"},
    {"core"},
    {"data"},
    {"models"},
    {"evaluation", "features", "training"},
    {"uncertainty"},
    {"labelers"},
    {"testing"},
    {"md"},
    {"campaign"},
    {"report"},
    {"verbs"},
    {"cli"},
    {"__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(ROWS) for room in rooms}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports() -> list[tuple[Path, str]]:
    """Each module of the package with each module that it imports."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path == SOURCE / "__init__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found += [(path, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found.append((path, "." * node.level + (node.module or "")))
    return found


IMPORTS = imports()


def test_every_room_has_its_place():
    assert {room_of(path) for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"} == set(LEVEL)


def test_imports_go_one_way():
    wrong = []
    for path, module in IMPORTS:
        package, *parts = module.split(".")
        if package == "adaptntk":
            # From a room, not from the package: that would import in a circle.
            allowed = parts and (parts[0] == room_of(path) or LEVEL[parts[0]] < LEVEL[room_of(path)])
        else:
            allowed = package not in ("", "tests")
        if not allowed:
            wrong.append(f"{path.relative_to(SOURCE)} imports {module}")
    assert not wrong


def test_only_models_knows_mace_and_core_knows_no_atoms():
    packages = {(room_of(path), module.split(".")[0]) for path, module in IMPORTS}
    assert {room for room, package in packages if package in ("mace", "e3nn")} == {"models"}
    assert ("core", "ase") not in packages


def test_public_names_exist_and_are_documented():
    for name in adaptntk.__all__:
        value = getattr(adaptntk, name)
        assert not callable(value) or value.__doc__, f"{name} has no docstring"


def test_public_names_are_listed_once():
    names = [node for node in ast.parse((SOURCE / "__init__.pyi").read_text()).body if isinstance(node, ast.ImportFrom)]
    imported = [alias.asname or alias.name for node in names for alias in node.names]
    assert sorted(imported) == sorted(set(imported)) == sorted(adaptntk.__all__)
