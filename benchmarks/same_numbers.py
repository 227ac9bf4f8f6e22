"""Whether two versions of adaptntk give the same numbers.

    python benchmarks/same_numbers.py OLD_SRC NEW_SRC -o FOLDER

OLD_SRC and NEW_SRC are the ``src`` folders of two source trees. Only the command line is used, because the Python
interface may differ between them. The same commands run with both, on small data that the old tree makes and with the
network that the old tree trains; then every number in what they wrote is compared. The new tree also has to read what
the old one fitted.

What the old tree has done once is kept in FOLDER/old and not repeated; the new tree begins anew each time. The result
is a table and FOLDER/comparison.json; the exit code is 1 if a number differs, is missing, or if a command fails.
Names that only the new tree writes are listed, and are no mismatch.
"""

import argparse
import csv
import fnmatch
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ase.io
import numpy as np
import torch
from safetensors import safe_open

# Relative: scalars to themselves, arrays to their largest number.
TOLERANCE = 1e-10
# Smaller differences are none: zeros are rarely exact, and columns of extxyz files have eight decimals.
FLOOR, COLUMN_FLOOR = 1e-15, 1.1e-8
# Old and new names of the same thing; both are read as the second one.
RENAMED = {"ntk_pick": "pick", "ntk_score": "pick_score", "ntk_pool_index": "pool_index", "force_rmse": "force_error"}
# Times, and texts that may be put in other words.
IGNORED_KEYS = {"seconds", "label_seconds", "created", "written_by", "reason", "text"}
IGNORED_FILES = {"run.json", "seconds.json", "store.json"}
SHOWN = 5  # names per command; the record has them all

# In the texts of commands, {data} stands for the files that all share, {old} and {own} for the folders of the old tree
# and of the one that runs, {here} for the folder of the command. An option that is given twice counts the second time.
# Earlier trees chose another default for training sets of one size.
PER_ATOM = "--normalise per_atom"
NTK_FITS = {
    "gaussian": "",
    "gaussian-64": "--sketch-dim 64 --sketch-seed 3 --alpha 1e-3 --lam-criterion spearman",
    "srht": "--sketch srht --sketch-dim 64",
    "sparse": "--sketch sparse --sketch-dim 64",
    "none": "--sketch none",
    "lam": "--lam 0.01",
    "nll": "--lam-criterion nll",
    "effective-dimension": "--lam-criterion effective_dimension",
    "fixed": "--lam-criterion fixed",
    "sqrt-n": "--train {data}/mixed.xyz --normalise sqrt_n",
    "paper": "--train {data}/mixed.xyz --normalise none",
    "mixed": "--train {data}/mixed.xyz",
    "calibration": "--calibration {data}/calibration.xyz",
    "float32": "--dtype float32",
}
OTHER_FITS = {
    "error-model": "--method error_model",
    "ensemble": "--method ensemble --preset tiny --epochs 2",
    "ensemble-given": "--method ensemble --member {old}/train/total/a.model --member {old}/train/single/a.model",
    "dropout": "--method dropout --option passes=5 --preset tiny --epochs 2",
    "swag": "--method swag --option draws=5 --preset tiny --epochs 8",
    "evidential": "--method evidential --option steps=200",
    "last-layer": "--method last_layer --calibration {data}/calibration.xyz",
    "distance": "--method distance",
    "energy": "--method energy",
    "random": "--method random --seed 3",
}
RULES = ("adaptntk", "topb", "lcmd", "adaptntk+lcmd", "maxdist", "kmeans++", "bait", "random")
# The fitted uncertainty, and options.
SELECTIONS = {rule: ("gaussian", f"--method {rule}") for rule in RULES} | {
    "exact": ("none", ""),
    "srht": ("srht", ""),
    "separation": ("gaussian", "--min-separation 0.2"),
    "separation-lcmd": ("gaussian", "--min-separation 0.2 --method lcmd"),
    "group": ("gaussian", "--per-group-max group 2"),
    "store": ("gaussian", "--store {here}/store"),
    "store-again": ("gaussian", "--store {own}/select/store/store --method maxdist"),
    "exclude": ("gaussian", "--exclude {data}/start.xyz --coverage 0.8"),
    "figure": ("gaussian", "--figure {here}/map.png"),
    **{f"{rule}-{name}": (name, f"--method {rule}") for name in OTHER_FITS for rule in ("topb", "random")},
}
CAMPAIGN = """
name: water
start: {molecule: water}
first: {train: 8, valid: 10, holdout: 4}
round: {train: 3, valid: 1, holdout: 2}
explore:
  {temperatures: [200, 400], trajectories: 1, steps: 60, interval: 3, coverage: 0.9, patience: 12, min_distance: 0.01}
train: {preset: tiny, epochs: 4, dtype: float64}
uncertainty: {sketch_dim: 64}
stop: {rounds: 2}
execution: {executor: serial, device: cpu}
"""


