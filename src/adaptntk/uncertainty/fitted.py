"""A fitted uncertainty, whatever the method: scores, physical units, batches."""

import dataclasses
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from ase import Atoms

from adaptntk.core.blocks import Blocks
from adaptntk.core.calibration import Calibration, beyond_sentence, conformal_quantile, lone_sentence
from adaptntk.core.question import ENERGY, force_scores
from adaptntk.core.selection.problem import Constraints, FeatureSpace, Selection
from adaptntk.core.selection.registry import LABELLED, SCORES_SUFFICE, check_selector
from adaptntk.data.geometry import lone_counts
from adaptntk.data.structures import Structures, structure_hash, structure_hashes, structure_sizes
from adaptntk.errors import InputError
from adaptntk.features.feature_map import size_powers
from adaptntk.models.protocol import Potential, SinglePoint
from adaptntk.progress import Progress, silent
from adaptntk.representation import short_repr
from adaptntk.training.limits import Learnt
from adaptntk.uncertainty.candidates import Candidates
from adaptntk.uncertainty.committee import Committee, Members, Spread
from adaptntk.uncertainty.feature_model import FeatureModel, rows_of_forces
from adaptntk.uncertainty.method import ATOM_KEYS, LONE_ATOMS, Array, Assessment, AtomScores, Flags, Method, Scores


