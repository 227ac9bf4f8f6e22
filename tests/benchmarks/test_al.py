"""Learning curves on both kinds of data, without leaks, and again after a kill."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from adaptntk.benchmark import al as al_module
from benchmarks.al_data import Sizes, Task, find_tasks
from benchmarks.al_results import METRICS, labels_needed, log_area, ratio_interval, summarise
from benchmarks.oracle import Oracle
from benchmarks.sources import Source
from typer.testing import CliRunner

from adaptntk.cli.app import app
from adaptntk.data.structures import has_labels, read_structures, structure_hash, write_structures
from adaptntk.errors import InputError
from adaptntk.uncertainty.workbench import FolderWorkbench

COMMAND = ["benchmark", "al", "--preset", "smoke", "--seeds", "1", "--jobs", "1", "--device", "cpu"]
FEW = ["--methods", "adaptntk,qbc,random"]
REACTION_METHODS = "lcmd,bait,adaptntk@64,adaptntk@exact,llpr,random"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A smoke run on molecular dynamics, without interruption."""
    folder = tmp_path_factory.mktemp("al") / "out"
    result = CliRunner().invoke(app, [*COMMAND, *FEW, "-o", str(folder)])
    assert result.exit_code == 0, result.output
    assert "QBC (ensemble)" in result.output
    return folder


@pytest.fixture(scope="module")
def finished_reactions(tmp_path_factory):
    """A smoke run on reactions, without interruption."""
    pytest.importorskip("rdkit")
    folder = tmp_path_factory.mktemp("reactions")
    command = [*COMMAND, "--data", "t1x", "--methods", REACTION_METHODS, "-o", str(folder / "out")]
    result = CliRunner().invoke(app, command, env={"ADAPTNTK_DATA": str(folder)})
    assert result.exit_code == 0, result.output
    return folder / "out"


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
    assert [name for name in summary if name != "labels"] == [
        "new reactions",
        "known reactions",
        "new transition states",
        "known transition states",
    ]
    assert len(summary["new reactions"]["force_rmse"]) == 6
    table = (finished_reactions / "table.md").read_text()
    assert "AdaptNTK, p = 64" in table
    assert "AdaptNTK, exact" in table


@pytest.mark.long
def test_what_reactions_are_tested_on(finished_reactions):
    """New reactions are not in the pool, other frames of the known ones are; transition states are not."""
    sizes = al_module.PLANS["smoke"].sizes["reactions"]
    data = Task("reactions", reactions=finished_reactions / "reactions" / "reactions.h5").load(sizes, seed=0)

    def reactions(frames):
        return {atoms.info["reaction"] for atoms in frames}

    learnt = reactions(data.pool)
    assert len(data.pool) == sizes.pool
    assert len(data.valid) == sizes.valid
    assert not reactions(data.tests["new reactions"]) & learnt
    assert reactions(data.tests["known reactions"]) <= learnt
    assert len(data.tests["known reactions"]) == len(data.tests["new reactions"]) == sizes.test
    drawn = {structure_hash(atoms) for atoms in [*data.pool, *data.valid]}
    for kind, count in {"new": 2, "known": 4}.items():
        tops = data.tests[f"{kind} transition states"]
        assert len(tops) == count
        assert not {structure_hash(atoms) for atoms in tops} & drawn


