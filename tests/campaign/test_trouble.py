"""What goes wrong in a campaign: killed drivers and workers, labelers in trouble, disks, users."""

import collections
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from adaptntk.campaign.config import Overrides
from adaptntk.campaign.layout import read_run
from adaptntk.campaign.loop import run_campaign
from adaptntk.campaign.steps.label import LabelerError
from adaptntk.data.structures import read_structures, structure_hash
from adaptntk.errors import InputError
from adaptntk.files import locked
from adaptntk.report.run_progress import status_of
from tests.campaign.conftest import outcome, write_config


def troubled(log="", **arguments):
    settings = {"calculator": "tests.troubled.Troubled", "arguments": {"log": str(log), **arguments}}
    return {"kind": "ase", "settings": settings, "time_limit": 5.0}


def command(config, *options):
    return [sys.executable, "-m", "adaptntk", "run", str(config), "--resume", *options]


@pytest.mark.parametrize(
    ("wanted", "longest", "rounds", "execution"),
    [
        pytest.param(1, 3.0, 1, {"executor": "serial"}, id="once"),
        pytest.param(20, 10.0, 2, {"executor": "local", "workers": 2}, id="20 times", marks=pytest.mark.long),
    ],
)
def test_killed_at_random_moments_nothing_is_lost_or_paid_twice(wanted, longest, rounds, execution, tmp_path):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    changes = {"stop": {"rounds": rounds}}
    slow = {"seconds": 0.05}
    whole, _ = run_campaign(write_config(tmp_path / "whole", label=troubled(tmp_path / "whole.log", **slow), **changes))
    log = tmp_path / "killed.log"
    config = write_config(tmp_path / "killed", label=troubled(log, **slow), execution=execution, **changes)
    run = tmp_path / "killed" / "runs" / "water"

    def check():
        assert outcome(run) == outcome(whole)
        paid = collections.Counter(log.read_text().split())
        assert set(paid.values()) == {1}
        assert paid.keys() == {path.removesuffix(".xyz") for path in outcome(whole)["labels"]}

    rng = np.random.default_rng(int(os.environ.get("ADAPTNTK_TEST_SEED", "0")))
    kills = 0
    while kills < wanted:
        process = subprocess.Popen(command(config), start_new_session=True)
        # An interpreter that only starts up teaches nothing: the clock starts with the run directory's lock.
        _wait_for(lambda process=process: _is_locked(run) or process.poll() is not None)
        try:
            process.wait(timeout=float(rng.uniform(0.0, longest)))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        # Done before all kills were: that is one more comparison, and the next campaign begins.
        assert process.returncode == 0
        check()
        shutil.rmtree(run)
        log.unlink()
    run_campaign(config, resume=True)
    check()


def _is_locked(run):
    if not (run / "run.json").exists():
        return False
    try:
        with locked(run):
            return False
    except InputError:
        return True


def _wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_labeler_in_trouble_costs_replacements_only(tmp_path):
    """A third of the labels fails, returns NaN or hangs."""
    stories = {"fail": "SCF not converged", "nan": "NaN", "hang": "time limit"}
    label = troubled(trouble=",".join(stories), share=0.33) | {"time_limit": 1.5}
    config = write_config(
        tmp_path,
        label=label,
        explore={"temperatures": [100.0, 200.0], "trajectories": 3, "patience": 100, "lost": 100.0},
        uncertainty={"features": "energy"},
        stop={"rounds": 1},
    )
    run, verdict = run_campaign(config, overrides=Overrides("serial"))
    assert verdict.reason == "rounds"
    found = outcome(run)
    assert [s["labels_spent"] for s in found["rounds"]] == [22, 28]
    attempts = [json.loads((run / "quarantine" / name).read_text())["attempts"] for name in found["quarantine"]]
    assert found["rounds"][-1]["labels"]["quarantined"] == len(attempts) >= 6
    for kind, story in stories.items():
        told = [tries for tries in attempts if story in tries[0]["error"]]
        assert told, kind
        assert all(len(tries) == (1 if kind == "hang" else 2) for tries in told)
    # Nothing in quarantine was learnt from.
    assert not {name.removesuffix(".json") for name in found["quarantine"]} & {
        name.removesuffix(".xyz") for name in found["labels"]
    }


