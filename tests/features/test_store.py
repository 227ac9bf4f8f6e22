import json
import os
import signal
import subprocess
import sys
import time

import ase.io
import numpy as np
import pytest
import torch
from adaptntk.uncertainty.ntk import NTKUncertainty
from typer.testing import CliRunner

from adaptntk.cli.app import app
from adaptntk.core.selection.greedy import greedy, top_b
from adaptntk.data import structure_file
from adaptntk.data.structure_file import StructureFile, open_structures
from adaptntk.data.structures import structure_hash, write_structures
from adaptntk.errors import InputError, MismatchError
from adaptntk.features.store import FeatureStore
from adaptntk.verbs import score, select

IDENTITY = {"model": "a" * 64, "sketch": {"kind": "gaussian", "dim": 4, "seed": 0}}
HASHES = [f"{number:064x}" for number in (7, 3, 2**255, 256, 5)]


@pytest.fixture
def rows():
    return torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def store(tmp_path, rows):
    store = FeatureStore(tmp_path / "store", IDENTITY, 4)
    store.append(HASHES[:3], rows[:3])
    store.append(HASHES[3:], rows[3:])
    return store


def reopen(store):
    return FeatureStore(store.folder, IDENTITY, 4)


def test_rows_are_found_by_hash(store, rows):
    for each in (store, reopen(store)):
        assert len(each) == 5
        assert each.find([HASHES[4], "f" * 64, HASHES[0]]).tolist() == [4, -1, 0]
        found = each.rows(np.array([4, 0, 2]))
        assert found.shape == (3, 4)
        assert torch.equal(found[0:2], rows[[4, 0]])
        assert torch.equal(found[torch.tensor([2, 0])], rows[[2, 4]])
        each.check(np.arange(5))


def test_an_empty_store(tmp_path):
    store = FeatureStore(tmp_path / "new" / "store", IDENTITY, 4)
    assert len(store) == 0
    assert store.find(HASHES).tolist() == [-1] * 5
    assert len(store.rows(np.array([], dtype=int))[0:3]) == 0


@pytest.mark.parametrize("cut", [1, 17, 31, 33, 40])
def test_what_an_interruption_left_is_cut_off(store, rows, cut):
    """Rows without entries, half a row, half an entry."""
    for name in ("rows.bin", "index.bin"):
        path = store.folder / name
        os.truncate(path, path.stat().st_size - (cut if name == "index.bin" or cut % 2 else 0))
    again = reopen(store)
    assert len(again) < 5
    assert (store.folder / "rows.bin").stat().st_size == len(again) * 32
    missing = [number for number, place in enumerate(again.find(HASHES)) if place < 0]
    again.append([HASHES[number] for number in missing], rows[missing])
    assert torch.equal(again.rows(again.find(HASHES))[0:5], rows)


def test_a_damaged_row_is_noticed(store):
    with (store.folder / "rows.bin").open("rb+") as file:
        file.seek(40)
        file.write(b"\x01\x02")
    with pytest.raises(InputError, match="row 1 is damaged"):
        reopen(store).check(np.arange(5))