@dataclass(frozen=True)
class Command:
    """A call of adaptntk. What it writes must equal what the old tree wrote with it.

    With ``like``, the name of another command, it must equal what the old tree wrote with that one.
    """

    name: str
    text: str
    like: str = ""


def data_commands() -> list[Command]:
    """Molecular dynamics; `split_data` makes the files from it that the other commands read."""
    text = "data md {0} --train {1} --valid 20 --test 25 --pool {2} -o {{here}}"
    sizes = {"ethanol": (30, 60), "methanol": (10, 10)}
    return [Command(f"data/{molecule}", text.format(molecule, *counts)) for molecule, counts in sizes.items()]


def fit_commands() -> list[Command]:
    """Three networks, every way to fit, and a fit to the network of the tree itself."""
    sets = "--train {data}/train.xyz --valid {data}/valid.xyz"
    networks = {
        "tiny": "--dtype float64",
        "total": "--dtype float64 --epochs 5 --seed 1 --energy-loss total --energy-reference mean",
        "single": "--epochs 5 --seed 2 --batch-size 7 --learning-rate 0.02",
    }
    train = {name: f"train {sets} --preset tiny {options} -o {{here}}/a.model" for name, options in networks.items()}
    fit = {
        name: f"fit {{old}}/train/tiny/a.model {sets} {options} -o {{here}}/{file_name(name)}"
        for name, options in ({name: f"{PER_ATOM} {text}" for name, text in NTK_FITS.items()} | OTHER_FITS).items()
    } | {"own": f"fit {{own}}/train/tiny/a.model {sets} {PER_ATOM} -o {{here}}/fitted.ntk"}
    return [Command(f"{verb}/{name}", t) for verb, c in (("train", train), ("fit", fit)) for name, t in c.items()]


def file_name(name: str) -> str:
    """Of a fitted uncertainty."""
    return "fitted.uq" if name in OTHER_FITS else "fitted.ntk"


def use_commands() -> list[Command]:
    """Score, select, evaluate and simulate with the fitted files; score also with those of the old tree."""
    found = []
    for name in NTK_FITS | OTHER_FITS:
        text = f"score {{tree}}/fit/{name}/{file_name(name)} {{data}}/pool.xyz -o {{here}}/scored.xyz"
        found.append(Command(f"score/{name}", text.replace("tree", "own")))
        found.append(Command(f"score-old/{name}", text.replace("tree", "old"), like=f"score/{name}"))
    stored = "score {own}/fit/gaussian/fitted.ntk {data}/pool.xyz --store {here}/store --coverage 0.8"
    found.append(Command("score/stored", f"{stored} -o {{here}}/scored.xyz"))
    for name, (fitted, options) in SELECTIONS.items():
        file = f"{{own}}/fit/{fitted}/{file_name(fitted)}"
        text = f"select {file} {{data}}/pool.xyz -n 14 {options} -o {{here}}/picked.xyz"
        found.append(Command(f"select/{name}", text))
    for name in ("own", "gaussian", "none", "calibration", *OTHER_FITS):
        text = f"evaluate {{own}}/fit/{name}/{file_name(name)} {{data}}/test.xyz -o {{here}}"
        found.append(Command(f"evaluate/{name}", text))
    text = "md {own}/fit/gaussian/fitted.ntk {data}/start.xyz --coverage 0.9 --temperature 300 --temperature 600"
    for name, options in (("watched", "--candidates {here}/found.xyz"), ("keep-going", "--keep-going")):
        found.append(Command(f"md/{name}", f"{text} --steps 40 --every 4 {options} -o {{here}}/frames.xyz"))
    return [*found, Command("run", "run {data}/campaign.yaml -o {here}/water")]