@pytest.mark.parametrize("execution", [{"executor": "serial"}, {"executor": "local", "workers": 2}])
def test_a_labeler_that_is_down_from_the_start(execution, tmp_path):
    """Three failures are enough; once it is mended, the campaign is that of a labeler that always worked."""
    down = tmp_path / "down"
    down.touch()
    config = write_config(tmp_path, label=troubled(down=str(down)), stop={"rounds": 1}, execution=execution)
    with pytest.raises(
        LabelerError, match=r"failed 3 times in a row \(last: .*no licence.*\): paused; mend it .*--resume"
    ):
        run_campaign(config)
    run = tmp_path / "runs" / "water"
    assert not list((run / "quarantine").iterdir())
    assert not list((run / "labels").glob("*.xyz"))
    assert "no licence" in status_of(read_run(run)).progress.text
    if execution["executor"] == "serial":
        down.unlink()
        run_campaign(config, resume=True)
        assert outcome(run)["quarantine"] == []
        assert read_run(run).pause is None
        assert [s["labels_spent"] for s in outcome(run)["rounds"]] == [22, 28]


def test_a_labeler_that_goes_down_and_what_is_tried_again(reference, tmp_path):
    config, run = copy_of(reference, tmp_path)
    shutil.rmtree(run / "rounds" / "02")
    for label in (run / "labels").glob("*.xyz"):
        if "round=2" in label.read_text():
            label.unlink()
    (run / "ledger.csv").unlink()
    about = json.loads((run / "run.json").read_text())
    down = tmp_path / "down"
    down.touch()
    label = troubled(down=str(down)) | {"pause_after": 5}
    about["config"]["label"].update(label)
    (run / "run.json").write_text(json.dumps(about))
    config = write_config(tmp_path, label=label, stop={"rounds": 2})
    with pytest.raises(LabelerError, match="failed 5 times in a row"):
        run_campaign(config, resume=True)
    assert not list((run / "quarantine").iterdir())
    # One structure is its own trouble: the others are labelled, it stays in quarantine until asked for again.
    down.write_text(structure_hash(read_structures(run / "rounds" / "02" / "random.xyz", own=True)[0]))
    run_campaign(config, resume=True)
    assert len(outcome(run)["quarantine"]) == 1
    assert len(outcome(run)["labels"]) == 34
    down.unlink()
    with pytest.raises(InputError, match="belongs to --resume"):
        run_campaign(config, retry_failed=True)
    run_campaign(config, resume=True, retry_failed=True)
    assert outcome(run)["quarantine"] == []


