"""Cases of campaign files: YAML of every wrong kind, through ``config check``, and ``run`` where it must be refused."""

import copy
import datetime
from pathlib import Path
from typing import Any

import yaml

from benchmarks.fuzz import blind, drafts
from benchmarks.fuzz.case import MARKER, Case, Expected, Rng, chance, pick
from benchmarks.fuzz.material import CAMPAIGN, Material

# Fields by what they hold; wrong for all of a kind is in WRONG, and what may be right in ODD.
INTEGERS = (
    "seed", "threads", "first.train", "first.valid", "first.holdout", "round.train", "round.valid", "round.holdout",
    "explore.trajectories", "explore.starts", "explore.steps", "explore.interval", "explore.patience", "label.attempts",
    "train.epochs", "train.batch_size", "uncertainty.sketch_dim", "stop.labels", "stop.rounds", "execution.workers",
)  # fmt: skip
NUMBERS = (
    "start.displacement", "start.temperature", "explore.timestep", "explore.friction", "explore.coverage",
    "explore.max_error", "explore.lost", "explore.above", "explore.min_distance", "label.time_limit", "label.closest",
    "label.largest_force", "train.learning_rate", "uncertainty.alpha", "stop.force_rmse", "stop.confidence",
    "stop.information",
)  # fmt: skip
NAMES = (
    "start.sampling", "select.method", "label.kind", "train.preset", "train.mode", "train.dtype", "uncertainty.sketch",
    "execution.executor", "start.molecule", "execution.device",
)  # fmt: skip
FILES = ("start.structures", "start.labelled", "start.model", "explore.pool", "test")
SECTIONS = ("start", "first", "round", "explore", "select", "label", "train", "uncertainty", "stop", "execution")

DATE = datetime.date(2026, 1, 1)
WRONG: dict[str, tuple[Any, ...]] = {
    "integers": (
        "x", "", [], {}, [1], 1.5, -1, float("nan"), float("inf"), DATE, datetime.datetime(2026, 1, 1, 12), b"\x00",
        {1: 2},
        "1e3x", 10**400, -(10**400), "9" * 5000, True, 2**64, set(),
    ),
    "numbers": ("x", "", [], {}, -1.0, float("nan"), float("inf"), -float("inf"), DATE, b"\x00", "one", 10**400, True,
    set()),
    "names": ("", "nonsense", 7, 1.5, [], {}, None, True, DATE, "a\x00b", "../x", "os.system", "\x1b[2J", "x" * 10_000,
    b"\x00"),
    "files": ("no/such/file.xyz", 7, [], {}, "", ".", "/", "/dev/null", "a\x00b", "x" * 5000, "~", True, DATE, b"\x00"),
    "sections": (7, "x", [], [1], True, DATE, float("nan"), {"nonsense": 1}, {7: 8}, {None: 1}, "a: b"),
}  # fmt: skip
ODD: dict[str, tuple[Any, ...]] = {
    "integers": ("7", 7.0, 10**9, 10**15, 2**31, 0, "0x10", "1_000", None),
    "numbers": ("0.5", 1e-300, 1e300, 0, 1, 10**15, 5e-324, 1e8, None),
    "names": (),
    "files": ("pool.xyz", "../pool.xyz", "water.model", "campaign.yaml", "runs", None),
    "sections": (None, {}),
}
FIELDS = {"integers": INTEGERS, "numbers": NUMBERS, "names": NAMES, "files": FILES, "sections": SECTIONS}
BAD_NAMES: tuple[Any, ...] = (
    "../x", "../../x", "a/b", "a\x00b", "a\nb", "\x1b[31mred", ".", "..", "", " ", "a\\b\x07", "\r", 7, None, [],
    {}, True, "x" * 5000, "\u202ename", "a/../../b", "~/x", "\x9b2J", "./x", "/", "con\u2028x",
)  # fmt: skip
# Text that stands at the end of a file that is right, or instead of it.
BAD_TEXTS = {
    "deep list": "[" * 5000,
    "deep map": "{a: " * 3000,
    "deep blocks": "".join(f"{' ' * n}a:\n" for n in range(2000)),
    "aliases": "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
    ),
    "circle": "name: &a [*a]\n",
    "object": f"name: !!python/object/apply:os.system ['touch {MARKER}']\n",
    "module": "name: !!python/module:os\n",
    "unknown tag": "name: !nonsense x\n",
    "tab": "start:\n\tmolecule: water\n",
    "two documents": "name: a\n---\nname: b\n",
    "nothing": "",
    "comment": "# nothing\n",
    "a list": "- a\n- b\n",
    "a word": "water\n",
    "null": "null\n",
    "binary": "\x00\x01\x02",
    "merge": "name: x\n<<: 7\n",
    "merge itself": "a: &a\n  <<: *a\n",
    "long integer": f"name: x\nseed: {'9' * 5000}\n",
    "long float": f"name: x\nseed: 1.{'9' * 50000}\n",
    "odd key": "? [a, b]\n: 7\n",
    "odd timestamp": "name: x\nseed: 2026-99-99\n",
    "odd binary": "name: x\nseed: !!binary x\n",
    "odd integer": "name: x\nseed: !!int x\n",
    "odd float": "name: !!float x\n",
    "set": "name: !!set {a, b}\nstart: !!omap [a: 1]\n",
    "json": '{"name": "x", "start": {"molecule": "water"}, "nonsense": 1}',
    "key twice": "name: a\nname: b\nstart:\n  molecule: water\n",
    "section twice": "name: a\nstart:\n  molecule: water\nstart:\n  molecule: ethanol\n",
    "base 60": "name: a\nseed: 1:30:00\nstart:\n  molecule: water\n",
}  # fmt: skip