@pytest.mark.parametrize(
    ("whole", "options", "killed_in"),
    [
        ("finished", FEW, "ethanol/seed-0/qbc/00016/networks/member-1.seconds"),
        (
            "finished_reactions",
            ["--data", "t1x", "--methods", REACTION_METHODS],
            "reactions/seed-0/bait/00024/networks/member-0.seconds",
        ),
    ],
    ids=["molecule", "reactions"],
)
@pytest.mark.long
def test_killed_and_resumed(whole, options, killed_in, request, tmp_path):
    """SIGKILL while a network trains; then the same curves, to the last digit, from data that are made again."""
    finished = request.getfixturevalue(whole)
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "adaptntk", *COMMAND, *options, "-o", str(folder)]
    environment = {**os.environ, "ADAPTNTK_DATA": str(tmp_path)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=environment)
    progress = folder / killed_in
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
    again = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert again.returncode == 0, again.stderr
    assert "resuming after epoch" in again.stderr
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
    choose = al_module.choose_batch

    def watched(job, bench, oracle):
        assert not any(has_labels(atoms) or atoms.calc or "REF_energy" in atoms.info for atoms in oracle.pool)
        assert reads[-1] <= set(oracle.bought)
        bought = {structure_hash(oracle.pool[i]) for i in oracle.bought}
        assert {structure_hash(atoms) for atoms in bench.train} == bought
        seen.append(len(bench.train))
        return choose(job, bench, oracle)

    monkeypatch.setattr(al_module, "choose_batch", watched)
    result = CliRunner().invoke(app, [*COMMAND, "--methods", "adaptntk,random", "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert seen == [16, 16]
    assert [len(oracle.bought) for oracle in oracles] == [16, 24, 24]
    assert all(len(set(oracle.bought)) == len(oracle.bought) for oracle in oracles)
    assert [set(oracle.bought) for oracle in oracles] == reads
    ours, theirs = (
        json.loads((f / "results.json").read_text())["tasks"]["ethanol"]["curves"]["adaptntk"]
        for f in (tmp_path / "out", finished)
    )
    assert ours == theirs


def test_an_oracle_sells_each_label_once(parts):
    oracle = Oracle(parts["pool"])
    assert not any(has_labels(atoms) for atoms in oracle.pool)
    assert all(has_labels(atoms) for atoms in oracle.buy([3, 5]))
    with pytest.raises(InputError, match="bought before"):
        oracle.buy([5])
    assert [structure_hash(a) for a in oracle.pool] == [structure_hash(a) for a in parts["pool"]]


def test_a_cold_pool(files, tmp_path):
    source = Source(str(files["train"]), None, tmp_path)
    sizes = Sizes(pool=12, valid=4, test=8, initial=4, cold_share=0.75)
    assert sizes.needed <= 40
    data = Task("train", source).load(sizes, seed=0)
    everything = sorted(a.info["REF_energy"] for a in source.load("train"))
    cold = sum(a.info["REF_energy"] < everything[20] for a in [*data.pool, *data.valid])
    assert 10 <= cold <= 14
    assert len(data.tests["test"]) == 8
    assert data.initial == [0, 1, 2, 3]


def test_the_paper_s_sizes_fit_its_data():
    """A hundred thousand frames of a molecule; and exact gradients of a pool that fit nowhere are refused."""
    assert al_module.PLANS["paper"].sizes["molecule"].needed <= 100_000
    with pytest.raises(InputError, match="leave out exact"):
        al_module.benchmark_al("nowhere", [], "paper", 1, ["adaptntk@exact", "random"])


@pytest.mark.parametrize("cold_share", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("pool", [7, 10])
def test_as_many_as_needed_are_enough(cold_share, pool, files, tmp_path):
    sizes = Sizes(pool=pool, valid=3, test=3, initial=4, cold_share=cold_share)
    frames = read_structures(files["pool"], labelled=True)
    for count, enough in ((sizes.needed, True), (sizes.needed - 1, False)):
        write_structures(tmp_path / "some.xyz", frames[:count])
        data = Task("some", Source(str(tmp_path / "some.xyz"), None, tmp_path)).load(sizes, seed=0)
        assert (len(data.pool) == pool) == enough


def test_labels_needed_by_hand():
    labels, errors = np.array([50.0, 100.0, 200.0]), np.array([4.0, 2.0, 1.0])
    assert labels_needed(labels, errors, 2.0) == pytest.approx(100)
    assert labels_needed(labels, errors, np.sqrt(2)) == pytest.approx(100 * np.sqrt(2))
    assert labels_needed(labels, errors, 5.0) == 50
    assert labels_needed(labels, errors, 0.5) is None
    assert log_area(labels, errors) == pytest.approx(np.log(2.0))
    assert ratio_interval([2.0, 8.0], [1.0, 1.0])["mean"] == pytest.approx(4)
    assert ratio_interval([2.0, 2.0], [1.0, 1.0])["low"] == pytest.approx(2)
    assert ratio_interval([2.0], [1.0])["low"] is None


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
    ("options", "message"),
    [
        (["--preset", "huge"], "choose one of cpu, paper, smoke"),
        (["--methods", "adaptntk,oracle,random"], "unknown method 'oracle'"),
        (["--methods", "qbc@64,random"], "unknown method 'qbc@64'"),
        (["--methods", "random@64,random"], "random picks need no sketch"),
        (["--methods", "bait@exact,random"], "BAIT needs a sketch"),
        (["--methods", "adaptntk@0,random"], "dimension"),
        (["--data", "t1x", "--molecules", "aspirin"], "not with reactions"),
        (["--data", "t1x", "--preset", "paper"], "It is published as Transition1x.h5"),
        (["--data", "T1X"], "for reactions t1x or a file"),
        (["--methods", "adaptntk"], "random must be among"),
        (["--data", "nowhere.xyz"], "choose rmd17, xtb or a labelled extxyz file"),
        (["--data", "nowhere.h5"], "no such file"),
        (["--seeds", "0"], "at least one seed"),
    ],
)
def test_bad_options(options, message, tmp_path, monkeypatch):
    monkeypatch.setenv("ADAPTNTK_DATA", str(tmp_path))
    result = CliRunner().invoke(app, [*COMMAND, "-o", str(tmp_path / "out"), *options])
    assert result.exit_code == 2
    assert message in result.output


def test_the_published_file_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAPTNTK_DATA", str(tmp_path))
    assert find_tasks("t1x", None, tmp_path / "out")[0].name == "reactions"
    with pytest.raises(InputError, match=r"not found. It is published as Transition1x.h5"):
        find_tasks("t1x", None, tmp_path / "out", must_exist=True)


@pytest.mark.long
def test_the_time_of_one_round(tmp_path):
    command = ["benchmark", "timing", "--preset", "smoke", "--methods", "adaptntk,qbc,mcd,random", "--device", "cpu"]
    result = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out" / "timing.json").read_text())
    assert found["ratios"]["adaptntk"] == 1
    spent = FolderWorkbench.read_seconds(tmp_path / "out" / "networks")
    assert set(spent) == {"member-0", "member-1", "dropout-0.1"}
    assert found["seconds"]["qbc"]["training"] == pytest.approx(spent["member-0"] + spent["member-1"])
    assert found["seconds"]["mcd"]["training"] == pytest.approx(spent["dropout-0.1"])
    assert found["seconds"]["random"]["training"] == pytest.approx(spent["member-0"])
    assert found["seconds"]["adaptntk"]["training"] == pytest.approx(spent["member-0"])
    assert found["seconds"]["random"]["uncertainty"] == 0
    # The training of the other member, which the committee asks for while it selects, is not counted a second time.
    assert found["seconds"]["qbc"]["selection"] < spent["member-1"] / 2
    assert "over AdaptNTK" in result.output


@pytest.mark.long
def test_sketches_and_their_batches(tmp_path):
    command = ["benchmark", "sketch", "--preset", "smoke", "--dims", "16,exact", "--seeds", "1", "--jobs", "1"]
    result = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "first batch of adaptntk@16 and of exact have" in result.output
