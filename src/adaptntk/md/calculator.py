"""A potential with its uncertainty as an ASE calculator."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import CalculationFailed, Calculator, all_changes, all_properties
from ase.calculators.singlepoint import SinglePointCalculator
from ase.outputs import Properties
from ase.stress import full_3x3_to_voigt_6_stress

from adaptntk.core.calibration import check_coverage
from adaptntk.errors import require
from adaptntk.models.protocol import Potential, SinglePoint, check_species
from adaptntk.uncertainty.fitted import Fitted
from adaptntk.uncertainty.method import ATOM_KEYS, CALIBRATED_KEYS, LONE_ATOMS

PHYSICAL = ("energy", "free_energy", "forces", "stress")
OF_FORCES = ("forces_uncertainty", "forces_error_bound")


class PotentialCalculator(Calculator):
    """A potential without its uncertainty: energy, forces, and the stress of what is periodic in all directions."""

    results: dict[str, Any]

    def __init__(self, potential: Potential) -> None:
        super().__init__()
        self.potential = potential
        self.implemented_properties = [*PHYSICAL]

    def calculate(
        self, atoms: Atoms | None = None, properties: list[str] | None = None, system_changes: list[str] = all_changes
    ) -> None:
        """Fill ``results``; called by ASE."""
        Calculator.calculate(self, atoms, properties, system_changes)
        if "numbers" in system_changes:
            check_species(self.potential, [self.atoms], "the calculator's atoms")
        if not np.isfinite(self.atoms.positions).all():
            raise CalculationFailed("the positions are NaN or infinite")
        point, others = self._observe(properties or [], bool(system_changes))
        # Another property of the same geometry: what is known of it stays.
        known = {} if system_changes else self.results
        self.results = known | {"energy": point.energy, "free_energy": point.energy, "forces": point.forces} | others
        if point.stress is not None:
            self.results["stress"] = full_3x3_to_voigt_6_stress(point.stress)

    def _observe(self, properties: list[str], new: bool) -> tuple[SinglePoint, dict[str, Any]]:
        """What is known of the geometry: physical properties, and others by name; ``new`` if it has changed."""
        return self.potential.single_point(self.atoms), {}


class UncertaintyCalculator(PotentialCalculator):
    """Energy, forces and stress of a potential, and how far they can be trusted.

    Besides ASE's own properties the results hold ``ntk_variance`` (the raw score U) and, once the uncertainty is
    calibrated, ``energy_uncertainty`` (eV), ``forces_uncertainty`` (eV/Å, the expected root mean square force error of
    the structure), ``forces_error_bound`` (eV/Å) and ``beyond_calibration``: whether these are extrapolated. Atoms
    without neighbours are counted in ``lone_atoms``; where all are, there is nothing else. The stress is there for
    structures that are periodic in all directions. Energy, forces and uncertainty come from one pass through the
    network.

    ASE writes and reads only the properties it knows: `frame` gives a copy of the atoms that keeps the others.

    Args:
        uncertainty: a fitted uncertainty, with its potential.
        every: compute the uncertainty at the first geometry and at each k-th new one after it; None for never. In
            between the results hold none, unless it is asked for by
            ``calculator.get_property("forces_uncertainty", atoms)``.
        per_atom: where there is an uncertainty, also that of the force on each atom: ``forces_uncertainty_per_atom``,
            eV/Å, and of its part of the energy: ``energies_uncertainty``, eV. It takes one more force call for each
            member of the committee (see ``adaptntk fit``).
        coverage: probability stated for ``forces_error_bound``.
        at_once: where it takes the committee to tell how uncertain forces are, ask it whenever the uncertainty is
            computed. Else only when one of these numbers is asked for by name, and `complete` tells them of many frames
            together, several times faster.
    """

    def __init__(
        self,
        uncertainty: Fitted,
        every: int | None = 1,
        coverage: float = 0.9,
        per_atom: bool = False,
        at_once: bool = True,
    ) -> None:
        sensible = every is None or every >= 1
        require(sensible, f"the uncertainty can be computed at every 1st, 2nd, ... geometry, not {every}")
        check_coverage(coverage)
        super().__init__(uncertainty.potential)
        if per_atom:
            uncertainty.check_committee()
        self.uncertainty, self.every, self.coverage, self.per_atom = uncertainty, every, coverage, per_atom
        self.at_once = at_once
        calibrated = CALIBRATED_KEYS if uncertainty.calibration is not None else ()
        self.uncertainty_keys = (uncertainty.variance_key, *calibrated, LONE_ATOMS)
        self.implemented_properties = [*PHYSICAL, *self.uncertainty_keys, *(ATOM_KEYS if per_atom else ())]
        self._geometries = 0

    def _observe(self, properties: list[str], new: bool) -> tuple[SinglePoint, dict[str, Any]]:
        due = self.every is not None and self._geometries % self.every == 0 and new
        self._geometries += new
        if due or any(name in (*self.uncertainty_keys, *ATOM_KEYS) for name in properties):
            ask = self.at_once or any(name in (*OF_FORCES, *ATOM_KEYS) for name in properties)
            point, scores = self.uncertainty.observe(self.atoms, per_atom=self.per_atom, ask=ask)
            entries: dict[str, Any] = dict(self.uncertainty.entries(scores, 0, self.coverage))
            return point, entries | self.uncertainty.atom_entries(scores, 0)
        return super()._observe(properties, new)

    def frame(self, atoms: Atoms) -> Atoms:
        """A copy that keeps the results of this geometry when it is written and read again.

        Energy, forces and stress are in its calculator, uncertainties in ``info``, where extxyz files have them. What
        the file of the structure called ``energy``, ``forces`` or ``stress`` is not a prediction, and is kept as
        ``file_energy``, ``file_forces`` and ``file_stress``.
        """
        if self.calculation_required(atoms, ["energy"]):
            self.get_property("energy", atoms)
        frame = atoms.copy()
        # ase writes no frame whose calculator and file use one name for two things.
        for holder in (frame.info, frame.arrays):
            for key in PHYSICAL:
                if key in holder:
                    holder.setdefault(f"file_{key}", holder[key])
                    del holder[key]
        frame.info = {key: value for key, value in frame.info.items() if key not in self.uncertainty_keys}
        frame.info |= {key: self.results[key] for key in self.uncertainty_keys if key in self.results}
        for key in ATOM_KEYS:
            frame.arrays.pop(key, None)
            if key in self.results:
                frame.arrays[key] = self.results[key]
        frame.calc = SinglePointCalculator(frame, **{key: self.results[key] for key in PHYSICAL if key in self.results})
        return frame

    def complete(self, frames: Sequence[Atoms]) -> None:
        """Tell frames of `frame` what the committee was not asked ``at_once``."""
        told = self.uncertainty
        if self.at_once or not frames or not (self.per_atom or told.asks_committee):
            return
        variance = np.array([frame.info[told.variance_key] for frame in frames])
        scores = told.scores_of_variance(variance, frames, per_atom=self.per_atom)
        for index, frame in enumerate(frames):
            frame.info |= told.entries(scores, index, self.coverage)
            frame.arrays |= told.atom_entries(scores, index)

    def export_properties(self) -> Properties:
        """The results that ASE has a name for."""
        return Properties({key: value for key, value in self.results.items() if key in all_properties})
