"""Cases of command lines: options that are unknown or make no sense, paths that are no files, outputs onto inputs."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fuzz.case import MARKER, Case, Expected, Rng, chance, pick
from benchmarks.fuzz.hostile import write_hostile
from benchmarks.fuzz.material import Material

# Command lines that succeed, of verbs that take little time.
GOOD = {
    "score": "score water.ntk pool.xyz -o out.xyz",
    "select": "select water.ntk pool.xyz -n 2 -o out.xyz",
    "evaluate": "evaluate water.ntk test.xyz -o report",
    "fit": "fit water.model --train train.xyz --valid valid.xyz --sketch-dim 16 -o out.ntk",
    "train": "train --train train.xyz --valid valid.xyz --preset tiny --epochs 1 -o out.model",
    "md": "md water.ntk pool.xyz --steps 1 --coverage 0.8 -o out.xyz",
    "status": "status runs/water",
    "report": "report runs/water -o out.html",
    "check": "config check campaign.yaml",
    "template": "config template -o out.yaml",
    "schema": "config schema -o out.json",
    "data": "data md water --train 2 --valid 0 --test 0 --pool 0 --interval 1 -o out",
}
# Options of these verbs whose value may be anything.
OPTIONS = {
    "score": ("--device", "--memory", "--coverage", "--energy-key", "--forces-key", "--store", "--model", "--output"),
    "select": ("-n", "--method", "--coverage", "--seed", "--min-separation", "--figure", "--exclude", "--memory",
    "--device"),
    "evaluate": ("--batch-size", "--seed", "--device", "--memory", "--energy-key"),
    "fit": (
        "--alpha", "--lam", "--lam-criterion", "--sketch", "--sketch-dim", "--sketch-seed", "--normalise", "--memory",
        "--method", "--option", "--member", "--calibration", "--batch-size", "--seed", "--dtype", "--head", "--device",
        "--energy-key", "--forces-key", "--executor", "--scheduler",
    ),
    "train": ("--preset", "--batch-size", "--learning-rate", "--energy-loss", "--energy-reference", "--dtype",
    "--seed"),
    "md": (
        "--temperature", "--timestep", "--friction", "--every", "--coverage", "--max-error", "--patience", "--lost",
        "--candidates", "--min-distance", "--seed", "--device",
    ),
    "status": (), "report": ("--beside", "-o"), "check": (), "template": ("-o",), "schema": ("-o",),
    "data": ("--temperature", "--interval", "--seed", "--valid", "--output"),
}  # fmt: skip
VALUES = (
    "", " ", "-1", "0", "nan", "inf", "-inf", "1e300", "99999999999999999999", "9" * 5000, "x", "a\x1b[2Jb", "1.5",
    "-0.0",
    "gone/../x", ".", "pool.xyz", "water.ntk", "gone/out.xyz", "folder", "\u0663", "None",
    "true",
    "cuda:99", "cpu:7", "meta", "1e-300", "7", "2", "[]", "a=b", "a=", "=", "\ud800", "x" * 300, "--help", "-",
)  # fmt: skip
PATHS = (
    "",
    ".",
    "folder",
    "gone.xyz",
    "gone/gone.xyz",
    "pipe",
    "loop",
    "x" * 300,
    "pool.xyz/x",
    "secret.xyz",
    "water.model",
    "\ud800.xyz",
    "a\nb.xyz",
    "-",
)
# Only ever read: should the product fail, nothing outside of the case's folder may be written to.
OF_THE_SYSTEM = ("/", "/dev/null", "/dev/full", "/proc/self/mem", "/dev/tty")
MOLECULES = ("", "unobtainium", "H", "../x", "\x1b[2J", "7", "water", "O2", "CH4 ", "x" * 5000, "He", "Si2H6", "nan")


def make(rng: Rng, folder: Path, material: Material) -> Case:
    """A command line that something was done to."""
    how = str(pick(rng, ("option", "option", "option", "path", "path", "output", "unknown", "rights", "data", "rmd17")))
    if how == "data":
        return _molecules(rng)
    if how == "rmd17":
        return _published(rng, folder, material)
    verb = str(pick(rng, GOOD))
    words = GOOD[verb].split()
    material.copy(
        folder,
        *sorted({w for w in words if (material.folder / w).is_file()} | {"pool.xyz", "water.model", "water.ntk"}),
    )
    if verb in ("status", "report"):
        material.copy(folder, "runs")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    (folder / "secret.xyz").write_bytes(material.bytes("pool.xyz"))
    (folder / "secret.xyz").chmod(0)
    return {"option": _option, "path": _path, "output": _output, "unknown": _unknown, "rights": _rights}[how](
        rng, verb, words, folder
    )


def _written(words: list[str]) -> tuple[str, ...]:
    own = [word for word in words if word.startswith("out")]
    beside = ["out.model.checkpoint", "out.ntk.networks", *(f"evaluation.{kind}" for kind in ("json", "csv", "png"))]
    return ("out", "report", *own, *beside)


def _option(rng: Rng, verb: str, words: list[str], folder: Path) -> Case:
    """A value that is seldom met, for an option that exists."""
    if not OPTIONS[verb]:
        return _path(rng, verb, words, folder)
    option, value = str(pick(rng, OPTIONS[verb])), str(pick(rng, VALUES))
    words = [*words, option, value] if option in ("-n", "-o") or chance(rng, 0.7) else [*words, f"{option}={value}"]
    story = f"{verb} {option} {value!r}"[:80]
    made = (value, value.removesuffix(".png") + ".csv", "None", "x", "store")
    return Case(story, words, "either", (), None, (*_written(words), *made), usage=True)


def _path(rng: Rng, verb: str, words: list[str], folder: Path) -> Case:
    """Something else where an input file should be."""
    inputs = [n for n, word in enumerate(words) if (folder / word).exists() and n and not word.startswith("out")]
    if not inputs:
        return _unknown(rng, verb, words, folder)
    place, path = int(pick(rng, inputs)), str(pick(rng, (*PATHS, *OF_THE_SYSTEM)))
    words[place] = path
    expected: Expected = "either" if path in ("", "-", "secret.xyz", "water.model") else "refused"
    nobody = path == "secret.xyz"
    if nobody:
        folder.chmod(0o777)
    return Case(
        f"{verb}: {path[:30]!r} as input", words, expected, (), None, _written(words), usage=True, nobody=nobody
    )


def _output(rng: Rng, verb: str, words: list[str], folder: Path) -> Case:
    """An output that cannot be written, or that is one of the inputs."""
    if "-o" not in words:
        words += ["-o", "x"]
    own = [word for word in words[1:-1] if (folder / word).is_file()]
    place = str(pick(rng, (*PATHS, *own, *(f"./{word}" for word in own), "gone/out.xyz", "gone/deep/out.ntk")))
    words[words.index("-o") + 1] = place
    cannot = place in ("folder", ".", "", "gone/gone.xyz", "gone/out.xyz", "pool.xyz/x") and verb not in (
        "evaluate",
        "data",
    )
    # What exists may be overwritten, if the user says so, but not what is read by the same command.
    refused = cannot or (place.removeprefix("./") in own and verb not in ("check", "status"))
    expected: Expected = "refused" if refused else "either"
    return Case(
        f"{verb}: output {place[:30]!r}",
        words,
        expected,
        (),
        None,
        (*_written(words), place.removeprefix("./"), place.split("/")[0] or place),
        usage=True,
    )


def _unknown(rng: Rng, verb: str, words: list[str], folder: Path) -> Case:
    """Words that no verb knows, words twice, and words missing."""
    odd = (
        "--nonsense",
        "-Z",
        "--seed",
        "extra",
        "--",
        "--output=",
        "-o",
        "--n=3",
        "",
        "\x00",
        "@pool.xyz",
        "--device nonsense",
    )
    words = list(words)
    place = int(rng.integers(1, len(words) + 1))
    how = str(pick(rng, ("insert", "drop", "twice", "verb")))
    if how == "insert":
        words[place:place] = str(pick(rng, odd)).split(" ")
    elif how == "drop":
        del words[min(place, len(words) - 1)]
    elif how == "twice":
        words.insert(place, words[place - 1])
    else:
        words[0] = str(pick(rng, ("", "nonsense", "SCORE", "score ", "--version", "-v", "--help", "help", "\x1b[2J")))
    if verb == "train" and not {"--preset", "tiny", "--epochs", "1"} <= set(words):
        words = ["--help"]  # hours of training
    if verb == "data" and not {"--valid", "--test", "--pool", "--interval", "0", "1"} <= set(words):
        words = ["--help"]
    return Case(f"{verb}: {how} a word", words, "either", (), None, (*_written(words), *words), usage=True)


def _rights(rng: Rng, verb: str, words: list[str], folder: Path) -> Case:
    """Files and folders of somebody else."""
    how = str(pick(rng, ("nothing may be written", "all may be written", "an input may not be read")))
    if how == "nothing may be written":
        folder.chmod(0o555)
    else:
        folder.chmod(0o777)
    if how == "an input may not be read":
        inputs = [word for word in words[1:] if (folder / word).is_file()]
        if inputs:
            (folder / str(pick(rng, inputs))).chmod(0)
    refused = how == "nothing may be written" and "-o" in words
    if verb == "check":
        words = [*words, "--no-label"]  # the process of the labeler is that of an earlier case, with other rights
    return Case(f"{verb}: {how}", words, "refused" if refused else "either", (), None, _written(words), nobody=True)


def _molecules(rng: Rng) -> Case:
    name, value = str(pick(rng, MOLECULES)), str(pick(rng, ("2", "0", "-1", "1.5", "nan", "x", "")))
    options = ["--train", value, "--valid", "0", "--test", "0", "--pool", "0", "--interval", "1", "-o", "out"]
    return Case(
        f"data md {name[:30]!r}, {value}", ["data", "md", name, *options], "either", (), None, ("out",), usage=True
    )


def _published(rng: Rng, folder: Path, material: Material) -> Case:
    """A published file that was damaged, or that runs code."""
    place = folder / "data" / "rmd17" / "rmd17_ethanol.npz"
    place.parent.mkdir(parents=True)
    frames = material.frames("pool")
    content: dict[str, Any] = {
        "nuclear_charges": frames[0].numbers, "coords": np.array([atoms.positions for atoms in frames]),
        "energies": np.arange(8.0), "forces": np.zeros((8, 3, 3)),
    }  # fmt: skip
    key = str(pick(rng, list(content)))
    odd = (
        np.array([Touches()], dtype=object), np.zeros(0), np.full((8, 3, 3), np.nan), np.array("x"), np.zeros((2, 3,
        3)),
        np.full((8, 3, 3), 1e300), np.array(["a"] * 8), np.array(None, dtype=object), np.full(8, np.inf), -np.ones(3,
        int),
        np.full(3, 10**6), np.zeros((8, 4, 3)), np.zeros(8, complex),
    )  # fmt: skip
    content[key] = odd[int(rng.integers(len(odd)))]
    np.savez(place, **content)
    how = f"odd {key}"
    if chance(rng, 0.3):
        whole = place.read_bytes()
        place.write_bytes(whole[: int(rng.integers(len(whole)))])
        how = "cut"
    elif chance(rng, 0.1):
        how = write_hostile(rng, place, material.bytes("water.model"))
    words = [
        "data",
        "rmd17",
        "ethanol",
        "--data-dir",
        "data",
        "--train",
        "4",
        "--valid",
        "0",
        "--test",
        "0",
        "-o",
        "out",
    ]
    return Case(f"data rmd17: {how}", words, "refused", ("rmd17_ethanol.npz",), None, ("out",))


class Touches:
    """Makes the marker when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return open, (MARKER, "w")


assert pickle.dumps(Touches())