@short_repr
@dataclass(frozen=True)
class Fitted:
    """A method, what turns its scores into eV and eV/Å, and what it has seen. A value: nothing changes it.

    Args:
        calibration: None where no labelled structures were given.
        train_hashes: structures that the model was trained on.
        calibration_hashes: others whose labels were used: it is not to be evaluated on those either.
        learnt: how far the training of the model came, where that is known.
    """

    method: Method
    calibration: Calibration | None
    train_hashes: tuple[str, ...]
    calibration_hashes: tuple[str, ...] = ()
    learnt: Learnt | None = None

    @property
    def name(self) -> str:
        """Of the method."""
        return self.method.name

    @property
    def potential(self) -> Potential:
        """The model itself."""
        return self.method.potential

    @property
    def features(self) -> FeatureModel | None:
        """The features behind the scores; None where there are only scores."""
        return self.method.features

    @property
    def variance_key(self) -> str:
        """What files call the raw score."""
        return f"{self.name}_variance"

    def assess(
        self, structures: Structures, batch_size: int = 16, progress: Progress = silent, name: str = "structures"
    ) -> Assessment:
        """Scores and predictions; what the network breaks down on is refused."""
        if self.features is not None:
            return self.features.assess(self.potential, structures, batch_size, progress, name)
        if not structures:
            raise InputError(f"{name}: no structures")
        found = self.method.assess(structures, batch_size, progress)
        for index in np.flatnonzero(~np.isfinite(found.variance)):
            raise InputError(f"{name}, frame {index}: the score of {self.name} is NaN or infinite; remove the frame")
        return found

    def announce(self, structures: Structures, kept: bool = True, store: str | Path | None = None) -> None:
        """Log what scoring these structures will take, and refuse what does not fit into memory.

        ``kept``: all features are held at once. Those that a ``store`` has are not computed.
        """
        if self.features is not None:
            self.features.announce(self.potential, structures, kept, store)

    def candidates(
        self,
        pool: Structures,
        name: str = "pool",
        store: str | Path | None = None,
        progress: Progress = silent,
        target: Structures = (),
    ) -> Candidates:
        """Structures to choose from, with their features where the method has any.

        With ``store``, a folder, features are kept there and found again, and need not fit into memory. ``target`` are
        structures whose forces are to become sure, for the rule ``bait+forces``; the pool where there are none.
        """
        self.check_store(store)
        features = self.features
        if features is None:
            return Candidates(self, pool, torch.from_numpy(self._variance(pool, name, progress)))
        if store is None:
            blocks: Blocks = features.extract(self.potential, pool, name, progress)
        else:
            blocks = features.extract_stored(self.potential, pool, store, name, progress)
        labels = features.labels(self.potential, pool)
        if target:
            features.check(self.potential, target, "target")
        # Of the pool, rows that are made for the one are there for the other.
        aims = rows_of_forces(features.labels(self.potential, target) if target else labels, target or pool)
        return Candidates(self, pool, FeatureSpace(features.posterior, features.blocks, blocks, labels, aims))

    def score(
        self,
        structures: Structures,
        name: str = "structures",
        store: str | Path | None = None,
        progress: Progress = silent,
        per_atom: bool = False,
    ) -> Scores:
        """The uncertainty of each structure, and with ``per_atom`` of its atoms.

        A part of the features at a time is held in memory.
        """
        if store is not None:
            variance = self.candidates(structures, name, store, progress).scores.variance
        else:
            variance = self._variance(structures, name, progress)
        return self.scores_of_variance(variance, structures, per_atom=per_atom, progress=progress)

    @property
    def asks_committee(self) -> bool:
        """Whether it takes the committee to tell how uncertain forces are: a force call for each member."""
        return self.calibration is not None and self.calibration.question != ENERGY

    def scores_of_variance(
        self,
        variance: Array,
        structures: Structures,
        batch_size: int = 16,
        per_atom: bool = False,
        progress: Progress = silent,
    ) -> Scores:
        """The raw scores in physical units, once calibrated; with ``per_atom`` those of the atoms as well."""
        found, known = self.novelty(variance, structures), self.calibration
        if per_atom or self.asks_committee:
            spread = self.check_committee().spread(structures, batch_size, progress)
            if per_atom:
                found = dataclasses.replace(found, atoms=self._atoms(spread))
            if self.asks_committee and known is not None:
                asked = force_scores(known.question, variance, spread.mean_forces)
                sigma = np.where(found.lone, np.nan, known.force_sigma(asked))
                found = dataclasses.replace(found, sigma=sigma, force_score=asked)
        return found

    def novelty(self, variance: Array, structures: Structures) -> Scores:
        """What the raw scores tell without asking a committee: no sigma of forces where it takes that."""
        counts = lone_counts(structures, self.potential.cutoff)
        lone = counts == structure_sizes(structures)
        known = self.calibration
        if known is None:
            return Scores(variance, lone_atoms=counts, lone=lone)
        scales = None if self.asks_committee else known.forces, known.energy
        forces, energies = (
            None if scale is None else np.where(lone, np.nan, scale.sigma(variance)) for scale in scales
        )
        if energies is not None:
            energies = energies * size_powers(structures, known.energy_power)
        beyond = known.is_beyond(variance) | ((counts > 0) & (lone | (not known.lone_atoms)))
        return Scores(variance, forces, energies, beyond, counts, lone)

    def score_atoms(self, structures: Structures, batch_size: int = 16, progress: Progress = silent) -> AtomScores:
        """How uncertain the force on each atom is, by the committee that was drawn when the uncertainty was fitted."""
        return self._atoms(self.check_committee().spread(structures, batch_size, progress))

    def _atoms(self, spread: Spread) -> AtomScores:
        variances, known = spread.of_atoms, self.calibration
        if known is None or known.atoms is None:
            return AtomScores(variances)
        energies = None
        if known.energy is not None and spread.atom_energies is not None:
            energies = [np.sqrt(known.energy.a * variance) for variance in spread.atom_energies]
        return AtomScores(variances, [known.atoms.sigma(variance) for variance in variances], energies)

    def members(self, structures: Structures, batch_size: int = 16, progress: Progress = silent) -> Members:
        """What M networks would say whose parameters are drawn from the posterior, without any being trained.

        Energies and forces differ from the model's by as much as they are expected to be wrong, once calibrated; else
        by the unit of the prior.
        """
        known = self.calibration
        of_forces = 1.0 if known is None or known.atoms is None else known.atoms.a**0.5
        of_energies = 1.0 if known is None or known.energy is None else known.energy.a**0.5
        energies, forces = [], []
        for each in self.check_committee().changes(structures, batch_size, progress=progress):
            assert each.energies is not None
            energies.append(each.point.energy + of_energies * each.energies)
            forces.append(each.point.forces + of_forces * each.forces)
        return Members(np.array(energies), forces)

    def check_committee(self) -> Committee:
        """The committee; refused where none was drawn."""
        found = self.method.committee
        if found is None:
            raise InputError(f"{self.name} was fitted without a committee: fit with --committee 16, for instance")
        return found

    def remarks(self, beyond: Sequence[bool] | Flags | None, lone: Sequence[bool] | Flags, what: str) -> Iterator[str]:
        """What must be known of some structures before their numbers are believed, in plain sentences."""
        if self.calibration is not None and beyond is not None:
            yield from self.calibration.notes()
            if count := int((np.array(beyond) & ~np.array(lone)).sum()):
                yield beyond_sentence(count, len(lone), self.calibration.largest, what)
        if count := int(np.sum(lone)):
            yield lone_sentence(count, len(lone), what)

    def remarks_of(self, frames: Sequence[Atoms]) -> Iterator[str]:
        """The same of frames that carry their `entries`."""
        beyond = [bool(frame.info.get("beyond_calibration", False)) for frame in frames]
        yield from self.remarks(beyond, [frame.info.get(LONE_ATOMS) == len(frame) for frame in frames], "frames")

    def entries(self, scores: Scores, index: int, coverage: float) -> dict[str, float]:
        """What a structure is told about its uncertainty: the raw score and, once calibrated, what it means."""
        entries = {self.variance_key: float(scores.variance[index])}
        if scores.lone_atoms[index]:
            entries[LONE_ATOMS] = int(scores.lone_atoms[index])
        if self.calibration is None:
            return entries
        entries["beyond_calibration"] = scores.beyond is not None and bool(scores.beyond[index])
        for name, sigma, ratios in (
            ("forces", scores.sigma, self.calibration.ratios),
            ("energy", scores.energy_sigma, self.calibration.energy_ratios),
        ):
            if sigma is not None and not scores.lone[index]:
                entries[f"{name}_uncertainty"] = float(sigma[index])
                bound = float(sigma[index]) * conformal_quantile(ratios, coverage)
                if np.isfinite(bound):  # a small calibration set bounds nothing at a high coverage
                    entries[f"{name}_error_bound"] = bound
        return entries

    @staticmethod
    def atom_entries(scores: Scores, index: int) -> dict[str, Array]:
        """What each atom of a structure is told: the uncertainty of its force (eV/Å) and of its energy (eV)."""
        found = scores.atoms
        if found is None:
            return {}
        columns = zip(ATOM_KEYS, (found.sigma, found.energy_sigma), strict=True)
        return {key: values[index] for key, values in columns if values is not None}

    def observe(self, atoms: Atoms, *, per_atom: bool = False, ask: bool = True) -> tuple[SinglePoint, Scores]:
        """Energy, forces and uncertainty of one structure, from one pass through the network where that is possible.

        Without ``ask`` the committee is not asked, so what only it can tell is not told: see `novelty`.
        """
        features = self.features
        if features is None:
            point, variance = self.potential.single_point(atoms), self.method.assess([atoms]).variance
        else:
            features.check(self.potential, [atoms], "the structure")
            point, block = features.feature_map.observe(self.potential, atoms)
            # Where the network breaks down, on atoms that lie on one another for instance, whoever watches must see it.
            variance = np.array([np.nan])
            if bool(torch.isfinite(block).all()):
                variance = features.variance(dataclasses.replace(features.blocks, tensor=block[None]))
        if not ask:
            return point, self.novelty(variance, [atoms])
        return point, self.scores_of_variance(variance, [atoms], per_atom=per_atom)

    def select(
        self,
        pool: Structures,
        count: int,
        rule: str = "adaptntk",
        exclude: Iterable[Atoms | str] = (),
        min_separation: float = 0.0,
        groups: tuple[Sequence[Hashable], int] | None = None,
        seed: int = 0,
    ) -> Selection:
        """Choose the structures worth labelling next, in order. Structures of the training set are never picked.

        `candidates` have more: a target, a ceiling, weights.

        Args:
            rule: the name of a selector: ``adaptntk`` (scores updated after each pick), ``topb``, ``lcmd``, ...
            exclude: structures (or their hashes) that are labelled already.
            min_separation: see `Constraints`.
            groups: a label for each candidate, and how many picks may share one.
        """
        self.check_rule(rule)
        labels, most = groups or (None, None)
        constraints = Constraints(self.excluded(pool, exclude), min_separation, labels, most)
        return self.candidates(pool).select(rule, count, constraints, seed)

    def excluded(self, pool: Structures, exclude: Iterable[Atoms | str] = ()) -> list[bool]:
        """Which candidates are in the training set or in ``exclude``."""
        known = {*self.train_hashes, *(item if isinstance(item, str) else structure_hash(item) for item in exclude)}
        return [digest in known for digest in structure_hashes(pool)]

    def condition(self, structures: Structures) -> "Fitted":
        """The uncertainty as if these structures had been in the training set; no labels, no retraining."""
        if self.features is None:
            raise InputError(f"{self.name} has only scores, which cannot be updated without a new training")
        features = self.features
        further = features.feature_map.further(self.potential, structures, features.memory_budget)
        features = features.condition(features.extract(self.potential, structures), further)
        hashes = tuple(structure_hash(atoms) for atoms in structures)
        method = dataclasses.replace(self.method, features=features)  # type: ignore[type-var]
        return dataclasses.replace(self, method=method, train_hashes=self.train_hashes + hashes)

    def check_rule(self, rule: str) -> None:
        """Refuse a rule that is not known, or that needs features where there are none."""
        check_selector(rule)
        if self.features is None and rule not in SCORES_SUFFICE:
            why = f"--method {rule} needs features, and {self.name} has only scores"
            raise InputError(f"{why}: use --method topb or random")
        if rule in LABELLED and self.features is not None and not self.features.feature_map.further_rows:
            raise InputError(f"--method {rule} needs rows of forces: fit with --features joint")

    def check_store(self, store: object | None) -> None:
        """Only features can be kept."""
        if store is not None and self.features is None:
            raise InputError(f"--store keeps features, and {self.name} has none")

    def _variance(self, structures: Structures, name: str, progress: Progress) -> Array:
        if not structures:
            raise InputError(f"{name}: no structures")
        features = self.features
        if features is None:
            return self.assess(structures, progress=progress, name=name).variance
        parts = features.parts(structures)
        if len(parts) == 1:
            return features.variance(features.extract(self.potential, structures, name, progress))
        found = []
        for part in progress(parts, "energy gradients", len(parts)):
            frames = structures[part.start : part.stop]
            found.append(features.variance(features.extract(self.potential, frames, name, numbers=part)))
        return np.concatenate(found)
