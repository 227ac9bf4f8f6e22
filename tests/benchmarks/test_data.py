"""Pools, test sets and the oracle that sells labels."""

import shutil

import pytest
from benchmarks.al.plan import PLANS
from benchmarks.data.oracle import Oracle
from benchmarks.data.sources import Source
from benchmarks.data.tasks import Sizes, Task, find_tasks
from benchmarks.settings import LearningCurves

from adaptntk.data.structures import has_labels, read_structures, structure_hash, write_structures
from adaptntk.errors import InputError
from tests.benchmarks.conftest import REACTIONS_FILE


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
    """A hundred thousand frames of a molecule."""
    assert PLANS["paper"].sizes["molecule"].needed <= 100_000


@pytest.mark.parametrize("cold_share", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("pool", [7, 10])
def test_as_many_as_needed_are_enough(cold_share, pool, files, tmp_path):
    sizes = Sizes(pool=pool, valid=3, test=3, initial=4, cold_share=cold_share)
    frames = read_structures(files["pool"], labelled=True)
    for count, enough in ((sizes.needed, True), (sizes.needed - 1, False)):
        write_structures(tmp_path / "some.xyz", frames[:count])
        data = Task("some", Source(str(tmp_path / "some.xyz"), None, tmp_path)).load(sizes, seed=0)
        assert (len(data.pool) == pool) == enough


def asked(folder, **options):
    return LearningCurves(output=folder / "out", preset="smoke", **options)


def test_the_published_file_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAPTNTK_DATA", str(tmp_path))
    assert find_tasks(asked(tmp_path, data="t1x"))[0].name == "reactions"
    shutil.copy(REACTIONS_FILE, tmp_path / "Transition1x.h5")
    found = find_tasks(asked(tmp_path, data="t1x"))[0]
    assert (found.name, found.reactions) == ("transition-1x", tmp_path / "Transition1x.h5")


def test_tasks_by_name(tmp_path, files):
    assert [task.name for task in find_tasks(asked(tmp_path))] == ["ethanol"]
    assert [task.name for task in find_tasks(asked(tmp_path, data="rmd17", molecules="benzene,uracil"))] == [
        "benzene",
        "uracil",
    ]
    assert find_tasks(asked(tmp_path, data=str(files["train"])))[0].source.keys == ("REF_energy", "REF_forces")
    assert find_tasks(asked(tmp_path, data=str(REACTIONS_FILE)))[0].level_of_theory == "GFN2-xTB"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "t1x", "molecules": "aspirin"}, "not with reactions"),
        ({"data": "T1X"}, "for reactions t1x or a file"),
        ({"data": "nowhere.xyz"}, "choose rmd17, xtb, sets or a labelled extxyz file"),
        ({"data": "nowhere.h5"}, "no such file"),
    ],
)
def test_bad_data(options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        find_tasks(asked(tmp_path, **options))


def test_the_paper_s_plan_takes_only_the_published_reactions(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAPTNTK_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"not found. It is published as Transition1x.h5"):
        find_tasks(LearningCurves(output=tmp_path, preset="paper", data="t1x"))


def test_what_reactions_are_tested_on():
    """New reactions are not in the pool, other frames of the known ones are; transition states are not."""
    sizes = PLANS["smoke"].sizes["reactions"]
    data = Task("reactions", reactions=REACTIONS_FILE).load(sizes, seed=0)

    def reactions(frames):
        return {atoms.info["reaction"] for atoms in frames}

    learnt = reactions(data.pool)
    assert len(data.pool) == sizes.pool
    assert len(data.valid) == sizes.valid
    assert not reactions(data.tests["new reactions"]) & learnt
    assert reactions(data.tests["known reactions"]) <= learnt
    assert len(data.tests["known reactions"]) == len(data.tests["new reactions"]) == sizes.test
    drawn = {structure_hash(atoms) for atoms in [*data.pool, *data.valid]}
    for kind, count in {"new": 1, "known": 4}.items():
        tops = data.tests[f"{kind} transition states"]
        assert len(tops) == count
        assert not {structure_hash(atoms) for atoms in tops} & drawn
