"""A user's own program as a labeler."""

import shlex
import subprocess
import tempfile
from pathlib import Path

import ase.io
import numpy as np
from ase import Atoms

from adaptntk.data.structures import ENERGY, FORCES, bare, read_structures, structure_hash
from adaptntk.errors import require
from adaptntk.labelers.labeler import Array, LabelError


class CommandLabeler:
    """A user's own program: it reads one structure as extxyz and writes it with energy and forces as extxyz.

    Args:
        command: with ``{input}`` and ``{output}`` where the names of the two files belong.
        energy_key, forces_key: where the program puts the labels; also read from an ASE calculator's results.
    """

    def __init__(self, command: str, energy_key: str = ENERGY, forces_key: str = FORCES) -> None:
        named = "{input}" in command and "{output}" in command
        require(named, "the command of a labeler must name the files {input} and {output}")
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
            # Plain keys are what a program has that writes the results of a calculator.
            energy = labelled.info.get(ENERGY, labelled.info.get("energy"))
            forces = labelled.arrays.get(FORCES, labelled.arrays.get("forces"))
            if energy is None or forces is None:
                raise LabelError(f"the output of the command has no {' or '.join(self.keys)}")
            if structure_hash(labelled) != structure_hash(atoms):
                raise LabelError("the command changed the structure: atoms must come back in place and in order")
            return float(energy), np.asarray(forces, dtype=float)
