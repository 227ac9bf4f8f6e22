"""The rooms and the direction between them."""

import ast
from pathlib import Path

import adaptntk

SOURCE = Path(adaptntk.__file__).parent

# A room may import from the rooms of earlier rows, and from itself.
ROWS = [
    {"version", "errors", "memory", "progress"},
    {"files", "execution"},
    {"core"},
    {"data"},
    {"models"},
    {"features", "training"},
    {"uncertainty"},
    {"evaluation", "testing", "labelers"},
    {"md"},
    {"campaign"},
    {"report"},
    {"verbs"},
    {"cli"},
    {"__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(ROWS) for room in rooms}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0].removesuffix(".py")


def imported_modules(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module)
    return found


def test_every_room_has_its_place():
    assert {room_of(path) for path in MODULES} == set(LEVEL)


def test_imports_go_one_way():
    wrong = []
    for path in MODULES:
        own = room_of(path)
        for module in imported_modules(path):
            if module == "adaptntk":
                wrong.append(f"{path.relative_to(SOURCE)}: import from the room, not from the package")
            elif module.startswith("adaptntk."):
                room = module.split(".")[1]
                if room != own and LEVEL[room] >= LEVEL[own]:
                    wrong.append(f"{path.relative_to(SOURCE)} must not import {module}")
    assert wrong == []


def test_only_models_knows_mace_and_core_knows_no_atoms():
    strangers = {
        path.relative_to(SOURCE): packages & ({"mace", "e3nn", "ase"} if room == "core" else {"mace", "e3nn"})
        for path in MODULES
        if (room := room_of(path)) != "models"
        and (packages := {module.split(".")[0] for module in imported_modules(path)})
    }
    assert {path: found for path, found in strangers.items() if found} == {}


def test_public_names_exist_and_are_documented():
    for name in adaptntk.__all__:
        value = getattr(adaptntk, name)
        if callable(value):
            assert value.__doc__, f"{name} has no docstring"
