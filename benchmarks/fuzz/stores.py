"""Cases of folders of features: damaged, foreign or no folders at all. Scores that come of them must be right."""

import functools
import os
from collections.abc import Callable
from pathlib import Path

from benchmarks.fuzz import blind
from benchmarks.fuzz.case import Case, Expected, Rng, chance, pick
from benchmarks.fuzz.material import Material, check_scores

FILES = ("store.json", "rows.bin", "index.bin")


def make(rng: Rng, folder: Path, material: Material) -> Case:
    """A store that something was done to, and a verb that uses it."""
    material.copy(folder, "water.model", "water.ntk", "pool.xyz", "store")
    store = folder / "store"
    expected: Expected = "either"
    name = str(pick(rng, FILES))
    how = str(pick(rng, ("damaged", "damaged", "damaged", "lost", "replaced", "foreign", "planted", "intact", "short")))
    if how == "damaged":
        how, content = blind.mutate(
            rng, (store / name).read_bytes(), blind.BINARY if name != "store.json" else blind.TEXT
        )
        (store / name).write_bytes(content)
    elif how == "lost":
        (store / name).unlink()
    elif how == "short":  # rows and entries of another number of structures
        content = (store / name).read_bytes()
        (store / name).write_bytes(content[: int(len(content) * rng.random())] if chance(rng, 0.5) else content * 2)
    elif how == "replaced":
        (store / name).unlink()
        kind = pick(rng, ("folder", "pipe", "link"))
        if kind == "folder":
            (store / name).mkdir()
        elif kind == "pipe":
            os.mkfifo(store / name)
        else:
            (store / name).symlink_to("gone")
        how = f"{kind} instead of"
    elif how == "foreign":
        text = (store / "store.json").read_text()
        odd = (
            "[]",
            "null",
            "7",
            "{}",
            "[" * 20_000,
            "9" * 5000,
            '"x"',
            text.replace("16", "17"),
            text.replace("1", "2"),
        )
        (store / "store.json").write_text(str(pick(rng, odd)))
    elif how == "planted":
        (store / ".rows.bin.abcdefgh.bin").write_bytes(b"left behind")
        (store / ".store.json.abc_def1.json").write_bytes(b"{")
        expected = "accepted"
    else:
        expected = "accepted"
    words = ["score", "water.ntk", "pool.xyz", "--store", "store", "-o", "out.xyz"]
    check: Callable[[Path], None] | None = functools.partial(_check, material.folder / "scored.xyz")
    if chance(rng, 0.3):
        words, check = ["select", "water.ntk", "pool.xyz", "-n", "2", "--store", "store", "-o", "out.xyz"], None
    return Case(
        f"store: {how} {name}",
        [*words, "--device", "cpu"],
        expected,
        ("store",),
        check,
        ("out.xyz", "store"),
        ("store",),
    )


def _check(like: Path, folder: Path) -> None:
    check_scores(folder / "out.xyz", None, like)
