"""Labels: from all kinds of labelers, on disk before anybody is told, with the story of those that failed."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from ase import Atoms
from tblite.ase import TBLite

from adaptntk.data.structures import ENERGY, FORCES, read_structures, structure_hash, write_structures
from adaptntk.data.xtb_md import build_molecule
from adaptntk.errors import InputError
from adaptntk.execution import open_executor
from adaptntk.labelers.labeler import LabelError, LabelerSpec, check_geometry
from adaptntk.labelers.process import Request, check_labeler, label_structure
from adaptntk.labelers.registry import build_labeler

SCRIPT = """
import sys, ase.io
from tblite.ase import TBLite
atoms = ase.io.read(sys.argv[1])
atoms.calc = TBLite(method="GFN2-xTB", verbosity=0)
atoms.get_forces()
ase.io.write(sys.argv[2], atoms)
"""


def troubled(**arguments):
    limits = {key: arguments.pop(key) for key in ("time_limit", "attempts") if key in arguments}
    settings = {"calculator": "tests.troubled.Troubled", "arguments": arguments}
    return LabelerSpec("ase", settings, **limits)


@pytest.fixture(scope="module")
def rattled():
    frames = []
    for seed in range(9):
        atoms = build_molecule("water")
        atoms.rattle(0.05, seed=seed)
        atoms.info = {"round": 0, "role": "train"}
        frames.append(atoms)
    return frames


def by_hand(atoms):
    atoms = atoms.copy()
    atoms.calc = TBLite(method="GFN2-xTB", verbosity=0)
    return atoms.get_potential_energy(), atoms.get_forces()


def read_label(request):
    (labelled,) = read_structures(request.label_file, labelled=True)
    return labelled


def test_every_kind_gives_what_the_calculator_gives(rattled, tmp_path):
    atoms = rattled[0]
    energy, forces = by_hand(atoms)
    (tmp_path / "script.py").write_text(SCRIPT)
    labelled = atoms.copy()
    labelled.info[ENERGY], labelled.arrays[FORCES] = energy, forces
    write_structures(tmp_path / "known.xyz", [labelled])
    for spec in (
        LabelerSpec("tblite"),
        LabelerSpec("ase", {"calculator": "tblite.ase.TBLite", "arguments": {"method": "GFN2-xTB", "verbosity": 0}}),
        LabelerSpec("command", {"command": f"{sys.executable} {tmp_path}/script.py {{input}} {{output}}"}),
        LabelerSpec("dataset", {"file": str(tmp_path / "known.xyz")}),
    ):
        found = build_labeler(spec).label(atoms)
        assert found[0] == pytest.approx(energy, abs=1e-6), spec.kind
        assert np.allclose(found[1], forces, atol=1e-5), spec.kind


def test_a_label_does_not_depend_on_what_was_labelled_before(rattled):
    labeler = build_labeler(LabelerSpec("tblite"))
    alone = build_labeler(LabelerSpec("tblite")).label(rattled[3])
    for atoms in rattled[:4]:
        found = labeler.label(atoms)
    assert found[0] == alone[0]
    assert np.array_equal(found[1], alone[1])


def test_pyscf_forces_are_the_slope_of_its_energy():
    pytest.importorskip("pyscf", reason="the extra pyscf is not installed")
    labeler = build_labeler(LabelerSpec("pyscf", {"xc": "pbe", "basis": "sto-3g"}))
    atoms = Atoms("H2", positions=[[0, 0, 0], [0, 0, 0.8]])
    energy, forces = labeler.label(atoms)
    energies = []
    for step in (1e-3, -1e-3):
        moved = atoms.copy()
        moved.positions[1, 2] += step
        energies.append(labeler.label(moved)[0])
    assert -40 < energy < -25
    assert forces[1, 2] == pytest.approx(-(energies[0] - energies[1]) / 2e-3, abs=1e-3)


def test_a_label_is_on_disk_with_its_provenance_and_not_paid_twice(rattled, tmp_path):
    log = tmp_path / "log"
    spec = troubled(log=str(log))
    for _ in range(2):
        for atoms in rattled[:3]:
            request = Request(spec, atoms, tmp_path)
            assert label_structure(request)
            labelled = read_label(request)
            assert labelled.info[ENERGY] == pytest.approx(by_hand(atoms)[0], abs=1e-6)
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
    content = json.loads(request.quarantine_file.read_text())
    assert content["role"] == "train"
    assert len(content["attempts"]) == attempts
    assert all(story in attempt["error"] for attempt in content["attempts"])
    (kept,) = read_structures(request.quarantine_file.with_suffix(".xyz"))
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


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (LabelerSpec("gaussian"), "choose one of tblite"),
        (LabelerSpec("tblite", {"colour": "red"}), "cannot be built"),
        (LabelerSpec("ase", {"calculator": "nowhere.Calculator"}), "cannot be imported"),
        (LabelerSpec("command", {"command": "true"}), "{input}"),
        (LabelerSpec("tblite", attempts=0), "at least one attempt"),
    ],
)
def test_a_labeler_that_cannot_be_built_is_refused(spec, message):
    with pytest.raises(InputError, match=message):
        check_labeler(spec)


@pytest.mark.parametrize(
    ("script", "story"),
    [
        ("import sys; sys.exit('no licence')", "no licence"),
        ("pass", "no output file"),
        (SCRIPT.replace("atoms.get_forces()", "atoms.positions += 1; atoms.get_forces()"), "changed the structure"),
        (SCRIPT.replace("atoms.get_forces()", "atoms.calc = None"), "has no REF_energy"),
    ],
)
def test_what_a_command_may_do_wrong(script, story, rattled, tmp_path):
    (tmp_path / "script.py").write_text(script)
    labeler = build_labeler(
        LabelerSpec("command", {"command": f"{sys.executable} {tmp_path}/script.py {{input}} {{output}}"})
    )
    with pytest.raises(LabelError, match=story):
        labeler.label(rattled[0])


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
