"""PySCF as a labeler."""

import importlib

import numpy as np
from ase import Atoms, units

from adaptntk.errors import InputError
from adaptntk.labelers.labeler import Array, LabelError


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
        self.xc, self.max_cycle = xc, max_cycle
        self._molecule = {"basis": basis, "charge": charge, "spin": spin}

    def label(self, atoms: Atoms) -> tuple[float, Array]:
        if atoms.pbc.any():
            raise LabelError("the labeler pyscf is for molecules, not for periodic structures")
        places = list(zip(atoms.get_chemical_symbols(), atoms.positions.tolist(), strict=True))
        molecule = self._pyscf.gto.M(atom=places, unit="Angstrom", verbose=0, **self._molecule)
        field = self._pyscf.dft.KS(molecule, xc=self.xc)
        field.max_cycle = self.max_cycle
        energy = field.kernel()
        if not field.converged:
            raise LabelError(f"the self-consistent field did not converge in {self.max_cycle} cycles")
        gradient = field.nuc_grad_method().kernel()
        return float(energy) * units.Hartree, -np.asarray(gradient) * units.Hartree / units.Bohr
