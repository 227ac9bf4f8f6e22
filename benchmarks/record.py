"""Where and with what a figure was measured: written beside every result."""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"


def save(name: str, content: dict) -> Path:
    """Write ``results/NAME.json`` with date, commit, machine and versions."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    versions = {
        package: importlib.metadata.version(package) for package in ("adaptntk", "torch", "numpy", "mace-torch")
    }
    record = {
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "python": platform.python_version(),
        "versions": versions,
        **content,
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
