"""xTB with troubles of real codes, by import path. Each calculation that ended is a line in the file ``log``."""

import ctypes
import os
import time

import numpy as np
from ase.calculators.calculator import CalculationFailed
from tblite.ase import TBLite

from adaptntk.data.structures import structure_hash


class Troubled(TBLite):
    """Fails, hangs, crashes or returns nonsense for a share of the structures, chosen by their hash.

    Args:
        log: file to which the hash of each structure is appended once its calculation has ended.
        seconds: a calculation takes at least so long.
        trouble: ``fail``, ``hang``, ``crash``, ``nan`` or ``huge``; several with commas between them take turns.
        share: of the structures that are in trouble.
        down: while this file exists nothing works; if it holds a hash, that structure.
    """

    def __init__(self, log="", seconds=0.0, trouble="fail", share=0.0, down="", **kwargs):
        super().__init__(method="GFN2-xTB", verbosity=0, cache_api=False, **kwargs)
        self.log, self.seconds, self.trouble, self.share, self.down = log, seconds, trouble, share, down

    def calculate(self, atoms=None, properties=None, system_changes=()):
        self.reset()
        if self.down and os.path.exists(self.down):
            with open(self.down) as file:
                if file.read() in ("", structure_hash(atoms)):
                    raise CalculationFailed("no licence")
        super().calculate(atoms, properties or ["energy"], ["positions", "numbers"])
        identity = structure_hash(atoms)
        if int(identity[:8], 16) / 16**8 < self.share:
            kinds = self.trouble.split(",")
            self._get_into_trouble(kinds[int(identity[8:], 16) % len(kinds)])
        time.sleep(self.seconds)
        if self.log:
            with open(self.log, "a") as file:
                file.write(identity + "\n")

    def _get_into_trouble(self, kind):
        if kind == "fail":
            raise CalculationFailed("SCF not converged")
        if kind == "hang":
            ctypes.PyDLL(None).sleep(1000)  # never gives the interpreter back
        if kind == "crash":
            os.abort()
        wrong = {"nan": np.nan, "huge": 1e6}[kind]
        self.results["forces"] = np.full_like(self.results["forces"], wrong)