@dataclass(frozen=True)
class Tree:
    """A version of the package, and the folder in which it works."""

    source: Path
    own: Path
    shared: dict[str, str]

    def check(self) -> None:
        """Refuse to compare a version that is not the one in the folder given."""
        self.own.mkdir(parents=True, exist_ok=True)
        found = self._python("-c", "import adaptntk; print(adaptntk.__file__)").stdout.strip()
        if not found.startswith(f"{self.source}{os.sep}"):
            sys.exit(f"{self.source}: no adaptntk in it (found {found or 'none'})")

    def run(self, command: Command) -> dict[str, Any]:
        """Run a command, unless there is a record of it: exit code, last words and seconds."""
        here = self.own / command.name
        record = here / ".record.json"
        asked = {"source": str(self.source), "text": command.text}
        if record.exists() and asked.items() <= (known := json.loads(record.read_text())).items():
            return known
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir(parents=True)
        places = self.shared | {"own": str(self.own), "here": str(here)}
        began = time.perf_counter()
        done = self._python("-m", "adaptntk", *(word.format(**places) for word in shlex.split(command.text)))
        result = asked | {
            "exit_code": done.returncode,
            "words": (done.stderr.strip().splitlines() or [""])[-1],
            "seconds": round(time.perf_counter() - began, 2),
        }
        if done.returncode == 0:
            record.write_text(json.dumps(result, indent=1))
        return result

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # One thread, so that sums have one order.
        environment = os.environ | {"PYTHONPATH": str(self.source), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        call = [sys.executable, *arguments]
        return subprocess.run(call, cwd=self.own, env=environment, capture_output=True, text=True, check=False)


def split_data(made: Path, data: Path) -> None:
    """The files that all commands share: two molecules where sizes matter, and groups in the pool."""
    data.mkdir(exist_ok=True)
    ethanol, methanol = (
        {name: ase.io.read(made / molecule / f"{name}.xyz", ":") for name in ("train", "valid", "test", "pool")}
        for molecule in ("ethanol", "methanol")
    )
    pool = [*ethanol["pool"][:40], *methanol["pool"]]
    for index, atoms in enumerate(pool):
        atoms.info["group"] = f"part-{index % 7}"
    mixed = [*ethanol["train"], *methanol["train"]]
    new = {"pool": pool, "start": pool[:2], "calibration": ethanol["pool"][40:], "mixed": mixed}
    for name, frames in (ethanol | new).items():
        ase.io.write(data / f"{name}.xyz", frames, format="extxyz")
    (data / "campaign.yaml").write_text(CAMPAIGN)


def read_values(folder: Path) -> dict[str, Any]:
    """What the files in a folder say, by file and name."""
    found: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.suffix in READERS and p.name not in IGNORED_FILES):
        relative = path.relative_to(folder)
        if not any(part.startswith(".") for part in relative.parts):
            found |= {f"{relative}: {name}": value for name, value in flatten(READERS[path.suffix](path))}
    return found


def flatten(content: Any, name: str = "") -> list[tuple[str, Any]]:
    """Leaves of nested lists and dictionaries, with dotted names."""
    if isinstance(content, dict):
        parts = {RENAMED.get(key, key): value for key, value in content.items() if key not in IGNORED_KEYS}
    elif isinstance(content, list):
        parts = {str(index): value for index, value in enumerate(content)}
    else:
        return [(name, content)]
    return [leaf for key, value in parts.items() for leaf in flatten(value, f"{name}.{key}" if name else str(key))]


def read_frames(path: Path) -> Any:
    """Comment lines and columns of every structure, labels and predictions included."""
    frames = []
    for atoms in ase.io.read(path, ":", format="extxyz"):
        known = {**atoms.info, **atoms.arrays, **(atoms.calc.results if atoms.calc is not None else {})}
        frames.append({k: v.item() if isinstance(v, np.generic) else v for k, v in known.items()})
    return frames


def read_table(path: Path) -> Any:
    """Rows of a CSV file, numbers as numbers."""
    with path.open() as file:
        return [{key: _number(text) for key, text in row.items()} for row in csv.DictReader(file)]


