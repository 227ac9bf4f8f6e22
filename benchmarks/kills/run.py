"""``python -m benchmarks kills``: is anything lost, paid twice or different when a campaign is killed?"""

import itertools
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from adaptntk.cli.console import err
from adaptntk.errors import require
from adaptntk.files import make_folder
from benchmarks.harness.record import save_record
from benchmarks.kills.campaign import LABEL_SECONDS, Patient
from benchmarks.settings import Kills

# How a campaign is ended: the driver alone, the driver with all its processes, or by signals to the whole group.
KINDS = ("driver", "driver and children", "SIGINT", "SIGTERM")
EXECUTORS = ("serial", "serial", "local")
# It is ended within this share of the time that it takes undisturbed, once it is at work; some while they start up.
SHARE = 0.5
EARLY = 0.1
# Seconds within which a signal ends it.
LONGEST_LEAVE = 15.0


@dataclass
class Tally:
    """What happened, and what should not have."""

    kills: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    executors: Counter[str] = field(default_factory=Counter)
    campaigns: int = 0
    labels: int = 0
    charged: int = 0
    in_flight: int = 0  # when all processes were killed
    slowest_to_leave: float = 0.0
    faults: list[str] = field(default_factory=list)


def run(settings: Kills) -> str:
    """End a small campaign at random moments until it is done, again and again, and compare it with an undisturbed one.

    Writes ``kills.json``.
    """
    folder = make_folder(settings.output)
    began, rng, tally = time.monotonic(), np.random.default_rng(settings.seed), Tally()
    numbers = itertools.count()
    work = folder / "campaigns"
    require(not work.exists(), f"{work}: was left by another run; remove it, or choose another output")
    work.mkdir()
    whole = Patient(work / "whole")
    whole.prepare()
    started = time.monotonic()
    _finish(whole, "serial")
    longest, expected = SHARE * (time.monotonic() - started), whole.outcome()
    while sum(tally.kills.values()) < settings.count:
        patient = Patient(work / f"{next(numbers):03d}")
        patient.prepare()
        _treat(patient, expected, longest, settings.count, rng, tally)
        if not tally.faults:
            shutil.rmtree(patient.folder)
    if not tally.faults:
        shutil.rmtree(work)
    save_record(folder, "kills", _content(settings, tally, time.monotonic() - began))
    return _shown(tally, settings, folder)


def _treat(
    patient: Patient, expected: dict[str, Any], longest: float, count: int, rng: np.random.Generator, tally: Tally
) -> None:
    """One campaign: ended and resumed until it is complete, and judged."""
    repaid = 0
    while True:
        executor, kind = EXECUTORS[int(rng.integers(len(EXECUTORS)))], KINDS[int(rng.integers(len(KINDS)))]
        early, moment = rng.random() < EARLY, float(rng.uniform(0.0, longest))
        if sum(tally.kills.values()) >= count:
            _finish(patient, executor)
            break
        patient.start(executor)
        assert patient.process is not None
        if not early:
            patient.wait_for(patient.at_work)
        try:
            patient.process.wait(timeout=moment / 5 if early else moment)
        except subprocess.TimeoutExpired:
            stage = patient.stage()
            repaid += _end(patient, kind, tally)
            patient.look()
            if patient.process.returncode == 0:
                break  # it was done before it heard the signal
            tally.stages[stage] += 1
            tally.executors[executor] += 1
            tally.kills[kind] += 1
            if sum(tally.kills.values()) % 10 == 0:
                err.print(f"{sum(tally.kills.values())} kills, {tally.campaigns} campaigns, {len(tally.faults)} faults")
            continue
        if patient.process.returncode != 0:
            tally.faults.append(f"it could not be resumed: {' / '.join(patient.said()[-2:])}")
            return
        break
    _judge(patient, expected, repaid, tally)


def _finish(patient: Patient, executor: str) -> None:
    patient.start(executor)
    assert patient.process is not None
    code = patient.process.wait()
    require(code == 0, f"{patient.folder}: ended with code {code}: {' / '.join(patient.said()[-2:])}")


def _end(patient: Patient, kind: str, tally: Tally) -> int:
    """End the campaign that way; how many labels have to be paid for again because of it."""
    assert patient.process is not None
    if kind == "driver":
        patient.process.kill()
        patient.process.wait()
        return 0
    if kind == "driver and children":
        patient.kill_all()
        lost = patient.killed_labels()
        tally.in_flight += lost
        return lost
    number, began = signal.Signals[kind], time.monotonic()
    os.killpg(patient.process.pid, number)
    code = patient.process.wait()
    took = time.monotonic() - began
    tally.slowest_to_leave = max(tally.slowest_to_leave, took)
    said = patient.said()
    clean = (
        took < LONGEST_LEAVE
        and code in (0, 128 + number)
        and not [line for line in said if "Traceback" in line or "leaked" in line]
    )
    if not clean:
        tally.faults.append(f"{kind}: code {code} after {took:.0f} s, {' / '.join(said[-3:])}")
    return 0


def _judge(patient: Patient, expected: dict[str, Any], repaid: int, tally: Tally) -> None:
    """Compare a finished campaign with the one that nobody disturbed."""
    patient.look()
    found, charged = patient.outcome(), sum(patient.charged().values())
    tally.campaigns += 1
    tally.labels += len(found["labels"])
    tally.charged += charged
    tally.faults += [f"a label was lost or changed: {name}" for name in patient.lost]
    tally.faults += [
        f"{key} differ from those of an undisturbed run" for key in expected if found[key] != expected[key]
    ]
    if charged - len(found["labels"]) != repaid:
        tally.faults.append(f"{charged} calculations for {len(found['labels'])} labels, {repaid} were in flight")
    patient.wait_for(lambda: not patient.processes(), seconds=30.0)
    tally.faults += [f"left over: {name}" for name in patient.left_over()]


def _content(settings: Kills, tally: Tally, seconds: float) -> dict[str, Any]:
    return {
        "count": settings.count,
        "seed": settings.seed,
        "kills": dict(sorted(tally.kills.items())),
        "while it was at": dict(tally.stages.most_common()),
        "executors": dict(sorted(tally.executors.items())),
        "campaigns": tally.campaigns,
        "labels": tally.labels,
        "calculations": tally.charged,
        "in flight when all processes were killed": tally.in_flight,
        "seconds per label": LABEL_SECONDS,
        "slowest to leave after a signal, s": round(tally.slowest_to_leave, 2),
        "seconds": round(seconds),
        "faults": tally.faults,
    }


def _shown(tally: Tally, settings: Kills, folder: Path) -> str:
    counts = ", ".join(f"{number} x {kind}" for kind, number in sorted(tally.kills.items()))
    stages = ", ".join(f"{number} x {stage}" for stage, number in tally.stages.most_common())
    lines = [
        f"seed {settings.seed}: {sum(tally.kills.values())} kills ({counts})",
        f"while it was at: {stages}",
        f"{tally.campaigns} campaigns came to their end; {tally.labels} labels, {tally.charged} calculations, "
        f"{tally.in_flight} in flight when all processes were killed",
        *(f"FAULT: {fault}" for fault in tally.faults),
        f"{len(tally.faults)} faults; wrote {folder / 'kills.json'}",
    ]
    return "\n".join(lines)
