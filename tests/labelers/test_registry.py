"""Every labeler by its name: the same labels from all of them, and what each refuses."""

import sys

import numpy as np
import pytest
from ase import Atoms
from tblite.ase import TBLite

from adaptntk.data.structures import ENERGY, FORCES, write_structures
from adaptntk.errors import InputError
from adaptntk.labelers.labeler import LabelError, LabelerSpec
from adaptntk.labelers.process import check_spec
from adaptntk.labelers.registry import LABELERS, build_labeler
from adaptntk.testing import check_labeler

SCRIPT = """
import sys, ase.io
from tblite.ase import TBLite
atoms = ase.io.read(sys.argv[1])
atoms.calc = TBLite(method="GFN2-xTB", verbosity=0)
atoms.get_forces()
ase.io.write(sys.argv[2], atoms)
"""


def by_hand(atoms):
    atoms = atoms.copy()
    atoms.calc = TBLite(method="GFN2-xTB", verbosity=0)
    return atoms.get_potential_energy(), atoms.get_forces()


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
        check_spec(spec)


@pytest.mark.parametrize(
    ("script", "story"),
    [
        ("import sys; sys.exit('no licence')", "no licence"),
        ("pass", "no output file"),
        (SCRIPT.replace("atoms.get_forces()", "atoms.positions += 1; atoms.get_forces()"), "changed the structure"),
        (SCRIPT.replace("atoms.get_forces()", "atoms.calc = None"), "has no REF_energy"),
        (SCRIPT.replace("argv[2], atoms", "argv[2], [atoms, atoms]"), "holds 2 structures"),
    ],
)
def test_what_a_command_may_do_wrong(script, story, rattled, tmp_path):
    (tmp_path / "script.py").write_text(script)
    labeler = build_labeler(
        LabelerSpec("command", {"command": f"{sys.executable} {tmp_path}/script.py {{input}} {{output}}"})
    )
    with pytest.raises(LabelError, match=story):
        labeler.label(rattled[0])


def test_a_command_may_say_what_it_likes_and_is_not_answered(rattled, tmp_path):
    """Bytes that are no text do not cost the label, and who asks a question finds the end of the file."""
    noise = "import sys; sys.stdout.buffer.write(bytes(range(256))); assert sys.stdin.read() == ''\n"
    (tmp_path / "script.py").write_text(noise + SCRIPT)
    command = f"{sys.executable} {tmp_path}/script.py {{input}} {{output}}"
    assert np.isfinite(build_labeler(LabelerSpec("command", {"command": command})).label(rattled[0])[0])


def test_a_script_that_is_not_there_is_named(rattled, tmp_path):
    spec = LabelerSpec("command", {"command": f"{sys.executable} lable.py {{input}} {{output}}"}, folder=str(tmp_path))
    with pytest.raises(LabelError, match=f"there is no lable.py in {tmp_path}"):
        build_labeler(spec).label(rattled[0])


class Pair:
    """A labeler of a user, by its dotted name: a harmonic bond between the first two atoms."""

    def __init__(self, constant=1.0, sign=1.0):
        self.constant, self.sign = constant, sign

    def label(self, atoms):
        bond = atoms.positions[1] - atoms.positions[0]
        forces = np.zeros((len(atoms), 3))
        forces[0], forces[1] = self.constant * bond, -self.constant * bond
        return 0.5 * self.constant * float(bond @ bond), self.sign * forces


def test_a_labeler_of_a_user(rattled):
    labeler = build_labeler(LabelerSpec(f"{__name__}.Pair", {"constant": 3.0}))
    assert labeler.constant == 3.0
    check_labeler(labeler, rattled)
    check_spec(LabelerSpec(f"{__name__}.Pair"))


class Forgetful(Pair):
    def label(self, atoms):
        self.constant *= 1.1
        return super().label(atoms)


class Greedy(Pair):
    def label(self, atoms):
        found = super().label(atoms)
        atoms.positions += 1
        return found


@pytest.mark.parametrize(
    ("labeler", "message"),
    [(Pair(sign=-1.0), "unit or sign"), (Forgetful(), "labelled before it"), (Greedy(), "changed the structure")],
)
def test_the_public_check_notices(labeler, message, rattled):
    with pytest.raises(AssertionError, match=message):
        check_labeler(labeler, rattled)


def test_all_that_are_registered_can_be_imported():
    for kind in LABELERS:
        with pytest.raises(InputError, match="cannot be built"):
            build_labeler(LabelerSpec(kind, {"no such setting": 1}))