def test_the_documented_command_works_beside_the_campaign(tmp_path):
    folder = tmp_path / "my campaign"
    folder.mkdir()
    (folder / "label.py").write_text(COMMAND)
    (folder / "strength.txt").write_text("5.0")
    words = f"{sys.executable} label.py {{input}} {{output}}"
    config = write_config(folder, label={"kind": "command", "settings": {"command": words}}, stop={"rounds": 1})
    made = subprocess.run(
        [sys.executable, "-m", "adaptntk", "run", "my campaign/campaign.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    assert len(list((folder / "runs" / "water" / "labels").glob("*.xyz"))) >= 22
    # Each label was computed in a folder of its own: nothing is left here.
    assert sorted(path.name for path in folder.iterdir()) == [config.name, "label.py", "runs", "strength.txt"]


COMMAND = """
import pathlib, sys
strength = float(pathlib.Path(__file__).with_name("strength.txt").read_text())
count, comment, *lines = pathlib.Path(sys.argv[1]).read_text().splitlines()
pathlib.Path("scratch").write_text("anything")
rows, energy = [], 0.0
for line in lines:
    place = [float(word) for word in line.split()[1:4]]
    energy += strength * sum(x * x for x in place) / 2
    rows.append(" ".join([line, *(f"{-strength * x:.8f}" for x in place)]))
comment = f'Properties=species:S:1:pos:R:3:REF_forces:R:3 REF_energy={energy} pbc="F F F"'
pathlib.Path(sys.argv[2]).write_text("\\n".join([count, comment, *rows]) + "\\n")
"""


@pytest.mark.long
def test_a_dask_worker_killed_while_it_labels(reference, tmp_path):
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    config = write_config(tmp_path, label=troubled(tmp_path / "log", seconds=0.2), stop={"rounds": 1})
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        workers = [worker.process.pid for worker in cluster.workers.values()]
        locks = tmp_path / "runs" / "water" / "labels" / ".locks"
        killer = threading.Thread(
            target=lambda: (_wait_for(lambda: locks.exists() and any(locks.iterdir())), os.kill(workers[0], 9))
        )
        killer.start()
        run, verdict = run_campaign(config, overrides=Overrides("dask", scheduler=cluster.scheduler_address))
        killer.join()
    assert verdict.reason == "rounds"
    found, whole = outcome(run), outcome(reference)
    assert found["rounds"] == whole["rounds"][:2]
    assert found["picks"] == whole["picks"][:1]
    assert set(collections.Counter((tmp_path / "log").read_text().split()).values()) == {1}


def test_a_second_driver_is_refused(reference, tmp_path):
    config, run = copy_of(reference, tmp_path)
    with locked(run), pytest.raises(InputError, match="another process"):
        run_campaign(config, resume=True)


def copy_of(reference, folder):
    config = write_config(folder, stop={"rounds": 3})
    run = folder / "runs" / "water"
    shutil.copytree(reference, run)
    return config, run


def test_an_edited_configuration_is_refused(reference, tmp_path):
    copy_of(reference, tmp_path)
    config = write_config(tmp_path, round={"train": 5}, select={"method": "random"})
    with pytest.raises(InputError, match=r"round.train: 3 -> 5, select.method: adaptntk -> random"):
        run_campaign(config, resume=True)


@pytest.mark.parametrize("what", ["label", "model", "changed label", "summary", "changed model", "changed fit"])
def test_deleted_or_damaged_files_are_noticed(what, reference, tmp_path):
    config, run = copy_of(reference, tmp_path)
    label = next((run / "labels").glob("*.xyz"))
    if what == "label":
        label.unlink()
        message = "files were deleted"
    elif what == "model":
        (run / "rounds" / "01" / "model.model").unlink()
        message = "was deleted"
    elif what.startswith("changed ") and what != "changed label":
        path = run / "rounds" / "01" / ("model.model" if what == "changed model" else "model.ntk")
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        message = f"{path.name}: was changed or damaged"
    elif what == "changed label":
        label.write_text(label.read_text().replace("H ", "C ", 1))
        message = "no longer holds the structure"
    else:
        (run / "rounds" / "01" / "round.json").write_text("{")
        message = "changed or damaged"
    before = sorted(path.name for path in run.rglob("*"))
    with pytest.raises(InputError, match=message):
        run_campaign(config, resume=True)
    assert sorted(path.name for path in run.rglob("*")) == before  # the verdict is there as well


@pytest.mark.parametrize("name", ["verdict.json", "rounds/01/round.json", "rounds/00/model.ntk"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "link to itself"])
def test_what_is_no_file_is_refused(name, kind, reference, tmp_path):
    config, run = copy_of(reference, tmp_path)
    path = run / name
    path.unlink()
    {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "link to itself": lambda: path.symlink_to(path)}[kind]()
    before = sorted(path.name for path in run.rglob("*"))
    with pytest.raises(InputError, match=f"{path.name}: is no ordinary file"):
        run_campaign(config, resume=True)
    assert sorted(path.name for path in run.rglob("*")) == before


def test_a_folder_that_is_no_run_directory_is_left_alone(tmp_path):
    config = write_config(tmp_path)
    folder = tmp_path / "runs" / "water"
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is not empty and no run directory"):
        run_campaign(config, resume=True)
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 300 kB, where the system allows to make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)], capture_output=True)
    if made.returncode != 0:
        pytest.skip("a small disk can be mounted by root only")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_told_and_nothing_is_lost(small_disk, reference, tmp_path):
    config = write_config(tmp_path, label=troubled(tmp_path / "log"))
    run = small_disk / "run"
    filler = small_disk / "filler"
    filler.write_bytes(bytes(240_000))
    with pytest.raises(InputError, match=r"No space left|cannot write"):
        run_campaign(config, overrides=Overrides(output=run))
    assert not list((run / "quarantine").glob("*"))
    paid = (tmp_path / "log").read_text().split() if (tmp_path / "log").exists() else []
    assert len(paid) == len(list((run / "labels").glob("*.xyz")))
    filler.unlink()
    with pytest.raises(InputError, match=r"No space left|cannot write"):
        run_campaign(config, resume=True, overrides=Overrides(output=run))  # now it is the model that does not fit
    assert len((tmp_path / "log").read_text().split()) == len(list((run / "labels").glob("*.xyz"))) == 22
