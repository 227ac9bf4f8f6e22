"""Cases of run directories: a finished campaign in which files were edited, damaged, lost, replaced or planted."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from benchmarks.fuzz import blind
from benchmarks.fuzz.case import Case, Expected, Rng, WrongOutputError, chance, pick
from benchmarks.fuzz.material import Material

RUN = Path("runs/water")
RECORDS = (
    "run.json", "verdict.json", "rounds/00/round.json", "rounds/01/round.json", "rounds/01/picks.json",
    "rounds/01/explored.json", "rounds/00/seconds.json", "rounds/01/seconds.json", "rounds/01/trajectories/000.json",
)  # fmt: skip
OTHERS = (
    "ledger.csv", "campaign.yaml", "rounds/00/random.xyz", "rounds/01/pool.xyz", "rounds/00/holdout.csv",
    "rounds/01/holdout.csv", "rounds/00/model.model", "rounds/01/model.model", "rounds/00/model.ntk",
    "rounds/01/model.ntk", "rounds/01/trajectories/000.xyz", "rounds/01/random.xyz",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, -1, 10**30, 1e308, "x", [], {}, True, "\x1b[2J", "../../x", [[[[]]]], 0, "nan", 1.5,
    "<script>alert(1)</script>",
)  # fmt: skip
DEEP = '{"a":' * 20_000
Story = tuple[str, Expected, str]


def make(rng: Rng, folder: Path, material: Material) -> Case:
    """A run directory that something was done to, and a verb that reads it."""
    material.copy(folder, "campaign.yaml", "runs")
    run = folder / RUN
    verb = str(pick(rng, ("status", "report", "resume", "resume", "resume", "further", "run")))
    change = str(pick(rng, CHANGES))
    story, expected, blamed = CHANGES[change](rng, run)
    if expected == "refused" and verb not in ("resume", "further"):
        expected = "either"
    if verb == "run":
        expected, blamed = "either" if "run.json" in story else "refused", ""
    if verb == "further":  # one more round: what the last one left is used
        content = yaml.safe_load((folder / "campaign.yaml").read_text())
        content["stop"]["rounds"] = 2
        (folder / "campaign.yaml").write_text(yaml.safe_dump(content))
        if re.search(r"rounds/01/model\.(model|ntk)", story) and "keep" not in story:
            expected = "refused"
    again = ["run", "campaign.yaml", "--resume"]
    words = {"resume": again, "further": again, "run": again[:2]}.get(verb, [verb, str(RUN)])
    labels = len(list((run / "labels").glob("[!.]*.xyz")))
    written = {"run": ("runs/water",), "report": ("runs/water/report.html",)}.get(words[0], ())
    named = (blamed, Path(blamed).name) if blamed and expected == "refused" else ("water",)

    def check(where: Path) -> None:
        found = len(list((where / RUN / "labels").glob("[!.]*.xyz")))
        if found < labels:
            raise WrongOutputError(f"{labels - found} labels disappeared")
        left = [path.name for path in where.rglob(".*.tmp*")]
        if words[0] == "run" and left:
            raise WrongOutputError(f"temporaries were not swept: {left}")

    return Case(f"{verb}: {story}", words, expected, named, check, written)


def _any_label(rng: Rng, run: Path) -> Path:
    found: Path = pick(rng, sorted((run / "labels").glob("[!.]*.xyz")))
    return found


def _edited_label(rng: Rng, run: Path) -> Story:
    """A number of a label becomes another one."""
    path = _any_label(rng, run)
    count, comment, *rows = path.read_text().splitlines()
    what = str(pick(rng, ("energy", "force", "position", "element", "role", "round")))
    if what == "energy":
        comment = re.sub(r"REF_energy=(\S+)", lambda m: f"REF_energy={float(m[1]) + float(rng.normal())!r}", comment)
    elif what == "role":
        role = re.search(r"role=(\w+)", comment)
        assert role is not None
        comment = comment.replace(role[0], "role=" + ("train" if role[1] == "holdout" else "holdout"))
    elif what == "round":
        comment = re.sub(r"round=\d", f"round={pick(rng, (7, -1, 'x', 1.5))}", comment)
    else:
        words = rows[0].split()
        place = {"force": 4, "position": 1, "element": 0}[what]
        words[place] = "C" if what == "element" else f"{float(words[place]) + 0.01 * (1 + rng.random()):.8f}"
        rows[0] = " ".join(words)
    path.write_text("\n".join([count, comment, *rows]) + "\n")
    return f"{what} of a label edited", "refused", path.name


def _damaged_label(rng: Rng, run: Path) -> Story:
    path = _any_label(rng, run)
    story, content = blind.mutate(rng, path.read_bytes(), blind.TEXT)
    path.write_bytes(content)
    return f"{story} in a label", "either", path.name


def _lost_label(rng: Rng, run: Path) -> Story:
    path = _any_label(rng, run)
    path.unlink()
    return "a label lost", "refused", ""


def _planted_label(rng: Rng, run: Path) -> Story:
    """The label of another structure, under a name that is not its own."""
    other = "0" * 64 if chance(rng, 0.5) else "note"
    (run / "labels" / f"{other}.xyz").write_bytes(_any_label(rng, run).read_bytes())
    return f"a label planted as {other[:8]}", "refused", f"{other}.xyz"


def _edited_record(rng: Rng, run: Path) -> Story:
    """One entry of a record becomes something else."""
    name = str(pick(rng, RECORDS))
    content = json.loads((run / name).read_text())
    path, value = blind.edit_entry(rng, content, ODD_VALUES)
    (run / name).write_text(json.dumps(content))
    refused = name == "run.json" and path == ["format"]
    return f"{name}: {'.'.join(map(str, path))} = {value}", "refused" if refused else "either", name


def _damaged_record(rng: Rng, run: Path) -> Story:
    name = str(pick(rng, RECORDS))
    odd = str(
        pick(
            rng,
            (DEEP, "[" * 20_000, "9" * 5000, '{"a": ' + "9" * 5000 + "}", "", "null", "[]", "{}", "NaN", "\x00", "{"),
        )
    )
    (run / name).write_text(odd)
    needed = name in ("run.json", "rounds/00/round.json", "rounds/01/round.json")
    return f"{name} holds {odd[:20]!r}", "refused" if needed else "either", name


def _damaged_file(rng: Rng, run: Path) -> Story:
    name = str(pick(rng, (*RECORDS, *OTHERS)))
    binary = name.endswith((".model", ".ntk"))
    content = (run / name).read_bytes()
    if not content:
        return "nothing", "either", ""
    story, changed = blind.mutate(rng, content, blind.BINARY if binary else blind.TEXT)
    (run / name).write_bytes(changed)
    return f"{story} in {name}", "either", name


def _replaced_file(rng: Rng, run: Path) -> Story:
    """Something that is no file, where a file should be."""
    label = str(_any_label(rng, run).relative_to(run))
    name = str(pick(rng, (*RECORDS, *OTHERS, label, "labels", "rounds", "rounds/01")))
    path, kind = (
        run / name,
        str(pick(rng, ("folder", "pipe", "link to itself", "link to nothing", "lost"))),
    )
    aside = run.parent / "aside"
    path.rename(aside)
    if aside.is_dir():
        for inner in sorted(aside.rglob("*"), reverse=True):
            inner.rmdir() if inner.is_dir() else inner.unlink()
        aside.rmdir()
    else:
        aside.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind.startswith("link"):
        path.symlink_to({"itself": path.name, "nothing": "gone"}[kind.split()[-1]])
    needed = name in ("run.json", label, "labels", "rounds/01/model.model", "rounds/01/model.ntk")
    if name == "run.json" and kind in ("lost", "link to itself", "link to nothing"):
        return f"{kind} in place of {name}", "refused", "water"
    return f"{kind} in place of {name}", "refused" if needed else "either", "water"


def _planted_temporary(rng: Rng, run: Path) -> Story:
    """What a writer leaves that was killed."""
    target: Path = pick(rng, (*(run / name for name in (*RECORDS, *OTHERS)), _any_label(rng, run)))
    content = target.read_bytes()
    left = target.with_name(f".{target.name}.k3j_x9ab{target.suffix}")
    left.write_bytes(content[: int(rng.integers(len(content) + 1))])
    os.utime(left, (1e9, 1e9))
    return f"a temporary of {target.name} planted", "accepted", ""


def _planted_file(rng: Rng, run: Path) -> Story:
    name = str(
        pick(
            rng,
            (
                "notes.txt",
                "rounds/notes",
                "rounds/99x/a",
                "labels/readme.md",
                "rounds/01/extra.json",
                "quarantine/x.json",
                "rounds/-1/a",
                "labels/.hidden",
                "rounds/2/a",
            ),
        )
    )
    path = run / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(str(pick(rng, ("hello", "", "{}", DEEP))))
    return f"{name} planted", "either", ""


def _changed_campaign(rng: Rng, run: Path) -> Story:
    path = run.parent.parent / "campaign.yaml"
    content = yaml.safe_load(path.read_text())
    section, field, value = pick(
        rng,
        (
            ("first", "train", 7),
            ("explore", "steps", 31),
            ("train", "epochs", 2),
            ("start", "molecule", "ethanol"),
            ("uncertainty", "alpha", 0.5),
            ("round", "valid", 2),
        ),
    )
    content[section][field] = value
    path.write_text(yaml.safe_dump(content))
    return f"campaign: {section}.{field} changed", "refused", "water"


def _intact(rng: Rng, run: Path) -> Story:
    return "nothing", "accepted", ""


CHANGES: dict[str, Callable[[Rng, Path], Story]] = {
    "label edited": _edited_label,
    "label damaged": _damaged_label,
    "label lost": _lost_label,
    "label planted": _planted_label,
    "record edited": _edited_record,
    "record edited, again": _edited_record,
    "record damaged": _damaged_record,
    "file damaged": _damaged_file,
    "file replaced": _replaced_file,
    "temporary planted": _planted_temporary,
    "file planted": _planted_file,
    "campaign changed": _changed_campaign,
    "nothing": _intact,
}
