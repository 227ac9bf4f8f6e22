"""Learning curves on both kinds of data, without leaks, and again after a kill."""

import json
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from benchmarks.al import run as al_module
from benchmarks.al.choice import Chooser, check_method
from benchmarks.al.summary import METRICS, summarise
from benchmarks.data.oracle import Oracle
from benchmarks.data.tasks import Task

from adaptntk.data.structures import has_labels, structure_hash
from adaptntk.errors import InputError
from adaptntk.uncertainty.folder_workbench import FolderWorkbench
from tests.benchmarks.conftest import REACTIONS_FILE, invoke, succeed

COMMAND = ["al", "--preset", "smoke", "--seeds", "1", "--jobs", "1", "--device", "cpu"]
FEW = ["--methods", "adaptntk,qbc,random"]
REACTIONS = ["--data", REACTIONS_FILE, "--methods", "lcmd,bait,adaptntk@64,adaptntk@exact,llpr,random"]

TESTS = ["new reactions", "known reactions", "new transition states", "known transition states"]


@pytest.fixture(scope="module")
def finished(shared):
    """A smoke run on molecular dynamics, without interruption."""
    folder = shared("al", lambda folder: succeed(*COMMAND, *FEW, "-o", folder / "out")) / "out"
    assert "QBC (ensemble)" in (folder / "table.md").read_text()
    return folder


@pytest.fixture(scope="module")
def finished_reactions(shared):
    """A smoke run on reactions, without interruption."""
    return shared("al-reactions", lambda folder: succeed(*COMMAND, *REACTIONS, "-o", folder / "out")) / "out"


@pytest.mark.long
def test_what_it_leaves(finished):
    results = json.loads((finished / "results.json").read_text())
    curves = results["tasks"]["ethanol"]["curves"]
    assert set(curves) == {"adaptntk", "qbc", "random"}
    for method in curves:
        assert [point["labels"] for point in curves[method][0]] == [16, 24]
    # All begin with the same model, and part afterwards.
    starts = {curves[method][0][0]["errors"]["test"]["force_rmse"] for method in curves}
    ends = {curves[method][0][-1]["errors"]["test"]["force_rmse"] for method in curves}
    assert len(starts) == 1
    assert len(ends) == 3
    assert (finished / "curves-ethanol.png").stat().st_size > 20_000
    assert "seconds" in json.loads((finished / "timings.json").read_text())
    # The first network is trained once, and its time counted for all; what the ridge was is on record.
    once = FolderWorkbench.read_seconds(finished / "ethanol" / "seed-0" / "start" / "networks")["member-0"]
    first = finished / "ethanol" / "seed-0" / "random" / "00016"
    assert json.loads((first / "seconds.json").read_text())["training"] == pytest.approx(once)
    chosen = json.loads((finished / "ethanol" / "seed-0" / "adaptntk" / "00016" / "checkpoint.json").read_text())
    assert set(chosen["details"]) == {"alpha", "effective_dimension", "normalise", "correlation_with_atoms"}


@pytest.mark.long
def test_reactions_and_all_selectors(finished_reactions):
    results = json.loads((finished_reactions / "results.json").read_text())
    summary = results["tasks"]["reactions"]["summary"]
    assert [name for name in summary if name != "labels"] == TESTS
    assert len(summary["new reactions"]["force_rmse"]) == 6
    table = (finished_reactions / "table.md").read_text()
    assert "AdaptNTK, p = 64" in table
    assert "AdaptNTK, exact" in table


@pytest.mark.long
def test_killed_and_resumed(finished, tmp_path):
    """SIGKILL while a network trains; then the same curves, to the last digit, from data that are made again."""
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "benchmarks", *COMMAND, *FEW, "-o", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    progress = folder / "ethanol" / "seed-0" / "qbc" / "00016" / "networks" / "member-1.seconds"
    deadline = time.monotonic() + 600
    while not (progress.exists() and len(progress.read_text().split()) >= 3):
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (folder / "results.json").exists()
    # How many work side by side does not matter either.
    command[command.index("--jobs") + 1] = "2"
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "resuming after step" in again.stderr
    assert (folder / "results.json").read_bytes() == (finished / "results.json").read_bytes()


class Watched(dict):
    """Labels of one structure of the pool, by name, which note that they were read."""

    def __init__(self, content, number, names, read):
        super().__init__(content)
        self.number, self.names, self.read = number, names, read

    def __getitem__(self, name):
        if name in self.names:
            self.read.add(self.number)
        return super().__getitem__(name)

    def get(self, name, default=None):
        try:
            return self[name]
        except KeyError:
            return default

    def copy(self):
        return Watched(self, self.number, self.names, self.read)

    def __deepcopy__(self, memo):
        return self.copy()


