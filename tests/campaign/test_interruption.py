"""Signals to a campaign and all of its processes: one line, the right code, nobody left, and it goes on."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from adaptntk.campaign.loop import run_campaign
from tests.campaign.conftest import outcome, write_config
from tests.campaign.test_trouble import _wait_for, command, troubled

RUN = "runs/water"
LINES = {signal.SIGINT: "adaptntk: interrupted", signal.SIGTERM: "adaptntk: terminated"}
# What is there once a step has begun.
STAGES = {
    "label": "labels/.locks/*",
    "train": "rounds/00/model.model*",  # or its checkpoint
    "explore": "rounds/01/trajectories",
    "train again": "rounds/01/model.model*",
}


def processes_of(mark):
    """Processes that were started with this in their environment, and are not dead."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().decode(errors="replace"):
                found.append((folder / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found


def interrupt(config, stage, number, times, executor):
    """Start the campaign, and send it and all its workers a signal when it is there, as a terminal does."""
    mark = f"INTERRUPTED={config}-{stage}"
    process = subprocess.Popen(
        command(config, "--executor", executor), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env=os.environ | dict([mark.split("=")]),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # as scripts do in the background
    )  # fmt: skip
    run = config.parent / RUN
    _wait_for(lambda: any(run.glob(STAGES[stage])) or process.poll() is not None)
    began = time.monotonic()
    for _ in range(times):
        os.killpg(process.pid, number)
        time.sleep(0.05)
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - began < 15
    assert process.returncode == 128 + number, said
    *before, last = said.splitlines()
    assert last == f"{LINES[number]}; go on with --resume"
    trouble = ("Traceback", "Error", "Exception", "Warning", "leaked", "Process", "adaptntk:")
    assert not [line for line in before if any(word in line for word in trouble)], said
    _wait_for(lambda: not processes_of(mark), seconds=10)  # a label in flight is finished first


@pytest.mark.parametrize(
    ("executor", "plan"),
    [
        pytest.param("local", [("label", signal.SIGINT, 2)], id="local"),
        *(
            pytest.param(
                executor,
                [("label", signal.SIGTERM, 1), *((stage, signal.SIGINT, 2) for stage in list(STAGES)[1:])],
                id=f"{executor}, all stages",
                marks=pytest.mark.long,
            )
            for executor in ("serial", "local", "dask")
        ),
    ],
)
def test_a_signal_ends_it_in_one_line_and_it_goes_on(executor, plan, reference, tmp_path):
    pytest.importorskip("distributed", reason="the extra dask is not installed") if executor == "dask" else None
    log = tmp_path / "log"
    rounds = min(2, len(plan))  # something is left to do after each of the signals
    config = write_config(tmp_path, label=troubled(log, seconds=0.1), stop={"rounds": rounds})
    for stage, number, times in plan:
        interrupt(config, stage, number, times, executor)
    run_campaign(config, resume=True)
    found, whole = outcome(tmp_path / RUN), outcome(reference)
    assert found["rounds"] == whole["rounds"][: rounds + 1]
    assert found["picks"] == whole["picks"][:rounds]
    assert not found["quarantine"]
    assert sorted(log.read_text().split()) == sorted(name.removesuffix(".xyz") for name in found["labels"])
