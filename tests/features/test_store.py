import json
import os
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
import torch

from adaptntk.core.posterior import Posterior
from adaptntk.core.selection.registry import SELECTORS
from adaptntk.errors import InputError, MismatchError
from adaptntk.features.store import FeatureStore
from tests.core.selection.rules import select

IDENTITY = {"model": "a" * 64, "sketch": {"kind": "gaussian", "dim": 4, "seed": 0}}
HASHES = [f"{number:064x}" for number in (7, 3, 2**255, 256, 5)]


@pytest.fixture
def blocks():
    """Blocks of two rows, of which one is asked about."""
    return torch.randn(5, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def store(tmp_path, blocks):
    store = FeatureStore(tmp_path / "store", IDENTITY, 4, rows=2)
    store.append(HASHES[:3], blocks[:3])
    store.append(HASHES[3:], blocks[3:])
    return store


def reopen(store):
    return FeatureStore(store.folder, IDENTITY, 4, rows=2)


def test_rows_are_found_by_hash(store, blocks):
    for each in (store, reopen(store)):
        assert len(each) == 5
        assert each.find([HASHES[4], "f" * 64, HASHES[0]]).tolist() == [4, -1, 0]
        found = each.blocks(np.array([4, 0, 2]))
        assert found.shape == (3, 2, 4)
        assert found.asked == 1
        assert torch.equal(found[0:2], blocks[[4, 0]])
        assert torch.equal(found[torch.tensor([2, 0])], blocks[[2, 4]])
        each.check(np.arange(5))


def test_an_empty_store(tmp_path):
    store = FeatureStore(tmp_path / "new" / "store", IDENTITY, 4)
    assert len(store) == 0
    assert store.find(HASHES).tolist() == [-1] * 5
    assert len(store.blocks(np.array([], dtype=int))[0:3]) == 0


@pytest.mark.parametrize("cut", [1, 17, 31, 33, 40])
def test_what_an_interruption_left_is_cut_off(store, blocks, cut):
    """Rows without entries, half a row, half an entry."""
    for name in ("rows.bin", "index.bin"):
        path = store.folder / name
        os.truncate(path, path.stat().st_size - (cut if name == "index.bin" or cut % 2 else 0))
    again = reopen(store)
    assert len(again) < 5
    assert (store.folder / "rows.bin").stat().st_size == len(again) * 64
    missing = [number for number, place in enumerate(again.find(HASHES)) if place < 0]
    again.append([HASHES[number] for number in missing], blocks[missing])
    assert torch.equal(again.blocks(again.find(HASHES))[0:5], blocks)


def test_a_damaged_row_is_noticed(store):
    with (store.folder / "rows.bin").open("rb+") as file:
        file.seek(72)
        file.write(b"\x01\x02")
    with pytest.raises(InputError, match="row 1 is damaged"):
        reopen(store).check(np.arange(5))


def test_a_store_of_something_else_is_refused(store, tmp_path):
    with pytest.raises(MismatchError, match=r"model is aaaa.* there and bbbb.* here"):
        FeatureStore(store.folder, IDENTITY | {"model": "b" * 64}, 4, rows=2)
    with pytest.raises(MismatchError, match="dim is 4 there and 8 here"):
        FeatureStore(store.folder, IDENTITY, 8, rows=2)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match="not a feature store, and not empty"):
        FeatureStore(tmp_path / "other", IDENTITY, 4)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.tex"]
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


def test_two_writers_take_in_what_the_other_has_added(store, blocks):
    second = reopen(store)
    second.append(["e" * 64, "d" * 64], blocks[:2])
    store.append(["c" * 64, "d" * 64], blocks[2:4])
    assert len(store) == len(reopen(store)) == 8
    assert len(second) == 7
    for each in (store, reopen(store)):
        found = each.find(["e" * 64, "d" * 64, "c" * 64])
        assert torch.equal(each.blocks(found)[:], blocks[:3])
        each.check(np.arange(8))


def test_a_store_that_somebody_has_cut_is_not_added_to(store, blocks):
    os.truncate(store.folder / "index.bin", 36)
    with pytest.raises(InputError, match="another process has changed"):
        store.append(["d" * 64], blocks[:1])


CREATOR = """
import sys, time, torch
from pathlib import Path
from adaptntk.features.store import FeatureStore
folder, name = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for trial in range(4):
    store = FeatureStore(folder / str(trial), {"model": "a" * 64}, 4)
    for number in range(5):
        hashes = [f"{number:064x}", f"{1000 * name + number:064x}"]
        missing = [digest for digest, place in zip(hashes, store.find(hashes)) if place < 0]
        time.sleep(0.001)
        store.append(missing, torch.full((len(missing), 1, 4), float(number), dtype=torch.float64))
"""


