"""``python -m benchmarks fuzz``: malformed inputs through the command line, in one process, from a seed."""

import collections
import gc
import resource
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from adaptntk.cli import console
from adaptntk.files import make_folder
from benchmarks.fuzz import campaigns, command_lines, fitted_files, run_folders, stores, structures
from benchmarks.fuzz.case import Case, Result, Rng
from benchmarks.fuzz.material import Material, prepare
from benchmarks.fuzz.oracle import CATEGORIES, judge
from benchmarks.harness.record import save_record
from benchmarks.settings import Fuzz

Maker = Callable[[Rng, Path, Material], Case]
# How often each kind is met.
KINDS: dict[str, tuple[Maker, float]] = {
    "structures": (structures.make, 0.40),
    "fitted files": (fitted_files.make, 0.17),
    "campaigns": (campaigns.make, 0.15),
    "run folders": (run_folders.make, 0.15),
    "stores": (stores.make, 0.05),
    "command lines": (command_lines.make, 0.08),
}
# A case that asks for so much memory more than is in use has lost its way.
MEMORY = 8 * 2**30


def run(settings: Fuzz) -> str:
    """Cases from a seed, and what came of them; exit code 1 if anything did that should not."""
    numbers: Sequence[int] = range(settings.count) if settings.case is None else [settings.case]
    began = time.perf_counter()
    found = fuzz(settings.seed, numbers, settings.keep, settings.verbose)
    text = describe(found, settings.seed, time.perf_counter() - began)
    if settings.output is not None:
        save_record(make_folder(settings.output), f"seed-{settings.seed}", summary(found, settings.seed))
    if any(result.failures for result in found):
        console.out.print(text)
        raise SystemExit(1)
    return text


def fuzz(seed: int, numbers: Sequence[int], keep: Path | None = None, verbose: bool = False) -> list[Result]:
    """What came of the cases with these numbers."""
    found = []
    with tempfile.TemporaryDirectory(prefix="adaptntk-fuzz-") as name, _little_memory():
        base = Path(name)
        base.chmod(0o755)  # some cases run without rights
        (base / "material").mkdir()
        material = prepare(base / "material")
        gc.freeze()  # what stays need not be looked at again and again
        for number in numbers:
            folder = base / "case"
            folder.mkdir()
            kind, case = make_case(seed, number, folder, material)
            if keep is not None:
                shutil.copytree(folder, make_folder(keep) / f"case-{seed}-{number}", symlinks=True, dirs_exist_ok=True)
            result = judge(number, kind, case, folder)
            if verbose or result.failures:
                console.out.print(_line(result, seed))
            found.append(result)
            for path in base.iterdir():
                if path != material.folder:
                    _remove(path)
    return found


def make_case(seed: int, number: int, folder: Path, material: Material) -> tuple[str, Case]:
    """The same files and words for the same seed and number."""
    rng = np.random.default_rng([seed, number])
    weights = np.array([weight for _, weight in KINDS.values()])
    kind = list(KINDS)[int(rng.choice(len(KINDS), p=weights / weights.sum()))]
    return kind, KINDS[kind][0](rng, folder, material)


def describe(found: Sequence[Result], seed: int, seconds: float) -> str:
    """Counts, then every failure with the command that repeats it."""
    lines = [f"seed {seed}: {len(found):,} cases in {seconds:.0f} s"]
    for kind in KINDS:
        of_kind = [result for result in found if result.kind == kind]
        refused = sum(result.code == 2 for result in of_kind)
        accepted = sum(result.code == 0 for result in of_kind)
        lines.append(f"  {kind:<14}{len(of_kind):>6} cases: {refused} refused, {accepted} accepted")
    slowest = max(found, key=lambda result: result.seconds, default=None)
    if slowest is not None:
        lines.append(f"  slowest: {slowest.seconds:.1f} s (case {slowest.number}: {slowest.case.story})")
    counts = collections.Counter(category for result in found for category in result.failures)
    lines += [f"  {category:<18}{counts[category]:>5}" for category in CATEGORIES]
    for result in found:
        for category, text in result.failures.items():
            lines.append(f"\n{category}, {_line(result, seed)}\n{text}")
    return "\n".join(lines)


def summary(found: Sequence[Result], seed: int) -> dict[str, Any]:
    """What is kept of it."""
    kinds = {}
    for kind in KINDS:
        codes = collections.Counter(str(result.code) for result in found if result.kind == kind)
        kinds[kind] = {"cases": codes.total(), "refused": codes["2"], "accepted": codes["0"]}
    counts = collections.Counter(category for result in found for category in result.failures)
    slowest = max((result.seconds for result in found), default=0.0)
    failures = {category: counts[category] for category in CATEGORIES}
    return {"seed": seed, "cases": len(found), "kinds": kinds, "failures": failures, "slowest": round(slowest, 1)}


def _line(result: Result, seed: int) -> str:
    again = f"python -m benchmarks fuzz --seed {seed} --case {result.number} --keep kept"
    failed = ", ".join(result.failures) or f"code {result.code}"
    what = f"case {result.number}: {result.case.story}: {failed} ({result.seconds:.1f} s)"
    return f"{what}\n  adaptntk {shlex.join(result.case.words)[:300]}\n  {again}"


@contextmanager
def _little_memory() -> Iterator[None]:
    """Fail, instead of filling the machine."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = used + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit if before[1] < 0 else min(limit, before[1]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    path.chmod(0o755)
    for inner in path.iterdir():
        _remove(inner)
    path.rmdir()
