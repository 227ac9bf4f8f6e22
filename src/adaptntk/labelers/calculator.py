"""Any ASE calculator as a labeler, and the one that comes with the package."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator

from adaptntk.data.structures import bare
from adaptntk.labelers.labeler import Array
from adaptntk.labelers.registry import import_name


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