def test_creators_at_the_same_moment(tmp_path):
    def start(name):
        command = [sys.executable, "-c", CREATOR, str(tmp_path), str(name)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    creators = [start(name) for name in (1, 2, 3)]
    assert all(creator.stdout.readline() == b"ready\n" for creator in creators)
    for creator in creators:
        creator.stdin.write(b"go\n")
        creator.stdin.flush()
    for creator in creators:
        _, errors = creator.communicate(timeout=100)
        assert creator.returncode == 0, errors.decode()
    for trial in range(4):
        store = FeatureStore(tmp_path / str(trial), {"model": "a" * 64}, 4)
        assert len(store) == 5 + 3 * 5
        for number in range(5):
            hashes = [f"{value:064x}" for value in (number, *(1000 * name + number for name in (1, 2, 3)))]
            assert (store.blocks(store.find(hashes))[:] == number).all()
        store.check(np.arange(20))


def test_a_file_that_has_become_shorter_gives_no_wrong_rows(store):
    os.truncate(store.folder / "rows.bin", 2 * 64 + 10)
    for numbers in ([2], [0, 2], [1, 2, 3], [4]):
        with pytest.raises(InputError, match="shorter than its index says"):
            store.read(np.array(numbers))
    # Opened again it holds what is whole.
    again = reopen(store)
    assert len(again) == 2
    again.check(np.arange(2))
    (store.folder / "rows.bin").unlink()
    with pytest.raises(InputError, match=r"cannot read .*rows\.bin: No such file"):
        again.read(np.array([0]))


@pytest.mark.parametrize(
    "text", ["", "[]", "3", "[" * 10**5, '{"dim": NaN}', '{"a": 1, "a": 1}', "\0", '{"dim": [[4]]}']
)
def test_garbage_for_a_description_is_one_line(store, text):
    (store.folder / "store.json").write_text(text)
    with pytest.raises((InputError, MismatchError)) as no:
        reopen(store)
    assert "\n" not in str(no.value)


@pytest.mark.parametrize("name", ["rows.bin", "index.bin", "store.json"])
def test_folders_in_place_of_files_are_one_line(store, name):
    (store.folder / name).unlink()
    (store.folder / name).mkdir()
    with pytest.raises(InputError, match=rf"cannot (use|read) .*{name}: Is a directory"):
        reopen(store)


def test_garbage_for_an_index_gives_no_wrong_rows(store, blocks):
    path = store.folder / "index.bin"
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(50):
        flipped = bytearray(whole)
        flipped[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        again = reopen(store)
        found = again.find(HASHES)
        there = found >= 0
        with suppress(InputError):
            again.check(found[there])
            assert torch.equal(again.blocks(found[there])[:], blocks[there])


def test_rows_without_entries_of_a_killed_writer(store, blocks):
    """A second process has the store open when the first dies between its rows and their entries."""
    with (store.folder / "rows.bin").open("ab") as file:
        file.write(b"x" * 50)
    store.append(["c" * 64], blocks[:1])
    assert torch.equal(store.blocks(store.find(["c" * 64]))[0:1], blocks[:1])
    reopen(store).check(np.arange(6))


def test_a_full_disk_leaves_the_store_as_it_was(store, blocks, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        store.append(["c" * 64], blocks[:1])
    monkeypatch.undo()
    assert len(reopen(store)) == 5
    store.append(["c" * 64], blocks[:1])
    assert len(reopen(store)) == 6


def test_a_block_that_is_not_there(store):
    with pytest.raises(InputError, match="have no block"):
        store.blocks(np.array([0, -1]))


@pytest.mark.parametrize("rule", SELECTORS)
def test_selection_from_a_file_is_that_from_memory(tmp_path, features, rule):
    train, candidates, lam = features
    posterior = Posterior.fit(train, lam)
    store = FeatureStore(tmp_path / "store", IDENTITY, candidates.shape[1])
    store.append([f"{number:064x}" for number in range(len(candidates))], candidates[:, None])
    shuffled = torch.randperm(len(candidates), generator=torch.Generator().manual_seed(0))
    stored = store.blocks(shuffled.numpy())
    expected = select(rule, posterior, train, candidates[shuffled], 15).indices
    assert select(rule, posterior, train, stored, 15).indices == expected


def test_a_store_from_before_blocks_had_rows(tmp_path, blocks):
    """Its description says nothing of rows or of a feature map."""
    first = FeatureStore(tmp_path / "old", {"map": "energy", **IDENTITY}, 4)
    first.append(HASHES, blocks[:, :1])
    path = tmp_path / "old" / "store.json"
    described = json.loads(path.read_text())
    path.write_text(json.dumps({key: described[key] for key in described if key not in ("map", "rows")}))
    again = FeatureStore(tmp_path / "old", {"map": "energy", **IDENTITY}, 4)
    assert torch.equal(again.blocks(again.find(HASHES))[:], blocks[:, :1])
    with pytest.raises(MismatchError, match="rows is 1 there and 2 here"):
        FeatureStore(tmp_path / "old", {"map": "energy", **IDENTITY}, 4, rows=2)
    with pytest.raises(MismatchError, match="map is energy there and last_layer here"):
        FeatureStore(tmp_path / "old", {"map": "last_layer", **IDENTITY}, 4)


def test_blocks_of_another_shape_are_refused(store, blocks):
    with pytest.raises(InputError, match="1 blocks of 2 x 4 numbers expected"):
        store.append(["c" * 64], blocks[:1, :1])


@pytest.mark.parametrize("name", ["rows.bin", "index.bin"])
def test_a_pipe_in_place_of_a_file_is_refused(name, tmp_path):
    FeatureStore(tmp_path, {"model": "a"}, width=4)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    assert not FeatureStore.held(tmp_path, ["00" * 32]).any()
    with pytest.raises(InputError, match="no ordinary file"):
        FeatureStore(tmp_path, {"model": "a"}, width=4)
