"""Cases of files of structures: extxyz, plain and compressed, and what else ase reads; through every verb."""

import bz2
import csv
import functools
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import ase.io
import numpy as np

from benchmarks.fuzz import blind, drafts
from benchmarks.fuzz.case import Case, Expected, Rng, WrongOutputError, chance, pick
from benchmarks.fuzz.drafts import Draft
from benchmarks.fuzz.material import Material, check_scores
from benchmarks.fuzz.oracle import strict_json

PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": lambda content: content,
    ".gz": functools.partial(gzip.compress, mtime=0),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
# Formats with all that a structure needs, by how their files are called.
OTHERS = {
    ".traj": {}, ".json": {}, ".cif": {"one": True}, ".vasp": {"one": True}, ".pdb": {}, ".gen": {"one": True},
    ".cfg": {"one": True}, ".xsf": {}, ".db": {}, ".res": {"one": True}, ".gro": {"one": True}, ".nc": {},
    ".xml": {}, ".py": {}, ".pckl": {}, ".bundle": {}, ".hdf5": {}, ".npz": {}, ".txt": {}, "": {},
}  # fmt: skip
# Which part of the data each verb reads as the changed file, and how it is called.
VERBS: dict[str, tuple[str, str, float]] = {
    "score": ("pool", "score water.ntk {} -o {out}", 5),
    "select": ("pool", "select water.ntk {} -n 2 -o out.xyz", 3),
    "exclude": ("train", "select water.ntk pool.xyz -n 2 --exclude {} -o out.xyz", 0.5),
    "evaluate": ("test", "evaluate water.ntk {} -o report", 2),
    "fit on": ("train", "fit water.model --train {} --valid valid.xyz --sketch-dim 16 -o out.ntk", 2),
    "calibrate on": ("valid", "fit water.model --train train.xyz --valid {} --sketch-dim 16 -o out.ntk", 2),
    "train on": ("train", "train --train {} --valid valid.xyz --preset tiny --epochs 1 -o out.model", 1),
    "stop by": ("valid", "train --train train.xyz --valid {} --preset tiny --epochs 1 -o out.model", 0.5),
    "simulate": ("pool", "md water.ntk {} --steps 2 --every 1 --coverage 0.8 -o out.xyz", 2),
    "score stored": ("pool", "score water.ntk {} --store new -o {out}", 1),
    "score with uq": ("pool", "score water.uq {} -o {out}", 1),
}
ODD_STEMS = (
    "a\x1b[2Jb", "a\nb", "-x", "a b", "\u202eabc", "a'b\"c", "a@1:2", "a*b", "[a]", "$(touch CODE-WAS-RUN)", "%s", "~",
    "\udcff", "x" * 200, ".hidden", "[bold]", "a\tb", "a:b", "\u00e9",
)  # fmt: skip
# A page of XML that means gigabytes.
LAUGHS = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a "ha">%s]><modeling>&j;</modeling>' % b"".join(
    b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 20) for n in range(9)
)
NO_LABELS = ("score", "select", "score stored", "score with uq", "simulate")
NEED_LABELS = ("evaluate", "calibrate on", "train on", "stop by")
OUTPUTS = ("out.xyz",) * 8 + (
    "out.extxyz",
    "out.csv",
    "out.traj",
    "out.json",
    "out.xyz.gz",
    "out.txt",
    "out",
    "out.cif",
)


def make(rng: Rng, folder: Path, material: Material) -> Case:
    """A file of structures that something was done to."""
    weights = np.array([weight for *_, weight in VERBS.values()])
    verb = list(VERBS)[int(rng.choice(len(VERBS), p=weights / weights.sum()))]
    part = VERBS[verb][0]
    how = rng.random()
    if how < 0.6:
        made = _on_purpose(rng, folder, material.text(f"{part}.xyz"))
    elif how < 0.8:
        made = _blindly(rng, folder, material.text(f"{part}.xyz"))
    else:
        made = _other_format(rng, folder, material, part)
    story, name, expected, count, labels_only = made
    loose = (
        (labels_only and verb not in NEED_LABELS)
        or ("unknown element" in story and verb in ("train on", "stop by", "exclude"))  # a new network learns any
        or ("same frame twice" in story and verb == "exclude")
        or (expected == "accepted" and how >= 0.8 and verb not in NO_LABELS)  # formats may not keep labels
        or (expected == "accepted" and name.startswith("-"))  # looks like an option
    )
    return _case(rng, folder, material, verb, story, name, "either" if loose else expected, count)


Made = tuple[str, str, Expected, int | None, bool]


def _on_purpose(rng: Rng, folder: Path, text: str) -> Made:
    draft = Draft.of(text)
    story = str(pick(rng, drafts.MUTATORS))
    drafts.MUTATORS[story](rng, draft)
    if chance(rng, 0.1) and draft.raw is None:  # a second change on top: the first may be undone by it
        also = str(pick(rng, drafts.MUTATORS))
        drafts.MUTATORS[also](rng, draft)
        story, draft.expected, draft.frames_read = f"{story} and {also}", "either", None
    packing = str(pick(rng, PACKED)) if chance(rng, 0.3) else ""
    stem = pick(rng, ODD_STEMS) if chance(rng, 0.08) else "changed"
    name = f"{stem}{pick(rng, ('.xyz', '.extxyz'))}{packing}"
    (folder / name).write_bytes(PACKED[packing](draft.content))
    return f"{story} in {name}", name, draft.expected, draft.frames_read, draft.labels_only