@pytest.mark.long
def test_no_label_leaks(finished, tmp_path, monkeypatch):
    """Every label of the pool that is read, by whomever, is recorded: none but those that were bought."""
    oracles: list[Oracle] = []
    reads: list[set[int]] = []
    load = Task.load

    def watched_load(task, sizes, seed):
        data = load(task, sizes, seed)
        reads.append(set())
        for number, atoms in enumerate(data.pool):
            atoms.info = Watched(atoms.info, number, ("REF_energy",), reads[-1])
            atoms.arrays = Watched(atoms.arrays, number, ("REF_forces",), reads[-1])
        return data

    class Recording(Oracle):
        def __init__(self, labelled):
            super().__init__(labelled)
            oracles.append(self)

    monkeypatch.setattr(Task, "load", watched_load)
    monkeypatch.setattr(al_module, "Oracle", Recording)
    seen: list[int] = []
    choose = Chooser.choose

    def watched(chooser, bench, oracle):
        assert not any(has_labels(atoms) or atoms.calc or "REF_energy" in atoms.info for atoms in oracle.pool)
        assert reads[-1] <= set(oracle.bought)
        bought = {structure_hash(oracle.pool[i]) for i in oracle.bought}
        assert {structure_hash(atoms) for atoms in bench.train} == bought
        seen.append(len(bench.train))
        return choose(chooser, bench, oracle)

    monkeypatch.setattr(Chooser, "choose", watched)
    succeed(*COMMAND, "--methods", "adaptntk,random", "-o", tmp_path / "out")
    assert seen == [16, 16]
    assert [len(oracle.bought) for oracle in oracles] == [16, 24, 24]
    assert all(len(set(oracle.bought)) == len(oracle.bought) for oracle in oracles)
    assert [set(oracle.bought) for oracle in oracles] == reads
    ours, theirs = (
        json.loads((f / "results.json").read_text())["tasks"]["ethanol"]["curves"]["adaptntk"]
        for f in (tmp_path / "out", finished)
    )
    assert ours == theirs


def test_the_summary_pairs_seeds():
    def curve(*errors):
        return [{"labels": 50 * (n + 1), "errors": {"test": dict.fromkeys(METRICS, e)}} for n, e in enumerate(errors)]

    found = summarise({"best": [curve(4, 1), curve(8, 2)], "random": [curve(4, 2), curve(8, 4)]}, 0)["test"][
        "force_rmse"
    ]
    assert found["best"]["mean"] == [6.0, 1.5]
    assert found["best"]["final_over_random"]["mean"] == pytest.approx(0.5)
    assert found["best"]["labels_to_random"]["mean"] == pytest.approx(50 * np.sqrt(2))
    assert found["random"]["labels_to_random"]["mean"] == pytest.approx(100)
    assert found["random"]["area_over_adaptntk"] is None


def test_labels_for_validation_count_and_methods_are_compared_with_ours():
    def curve(*errors):
        return [{"labels": 50 * (n + 1), "errors": {"test": dict.fromkeys(METRICS, e)}} for n, e in enumerate(errors)]

    summary = summarise({"adaptntk": [curve(4, 1)], "random": [curve(4, 4)]}, 30)
    assert summary["labels"] == [80, 130]
    found = summary["test"]["force_rmse"]
    assert found["random"]["labels_to_random"]["by_seed"] == [80]
    assert found["random"]["area_over_adaptntk"]["mean"] == pytest.approx(2)
    assert found["adaptntk"]["area_over_adaptntk"]["mean"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("oracle", "unknown method 'oracle'"),
        ("qbc@64", "unknown method 'qbc@64'"),
        ("random@64", "random picks need no sketch"),
        ("bait@exact", "BAIT needs a sketch"),
        ("adaptntk@0", "dimension"),
    ],
)
def test_bad_methods(method, message):
    with pytest.raises(InputError, match=message):
        check_method(method)


@pytest.mark.parametrize("method", ["adaptntk", "bait@64", "lcmd@exact", "qbc", "random"])
def test_good_methods(method):
    check_method(method)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--preset", "huge"], "choose one of cpu, paper, smoke"),
        (["--methods", "adaptntk,oracle,random"], "unknown method 'oracle'"),
        (["--methods", "adaptntk"], "random must be among"),
        (["--data", "nowhere.xyz"], "choose rmd17, xtb, sets or a labelled extxyz file"),
        (["--seeds", "0"], "at least one seed"),
        (["--preset", "paper", "--methods", "adaptntk@exact,random"], "leave out exact"),
    ],
)
def test_bad_options(options, message, tmp_path):
    result = invoke(*COMMAND, "-o", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_the_time_of_one_round(tmp_path):
    methods = "adaptntk,qbc,mcd,random"
    folder = tmp_path / "out"
    shown = succeed("timing", "--preset", "smoke", "--methods", methods, "--device", "cpu", "-o", folder)
    found = json.loads((folder / "timing.json").read_text())
    assert found["ratios"]["adaptntk"] == 1
    spent = FolderWorkbench.read_seconds(folder / "networks")
    assert set(spent) == {"member-0", "member-1", "dropout-0.1"}
    assert found["seconds"]["qbc"]["training"] == pytest.approx(spent["member-0"] + spent["member-1"])
    assert found["seconds"]["mcd"]["training"] == pytest.approx(spent["dropout-0.1"])
    assert found["seconds"]["random"]["training"] == pytest.approx(spent["member-0"])
    assert found["seconds"]["adaptntk"]["training"] == pytest.approx(spent["member-0"])
    assert found["seconds"]["random"]["uncertainty"] == 0
    # The training of the other member, which the committee asks for while it selects, is not counted a second time.
    assert found["seconds"]["qbc"]["selection"] < spent["member-1"] / 2
    assert "over AdaptNTK" in shown


@pytest.mark.long
def test_sketches_and_their_batches(tmp_path):
    shown = succeed("sketch", "--preset", "smoke", "--dims", "16,exact", "--seeds", "1", "--jobs", "1", "-o", tmp_path)
    assert "first batch of adaptntk@16 and of exact have" in shown


@pytest.mark.long
def test_where_batches_come_from(finished_reactions, tmp_path):
    """A copy of a finished run: of each method, how many reactions its first batch is from."""
    folder = tmp_path / "out"
    shutil.copytree(finished_reactions, folder)
    shutil.copy(REACTIONS_FILE, folder / "reactions" / "reactions.h5")
    succeed("batches", "-o", folder)
    found = json.loads((folder / "batches.json").read_text())
    assert list(found["force_rms"]) == TESTS
    assert all(1 <= count <= 4 for counts in found["reactions_in_first_batch"].values() for count in counts)