def test_a_store_of_something_else_is_refused(store, tmp_path):
    with pytest.raises(MismatchError, match=r"model is aaaa.* there and bbbb.* here"):
        FeatureStore(store.folder, IDENTITY | {"model": "b" * 64}, 4)
    with pytest.raises(MismatchError, match="dim is 4 there and 8 here"):
        FeatureStore(store.folder, IDENTITY, 8)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match="not a feature store, and not empty"):
        FeatureStore(tmp_path / "other", IDENTITY, 4)
    (store.folder / "store.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        reopen(store)
    with pytest.raises(InputError, match="not a directory"):
        FeatureStore(store.folder / "store.json", IDENTITY, 4)


def test_a_newer_version_is_refused(store):
    path = store.folder / "store.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 2}))
    with pytest.raises(MismatchError, match="version is 2 there and 1 here"):
        reopen(store)


def test_two_writers(store, rows):
    second = reopen(store)
    second.append(["e" * 64], rows[:1])
    with pytest.raises(InputError, match="another process has changed"):
        store.append(["d" * 64], rows[:1])
    with second._lock(), pytest.raises(InputError, match="another process is writing"):
        reopen(store)


def test_rows_without_entries_of_a_killed_writer(store, rows):
    """A second process has the store open when the first dies between its rows and their entries."""
    with (store.folder / "rows.bin").open("ab") as file:
        file.write(b"x" * 50)
    store.append(["c" * 64], rows[:1])
    assert torch.equal(store.rows(store.find(["c" * 64]))[0:1], rows[:1])
    reopen(store).check(np.arange(6))


def test_a_full_disk_leaves_the_store_as_it_was(store, rows, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        store.append(["c" * 64], rows[:1])
    monkeypatch.undo()
    assert len(reopen(store)) == 5
    store.append(["c" * 64], rows[:1])
    assert len(reopen(store)) == 6


def test_a_row_that_is_not_there(store):
    with pytest.raises(InputError, match="have no row"):
        store.rows(np.array([0, -1]))


def test_selection_from_a_file_is_that_from_memory(tmp_path, features):
    train, candidates, lam = features
    from adaptntk.core.posterior import Posterior

    posterior = Posterior.fit(train, lam)
    store = FeatureStore(tmp_path / "store", IDENTITY, candidates.shape[1])
    store.append([f"{number:064x}" for number in range(len(candidates))], candidates)
    shuffled = torch.randperm(len(candidates), generator=torch.Generator().manual_seed(0))
    stored = store.rows(shuffled.numpy())
    for method in (greedy, top_b):
        expected = method(posterior, candidates[shuffled], 30)
        assert method(posterior, stored, 30).indices == expected.indices


def test_stored_features_are_computed_once(fitted, parts, tmp_path, monkeypatch):
    store = fitted.open_store(tmp_path / "store")
    pool = [*parts["pool"][:10], parts["pool"][3]]
    rows = fitted.stored_features(pool, store)
    assert len(store) == 10
    # float32 gradients depend on the batch to rounding.
    assert torch.allclose(rows[0:11], fitted.features_of(pool), rtol=0, atol=1e-5 * float(rows[0:11].abs().max()))

    def fail(*args):
        raise AssertionError("computed again")

    monkeypatch.setattr(NTKUncertainty, "features_of", fail)
    again = fitted.stored_features(pool[::-1], fitted.open_store(tmp_path / "store"))
    assert torch.equal(again[0:11].flip(0), rows[0:11])


def test_another_sketch_has_another_store(fitted, tmp_path):
    import dataclasses

    from adaptntk.core.sketch.gaussian import GaussianSketch

    fitted.open_store(tmp_path / "store")
    other = dataclasses.replace(fitted, sketch=GaussianSketch(512, seed=1))
    with pytest.raises(MismatchError, match="sketch is"):
        other.open_store(tmp_path / "store")


def test_a_file_frame_by_frame_gives_the_same_results(ntk_file, files, tmp_path, monkeypatch):
    given = {"ntk": ntk_file, "pool": files["pool"], "count": 5}
    kept = select(**given, output=tmp_path / "a.xyz", figure=tmp_path / "a.png")
    # From here on even a small file is large beside its budget.
    monkeypatch.setattr(structure_file, "_SHARE_OF_BUDGET", 10**6)
    assert isinstance(open_structures(files["pool"], memory_budget=2**24), StructureFile)
    little = {"store": tmp_path / "s", "memory": 1 / 64}
    streamed = select(**given, **little, output=tmp_path / "b.xyz", figure=tmp_path / "b.png")
    assert streamed.selection.indices == kept.selection.indices
    assert (tmp_path / "a.xyz").read_text().splitlines()[2] == (tmp_path / "b.xyz").read_text().splitlines()[2]
    plain = score(ntk=ntk_file, structures=files["pool"], output=tmp_path / "c.xyz")
    stored = score(ntk=ntk_file, structures=files["pool"], output=tmp_path / "d.xyz", **little)
    assert np.allclose(plain.scores.variance, stored.scores.variance, rtol=1e-4)
    assert len(ase.io.read(tmp_path / "d.xyz", ":")) == 30


def test_score_goes_on_after_a_kill(ntk_file, parts, tmp_path, monkeypatch):
    pool = []
    rng = np.random.default_rng(0)
    for _ in range(80):
        for atoms in parts["pool"]:
            moved = atoms.copy()
            moved.rattle(0.01, rng=rng)
            pool.append(moved)
    write_structures(tmp_path / "pool.xyz", pool)
    command = [
        sys.executable, "-m", "adaptntk", "score", str(ntk_file), str(tmp_path / "pool.xyz"),
        "-o", str(tmp_path / "scored.xyz"), "--store", str(tmp_path / "store"),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    index = tmp_path / "store" / "index.bin"
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not (index.exists() and index.stat().st_size):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = index.stat().st_size // 36
    assert 0 < done < len(pool)
    assert not (tmp_path / "scored.xyz").exists()
    finished = CliRunner().invoke(app, command[3:])
    assert finished.exit_code == 0, finished.output
    assert f"{done} of {len(pool)} structures are in the feature store" in finished.output
    assert len(ase.io.read(tmp_path / "scored.xyz", ":")) == len(pool)


def test_hash_keys_are_those_of_the_structures(fitted, parts, tmp_path):
    store = fitted.open_store(tmp_path / "store")
    fitted.stored_features(parts["pool"][:3], store)
    assert store.find([structure_hash(atoms) for atoms in parts["pool"][:4]]).tolist() == [0, 1, 2, -1]
