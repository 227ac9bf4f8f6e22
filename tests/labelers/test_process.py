"""Labels on disk before anybody is told, once, with the story of those that failed."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from ase import Atoms

from adaptntk.data.structures import ENERGY, FORCES, read_structures, structure_hash, write_structures
from adaptntk.execution import open_executor
from adaptntk.labelers.labeler import LabelError, LabelerSpec, check_geometry
from adaptntk.labelers.process import Request, label_structure
from adaptntk.labelers.registry import build_labeler


def troubled(**arguments):
    limits = {key: arguments.pop(key) for key in ("time_limit", "attempts") if key in arguments}
    settings = {"calculator": "tests.troubled.Troubled", "arguments": arguments}
    return LabelerSpec("ase", settings, **limits)


def read_label(request):
    (labelled,) = read_structures(request.label_file, labelled=True)
    return labelled


def test_a_label_is_on_disk_with_its_provenance_and_not_paid_twice(rattled, tmp_path):
    log = tmp_path / "log"
    spec = troubled(log=str(log))
    for _ in range(2):
        for atoms in rattled[:3]:
            request = Request(spec, atoms, tmp_path)
            assert label_structure(request)
            labelled = read_label(request)
            expected, _ = build_labeler(LabelerSpec("tblite")).label(atoms)
            assert labelled.info[ENERGY] == pytest.approx(expected, abs=1e-6)
            assert labelled.info["role"] == "train"
            assert labelled.info["label_seconds"] > 0
    assert sorted(log.read_text().split()) == sorted(structure_hash(atoms) for atoms in rattled[:3])


@pytest.mark.parametrize(
    ("trouble", "story", "attempts"),
    [
        ("fail", "SCF not converged", 2),
        ("hang", "time limit of 4 s", 1),
        ("crash", "SIGABRT", 2),
        ("nan", "NaN", 2),
        ("huge", "larger than the 100", 2),
    ],
)
def test_trouble_is_told_in_the_quarantine(trouble, story, attempts, rattled, tmp_path):
    spec = troubled(trouble=trouble, share=1.0, time_limit=4)
    request = Request(spec, rattled[0], tmp_path)
    assert not label_structure(request)
    content = json.loads(request.failure.path.read_text())
    assert content["role"] == "train"
    assert len(content["attempts"]) == attempts
    assert all(story in attempt["error"] for attempt in content["attempts"])
    (kept,) = read_structures(request.failure.structures)
    assert structure_hash(kept) == structure_hash(rattled[0])
    # The next one is labelled as if nothing had happened.
    assert label_structure(Request(troubled(trouble=trouble), rattled[1], tmp_path))


def test_fused_atoms_are_not_calculated(tmp_path):
    spec = troubled(log=str(tmp_path / "log"))
    fused = Atoms("OH2", positions=[[0, 0, 0], [0.4, 0, 0], [0, 1, 0]])
    with pytest.raises(LabelError, match=r"O0 and H1|H1 and O0"):
        check_geometry(fused, spec)
    assert not label_structure(Request(spec, fused, tmp_path))
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("kind", ["serial", "local", "dask"])
def test_every_executor_gives_the_same_labels(kind, rattled, tmp_path):
    pytest.importorskip("distributed", reason="the extra dask is not installed") if kind == "dask" else None
    with open_executor(kind, workers=2) as executor:
        done = list(executor.map(label_structure, [Request(LabelerSpec("tblite"), a, tmp_path) for a in rattled[:4]]))
    assert all(done)
    for atoms in rattled[:4]:
        energy, forces = build_labeler(LabelerSpec("tblite")).label(atoms)
        labelled = read_label(Request(LabelerSpec("tblite"), atoms, tmp_path))
        assert labelled.info[ENERGY] == energy
        assert np.allclose(labelled.arrays[FORCES], forces, atol=1e-8)  # digits of the file


DRIVER = """
import sys
from adaptntk.data.structures import read_structures
from adaptntk.labelers.labeler import LabelerSpec
from adaptntk.labelers.process import Request, label_structure
from pathlib import Path
spec = LabelerSpec("ase", {"calculator": "tests.troubled.Troubled", "arguments": {"log": sys.argv[1], "seconds": 3.0}})
label_structure(Request(spec, read_structures(sys.argv[2])[0], Path(sys.argv[3])))
"""


def test_a_label_in_progress_outlives_its_driver_and_is_waited_for(rattled, tmp_path):
    log = tmp_path / "log"
    write_structures(tmp_path / "one.xyz", rattled[:1])
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(log), str(tmp_path / "one.xyz"), str(tmp_path)])
    lock = tmp_path / "labels" / ".locks" / structure_hash(rattled[0])
    deadline = time.monotonic() + 60
    while not lock.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    spec = troubled(log=str(log), seconds=3.0)
    request = Request(spec, read_structures(tmp_path / "one.xyz")[0], tmp_path)
    assert not request.label_file.exists()
    assert label_structure(request)
    assert log.read_text().split() == [structure_hash(rattled[0])]
