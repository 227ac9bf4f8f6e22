"""The labelers by name: built-in codes, any ASE calculator, a user's own script, and a data set that plays oracle."""

import importlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ase.io
import numpy as np
from ase import Atoms, units
from ase.calculators.calculator import Calculator

from adaptntk.data.structures import ENERGY, FORCES, read_structures, structure_hash
from adaptntk.errors import InputError
from adaptntk.labelers.labeler import Array, Labeler, LabelError, LabelerSpec


class CalculatorLabeler:
    """Any ASE calculator.

    Args:
        calculator: where it is: ``package.module.Name``, a class or a function that returns a calculator.
        arguments: its keyword arguments.
    """

    def __init__(self, calculator: str, arguments: Mapping[str, Any] | None = None) -> None:
        self.calculator: Calculator = import_name(calculator)(**dict(arguments or {}))

    def label(self, atoms: Atoms) -> tuple[float, Array]:
        # A calculation that failed may have left results behind, which a second attempt must not find.
        self.calculator.reset()
        atoms = bare(atoms)
        atoms.calc = self.calculator
        return float(atoms.get_potential_energy()), np.array(atoms.get_forces(), dtype=float)


class TBLiteLabeler(CalculatorLabeler):
    """GFN2-xTB and its relatives by the package tblite.

    Args:
        method: ``GFN2-xTB``, ``GFN1-xTB`` or ``IPEA1-xTB``.
        charge: of the whole system.
        accuracy: of the self-consistency; smaller is tighter.
    """

    def __init__(self, method: str = "GFN2-xTB", charge: int = 0, accuracy: float = 1.0) -> None:
        # Nothing cached: else it begins with the density of the last structure, on which the last digits depend.
        arguments = {"method": method, "charge": charge, "accuracy": accuracy, "verbosity": 0, "cache_api": False}
        super().__init__("tblite.ase.TBLite", arguments)


class PySCFLabeler:
    """Density functional theory by PySCF, for molecules; needs the extra ``pyscf``.

    Args:
        xc: the functional, as PySCF spells it; ``hf`` for Hartree-Fock.
        basis: the basis set.
        charge, spin: of the molecule; spin is the number of unpaired electrons.
        max_cycle: iterations after which the calculation counts as not converged.
    """

    def __init__(
        self, xc: str = "b3lyp", basis: str = "def2-svp", charge: int = 0, spin: int = 0, max_cycle: int = 100
    ) -> None:
        try:
            self._pyscf = importlib.import_module("pyscf")
            importlib.import_module("pyscf.dft")
        except ImportError:
            raise InputError("the labeler pyscf needs the package: pip install adaptntk[pyscf]") from None
        self.xc, self.basis, self.charge, self.spin, self.max_cycle = xc, basis, charge, spin, max_cycle

    def label(self, atoms: Atoms) -> tuple[float, Array]:
        if atoms.pbc.any():
            raise LabelError("the labeler pyscf is for molecules, not for periodic structures")
        molecule = self._pyscf.gto.M(
            atom=list(zip(atoms.get_chemical_symbols(), atoms.positions.tolist(), strict=True)),
            unit="Angstrom",
            basis=self.basis,
            charge=self.charge,
            spin=self.spin,
            verbose=0,
        )
        field = self._pyscf.dft.KS(molecule, xc=self.xc)
        field.max_cycle = self.max_cycle
        energy = field.kernel()
        if not field.converged:
            raise LabelError(f"the self-consistent field did not converge in {self.max_cycle} cycles")
        gradient = field.nuc_grad_method().kernel()
        return float(energy) * units.Hartree, -np.asarray(gradient) * units.Hartree / units.Bohr


class CommandLabeler:
    """A user's own program: it reads one structure as extxyz and writes it with energy and forces as extxyz.

    Args:
        command: with ``{input}`` and ``{output}`` where the names of the two files belong.
        energy_key, forces_key: where the program puts the labels; also read from an ASE calculator's results.
    """

    def __init__(self, command: str, energy_key: str = ENERGY, forces_key: str = FORCES) -> None:
        if "{input}" not in command or "{output}" not in command:
            raise InputError("the command of a labeler must name the files {input} and {output}")
        self.command, self.keys = command, (energy_key, forces_key)

    def label(self, atoms: Atoms) -> tuple[float, Array]:
        with tempfile.TemporaryDirectory(prefix="adaptntk-label-") as name:
            given, result = Path(name) / "input.xyz", Path(name) / "output.xyz"
            ase.io.write(given, bare(atoms), format="extxyz")
            words = [word.format(input=given, output=result) for word in shlex.split(self.command)]
            finished = subprocess.run(words, capture_output=True, text=True, cwd=name, check=False)
            if finished.returncode != 0:
                said = (finished.stderr.strip() or finished.stdout.strip()).splitlines()[-1:]
                raise LabelError(f"the command ended with code {finished.returncode}: {' '.join(said) or 'no message'}")
            if not result.exists():
                raise LabelError("the command wrote no output file")
            (labelled,) = read_structures(result, *self.keys, own=True)
            energy, forces = labelled.info.get(ENERGY), labelled.arrays.get(FORCES)
            # Plain keys are what a program has that writes the results of a calculator.
            energy = labelled.info.get("energy") if energy is None else energy
            forces = labelled.arrays.get("forces") if forces is None else forces
            if energy is None or forces is None:
                raise LabelError(f"the output of the command has no {' or '.join(self.keys)}")
            if structure_hash(labelled) != structure_hash(atoms):
                raise LabelError("the command changed the structure: atoms must come back in place and in order")
            return float(energy), np.asarray(forces, dtype=float)


class DatasetLabeler:
    """A labelled file that plays oracle: knows the structures it holds, and no other.

    Args:
        file: the labelled structures.
        energy_key, forces_key: where the labels stand.
    """

    def __init__(self, file: str, energy_key: str = ENERGY, forces_key: str = FORCES) -> None:
        frames = read_structures(file, energy_key, forces_key, labelled=True)
        self._labels = {structure_hash(a): (float(a.info[ENERGY]), np.asarray(a.arrays[FORCES])) for a in frames}
        self._file = file

    def label(self, atoms: Atoms) -> tuple[float, Array]:
        try:
            return self._labels[structure_hash(atoms)]
        except KeyError:
            raise LabelError(f"{self._file} does not hold this structure") from None


KINDS: dict[str, Callable[..., Labeler]] = {
    "tblite": TBLiteLabeler,
    "pyscf": PySCFLabeler,
    "ase": CalculatorLabeler,
    "command": CommandLabeler,
    "dataset": DatasetLabeler,
}


def build_labeler(spec: LabelerSpec) -> Labeler:
    """The labeler that a specification describes."""
    if spec.kind not in KINDS:
        raise InputError(f"unknown labeler {spec.kind!r}: choose one of {', '.join(KINDS)}")
    try:
        return KINDS[spec.kind](**spec.settings)
    except TypeError as error:
        raise InputError(f"the labeler {spec.kind} cannot be built: {error}") from None


def import_name(name: str) -> Any:
    """What a dotted name stands for; modules in the current folder are found as well."""
    module, _, attribute = name.rpartition(".")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{name}: cannot be imported ({error}); write it as package.module.Name") from None


def bare(atoms: Atoms) -> Atoms:
    """Species, positions, cell and starting moments: nothing of where the structure came from."""
    found = Atoms(numbers=atoms.numbers, positions=atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
    if atoms.has("initial_magmoms"):
        found.set_initial_magnetic_moments(atoms.get_initial_magnetic_moments())
    if atoms.has("initial_charges"):
        found.set_initial_charges(atoms.get_initial_charges())
    return found