def read_fitted(path: Path) -> Any:
    """Tensors and header of a fitted file; of its texts only the identities of structures."""
    with safe_open(path, framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = flatten(json.loads((file.metadata() or {}).get("adaptntk", "{}")))
    told = {key: value for key, value in header if not isinstance(value, str) or "hashes" in key}
    return {"tensors": tensors, "header": {key: value for key, value in told.items() if key != "format"}}


def read_model(path: Path) -> Any:
    """All weights of a network. The file is a pickle, but we have just written it."""
    with warnings.catch_warnings(action="ignore"):
        weights = torch.load(path, map_location="cpu", weights_only=False).state_dict()
    return {name: tensor.numpy() for name, tensor in weights.items()}


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


READERS = {
    ".xyz": read_frames,
    ".json": lambda path: json.loads(path.read_text()),
    ".csv": read_table,
    ".ntk": read_fitted,
    ".uq": read_fitted,
    ".model": read_model,
}


@dataclass
class Comparison:
    """What two outputs have in common: how many values, how far apart, and what is not the same."""

    command: str
    seconds: list[float]
    compared: int = 0
    largest: float = 0.0
    wrong: list[str] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)

    def compare(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        """Compare values of the same name; those that are gone are wrong, those that are new are noted."""
        for name, value in old.items():
            if name not in new:
                # How a fitted file is laid out is the business of the version that reads it.
                layout = ".ntk: " in name or ".uq: " in name
                (self.noted if layout else self.wrong).append(f"gone: {name}")
                continue
            column = ".xyz: " in name and isinstance(value, np.ndarray)
            found = difference(value, new[name], COLUMN_FLOOR if column else FLOOR)
            self.compared += np.size(value)
            self.largest = max(self.largest, found if found < np.inf else 0.0)
            if found > TOLERANCE:
                self.wrong.append(f"{name}: {_short(value)} -> {_short(new[name])}")
        self.noted += [f"added: {name}" for name in new if name not in old]
        if not self.compared:
            self.wrong.append("nothing to compare")

    def show(self) -> None:
        """A line of the table, and below it what is wrong."""
        mark = "DIFFERS" if self.wrong else "same"
        print(f"{self.command:28s} {self.compared:8,d} {self.largest:9.1e}  {mark}", flush=True)
        for lines in (self.wrong, self.noted):
            more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
            for line in lines[:SHOWN] + more:
                print(f"    {line}")


def difference(old: Any, new: Any, floor: float) -> float:
    """The relative difference of two numbers or arrays; infinite if they are not comparable, none below ``floor``."""
    a, b = np.asarray(old), np.asarray(new)
    if a.shape != b.shape or a.dtype.kind not in "fiu" or b.dtype.kind not in "fiu":
        return 0.0 if type(old) is type(new) and np.array_equal(a, b) else np.inf
    if np.array_equal(a, b, equal_nan=True) or (apart := np.abs(a - b).max()) <= floor:
        return 0.0
    relative = float(apart / max(np.abs(a).max(), np.abs(b).max()))
    return np.inf if np.isnan(relative) else relative


def _short(value: Any) -> str:
    return f"array {value.shape}" if isinstance(value, np.ndarray) else repr(value)


def check(command: Command, old: Tree, new: Tree) -> Comparison:
    """Run a command with both trees, where it is for both, and compare."""
    done = [] if command.like else [old.run(command)]
    if done and done[0]["exit_code"] != 0:
        sys.exit(f"{command.name}: fails with the old tree: {done[0]['words']}")
    done.append(new.run(command))
    result = Comparison(command.name, [record["seconds"] for record in done])
    if done[-1]["exit_code"] != 0:
        result.wrong = [f"exit code {done[-1]['exit_code']}: {done[-1]['words']}"]
        return result
    before = read_values(old.own / (command.like or command.name))
    try:
        result.compare(before, read_values(new.own / command.name))
    except (OSError, ValueError, KeyError) as error:
        result.wrong.append(f"cannot be read: {error!r}")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--only", default="*", help="repeat only commands whose names fit, such as 'select/*'")
    parser.add_argument("--resume", action="store_true", help="keep what the new tree has done already")
    given = parser.parse_args()
    folder = given.output.resolve()
    shared = {"data": str(folder / "data"), "old": str(folder / "old")}
    old, new = (Tree(getattr(given, name).resolve(), folder / name, shared) for name in ("old", "new"))
    asked = [c for c in (*data_commands(), *fit_commands(), *use_commands()) if fnmatch.fnmatch(c.name, given.only)]
    for command in asked if not given.resume else []:
        shutil.rmtree(new.own / command.name, ignore_errors=True)
    for tree in (old, new):
        tree.check()
    for command in data_commands():
        old.run(command)
    split_data(old.own / "data", folder / "data")
    print(f"{'command':28s} {'values':>8s} {'largest':>9s}")
    results = []
    for command in asked:
        results.append(check(command, old, new))
        results[-1].show()
    (folder / "comparison.json").write_text(json.dumps([asdict(result) for result in results], indent=1))
    wrong = [result.command for result in results if result.wrong]
    print(f"{len(results)} commands, {sum(r.compared for r in results):,} values, {len(wrong)} commands differ")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