def make(rng: Rng, folder: Path, material: Material) -> Case:
    """A campaign file that something was done to."""
    content: dict[str, Any] = copy.deepcopy(CAMPAIGN)
    how = rng.random()
    if how < 0.12:
        return _odd_file(rng, folder, material, content)
    if how < 0.55:
        story, refused = _wrong_field(rng, content)
    elif how < 0.65:
        content["name"] = pick(rng, (*BAD_NAMES, str(folder.parent / "outside")))
        story, refused = f"name {content['name']!r}"[:60], True
    elif how < 0.75:
        sections = [key for key in content if key != "name"]
        place: Any = content if chance(rng, 0.3) else content[pick(rng, sections)]
        key = pick(rng, ("nonsense", "Seed", "", 7, None, "molecule ", "a.b", "\x1b[2J", DATE, True, 1.5))
        place[key] = pick(rng, (1, "x", None, [], {}))
        story, refused = f"unknown key {key!r}", True
    elif how < 0.9:
        story = str(pick(rng, BAD_TEXTS))
        return _case(rng, folder, material, story, BAD_TEXTS[story].encode("utf-8", "surrogateescape"), True)
    else:
        changed, text = blind.mutate(rng, yaml.safe_dump(content, sort_keys=False).encode(), blind.TEXT)
        return _case(rng, folder, material, changed, text, False)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=chance(rng, 0.5)).encode("utf-8", "surrogateescape")
    return _case(rng, folder, material, story, text, refused)


def _wrong_field(rng: Rng, content: dict[str, Any]) -> tuple[str, bool]:
    kind = str(pick(rng, ("integers", "numbers", "numbers", "integers", "names", "files", "sections")))
    field = str(pick(rng, FIELDS[kind]))
    wrong = not ODD[kind] or chance(rng, 0.7)
    value = pick(rng, WRONG[kind] if wrong else ODD[kind])
    if (field, value) in (("start.molecule", None), ("explore.pool", None)):
        wrong = False
    *sections, name = field.split(".")
    place = content.setdefault(sections[0], {}) if sections else content
    if field == "start.structures":
        place.pop("molecule", None)
    place[name] = value
    return f"{field}: {value!r}"[:80], wrong


def _odd_file(rng: Rng, folder: Path, material: Material, content: dict[str, Any]) -> Case:
    """A file of structures that the campaign names, and that something was done to."""
    draft = drafts.Draft.of(material.text("train.xyz"))
    story = str(pick(rng, drafts.MUTATORS))
    drafts.MUTATORS[story](rng, draft)
    (folder / "named.xyz").write_bytes(draft.content)
    field = str(pick(rng, ("start.structures", "start.labelled", "explore.pool", "test", "dataset")))
    if field == "start.structures":
        content["start"] = {"structures": "named.xyz"}
    elif field == "dataset":
        content["label"] = {"kind": "dataset", "settings": {"file": "named.xyz"}}
        content["explore"]["pool"] = "pool.xyz"
    else:
        *sections, name = field.split(".")
        (content[sections[0]] if sections else content)[name] = "named.xyz"
    text = yaml.safe_dump(content, sort_keys=False).encode()
    return _case(rng, folder, material, f"{field}: {story}", text, False)


def _case(rng: Rng, folder: Path, material: Material, story: str, text: bytes, refused: bool) -> Case:
    (folder / "campaign.yaml").write_bytes(text)
    material.copy(folder, "pool.xyz", "water.model")
    words = ["config", "check", "campaign.yaml"]
    if refused and chance(rng, 0.4):
        words = ["run", "campaign.yaml", *(["--resume"] if chance(rng, 0.2) else [])]
    written = ("runs",) if words[0] == "run" else ()
    expected: Expected = "refused" if refused else "either"
    # A file that cannot be used is named itself.
    blamed = () if story.startswith(FILES) or not refused else ("campaign.yaml", "device", "labeler")
    return Case(f"campaign: {story}", words, expected, blamed, None, written)
