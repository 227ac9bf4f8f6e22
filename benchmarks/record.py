"""Where and with what a figure was measured: written beside every result."""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from adaptntk.errors import InputError
from adaptntk.files import write_atomically


def save_result(folder: Path, name: str, content: dict[str, Any]) -> Path:
    """Write ``FOLDER/NAME.json`` with date, commit, machine and versions."""
    record = {
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpu": _gpu(),
        },
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in ("adaptntk", "torch", "numpy", "mace-torch", "e3nn")},
        **content,
    }
    path = folder / f"{name}.json"
    text = json.dumps(record, indent=1) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text))
    return path


def check_same_experiment(folder: Path, identity: dict[str, Any]) -> None:
    """Refuse to mix results of different experiments in a folder; the first one to come says what it is for."""
    path = folder / "plan.json"
    text = json.dumps(identity, indent=1, default=str) + "\n"
    if path.exists() and path.read_text() != text:
        raise InputError(f"{folder}: holds results of another experiment (see {path}); choose another folder")
    write_atomically(path, lambda temporary: temporary.write_text(text))


def _commit() -> str | None:
    """The commit of the source tree this runs from; None for an installed package."""
    here = Path(__file__).parent
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return found.stdout.strip() or None


def _gpu() -> str | None:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


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