def _blindly(rng: Rng, folder: Path, text: str) -> Made:
    packing = str(pick(rng, PACKED)) if chance(rng, 0.4) else ""
    name = f"changed.xyz{packing}"
    if packing and chance(rng, 0.5):
        story, content = blind.mutate(rng, PACKED[packing](text.encode()), blind.BINARY)
    else:
        story, content = blind.mutate(rng, text.encode(), blind.TEXT)
        if chance(rng, 0.2):
            story, content = f"{story}, twice", blind.mutate(rng, content or b" ", blind.TEXT)[1]
        content = PACKED[packing](content)
    (folder / name).write_bytes(content)
    return f"{story} in {name}", name, "either", None, False


def _other_format(rng: Rng, folder: Path, material: Material, part: str) -> Made:
    suffix = str(pick(rng, OTHERS))
    about, frames = OTHERS[suffix], material.frames(part)
    if "one" in about:
        frames = frames[:1]
    for atoms in frames:
        atoms.center(vacuum=4.0)
        atoms.pbc = suffix not in (".traj", ".json", ".db") or chance(rng, 0.5)
    name = f"changed{suffix}"
    how = rng.random()
    if how < 0.15:  # under a name that promises something else
        others = (
            material.bytes(f"{part}.xyz"), rng.bytes(300), b"", b"\x80\x04.", material.bytes("water.ntk"),
            b"[" * 20_000, b'{"a": ' * 20_000, b'{"1": {"numbers": [' + b"9" * 5000 + b"]}}", LAUGHS,
            material.bytes("pool.xyz.gz"),
        )  # fmt: skip
        (folder / name).write_bytes(pick(rng, others))
        return f"something else called {name}", name, "either", None, False
    try:
        ase.io.write(folder / name, frames)
    except Exception:  # this version of ase does not write it
        (folder / name).write_bytes(b"nothing")
        return f"no {suffix} at all", name, "either", None, False
    if how < 0.35:
        kept = suffix in (".traj", ".json", ".db")
        return f"intact {name}", name, "accepted" if kept else "either", len(frames) if kept else None, False
    if how < 0.5 and suffix in (".traj", ".json", ".db"):
        odd = float(pick(rng, (np.nan, np.inf, 1e300)))
        frames[int(rng.integers(len(frames)))].positions[0, 0] = odd
        (folder / name).unlink()
        ase.io.write(folder / name, frames)
        return f"a coordinate of {odd} in {name}", name, "refused", None, False
    content = (folder / name).read_bytes()
    story, content = blind.mutate(rng, content, blind.TEXT if chance(rng, 0.5) else blind.BINARY)
    (folder / name).write_bytes(content)
    return f"{story} in {name}", name, "either", None, False


def _case(
    rng: Rng, folder: Path, material: Material, verb: str, story: str, name: str, expected: Expected, count: int | None
) -> Case:
    out = str(pick(rng, OUTPUTS))
    words = [word.format(name, out=out) for word in VERBS[verb][1].split()]
    used = {word for word in words if (material.folder / word).exists()}
    if used & {"water.ntk", "water.uq"}:
        used.add("water.model")
    material.copy(folder, *sorted(used))
    if words[0] in ("train", "fit", "score", "select", "evaluate", "md") and chance(rng, 0.9):
        words += ["--device", "cpu"]
    if words[0] in ("score", "evaluate") and chance(rng, 0.1):
        words += ["--memory", "0.0001"]  # a file that is read a frame at a time
    if "{out}" in VERBS[verb][1] and not out.endswith("xyz") and expected == "accepted":
        expected = "either"
    written = {"out", out, "report", "out.ntk", "out.model", "out.model.checkpoint", "out.xyz", "new"}
    check = functools.partial(_check, verb, out, count)
    named = (name, "training set", "validation set", *(() if out.endswith("xyz") else (out,)))
    odd = not name.startswith("changed")  # shown in another way, and taken for an option
    return Case(f"{verb}: {story}", words, expected, () if odd else named, check, tuple(sorted(written)), usage=odd)


def _check(verb: str, out: str, count: int | None, folder: Path) -> None:
    """What each verb must have written, given that it was satisfied with so many frames."""
    if verb.startswith("score"):
        if out.endswith("xyz") or out.endswith(".csv"):
            check_scores(folder / out, count)
    elif verb in ("select", "exclude"):
        check_scores(folder / "out.xyz", 2)
    elif verb == "evaluate":
        metrics = strict_json(folder / "report" / "evaluation.json")
        with (folder / "report" / "evaluation.csv").open(newline="") as file:
            rows = list(csv.reader(file))[1:]
        # A structure without neighbours is not compared; no change leaves more than one such.
        if metrics["structures"] != len(rows) or (count is not None and not count - 1 <= len(rows) <= count):
            raise WrongOutputError(f"{len(rows)} rows, {metrics['structures']} structures, {count} in the file")
        if any(word.lower() in ("nan", "inf", "-inf") for row in rows for word in row):
            raise WrongOutputError("evaluation.csv holds numbers that are not finite")
    elif verb == "simulate" and (folder / "out.xyz").exists():
        check_scores(folder / "out.xyz", None)
