"""What a benchmark leaves: results, a table, and a record of where and with what they were measured."""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from adaptntk.files import write_atomically, write_json

PACKAGES = ("adaptntk", "torch", "numpy", "mace-torch", "e3nn")


def save_outcome(folder: Path, results: dict[str, Any], table: str, **records: dict[str, Any]) -> None:
    """Write ``results.json``, which is the same each time, ``table.md``, and records, which hold times and machines."""
    write_json(folder / "results.json", results)
    for name, content in records.items():
        save_record(folder, name, content)
    save_table(folder, table)


def save_table(folder: Path, table: str) -> None:
    """Write ``table.md``."""
    write_atomically(folder / "table.md", lambda temporary: temporary.write_text(table))


def save_record(folder: Path, name: str, content: dict[str, Any]) -> Path:
    """Write ``FOLDER/NAME.json`` with date, commit, machine and versions."""
    record = {
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in PACKAGES},
        **content,
    }
    path = folder / f"{name}.json"
    text = json.dumps(record, indent=1) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text))
    return path


def _commit() -> str | None:
    """The commit of the clone this runs from; None without git."""
    here = Path(__file__).parent
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return found.stdout.strip() or None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
