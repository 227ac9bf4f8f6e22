"""A user's own program as a labeler."""

import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import ase.io
import numpy as np
from ase import Atoms

from adaptntk.data.structures import ENERGY, FORCES, bare, read_structures, structure_hash
from adaptntk.errors import InputError, require
from adaptntk.labelers.labeler import Array, LabelError

# Words of a command that end so are files, most likely of the user; those of a container exist in there alone.
SCRIPTS = (".py", ".sh")


class CommandLabeler:
    """A user's own program: it reads one structure as extxyz and writes it with energy and forces as extxyz.

    Args:
        command: with ``{input}`` and ``{output}`` where the names of the two files belong. Each label has an empty
            folder of its own to work in; files of ``folder`` that the command names are found there all the same.
        energy_key, forces_key: where the program puts the labels; also read from an ASE calculator's results.
        folder: also what ``{folder}`` stands for; the current folder when not given.
    """

    def __init__(
        self, command: str, energy_key: str = ENERGY, forces_key: str = FORCES, folder: str | None = None
    ) -> None:
        named = isinstance(command, str) and "{input}" in command and "{output}" in command
        require(named, "the command of a labeler must name the files {input} and {output}")
        self.folder, self.keys = Path(folder or ".").absolute(), (energy_key, forces_key)
        try:
            program, *words = shlex.split(command)
            " ".join([program, *words]).format(input="", output="", folder="")
        except (ValueError, LookupError, AttributeError) as error:
            why = f"cannot be understood ({error}): quotes come in pairs, braces are {{input}}, {{output}}, {{folder}}"
            raise InputError(f"the command of a labeler {why}") from None
        beside = self.folder / program
        self.words = [str(beside) if beside.is_file() and shutil.which(program) is None else program]
        self.words += [str(self.folder / word) if (self.folder / word).exists() else word for word in words]
        found = "{" in program or shutil.which(self.words[0]) is not None
        require(
            found, f"the labeler's program {program!r} is neither installed nor in {self.folder}, or may not be run"
        )

    def label(self, atoms: Atoms) -> tuple[float, Array]:
        with tempfile.TemporaryDirectory(prefix="adaptntk-label-") as name:
            given, result = Path(name) / "input.xyz", Path(name) / "output.xyz"
            ase.io.write(given, bare(atoms), format="extxyz")
            words = [word.format(input=given, output=result, folder=self.folder) for word in self.words]
            # What a program says need not be text, and nobody is there to answer it.
            how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "errors": "replace"}
            finished = subprocess.run(words, cwd=name, check=False, **how)
            if finished.returncode != 0:
                said = (finished.stderr.strip() or finished.stdout.strip()).splitlines()[-1:]
                text = f"the command ended with code {finished.returncode}: {' '.join(said) or 'no message'}"
                missing = [word for word in words if word.endswith(SCRIPTS) and not Path(word).exists()]
                raise LabelError(text + "".join(f"; there is no {word} in {self.folder}" for word in missing))
            if not result.exists():
                raise LabelError("the command wrote no output file")
            found = read_structures(result, *self.keys, own=True)
            if len(found) != 1:
                raise LabelError(f"the output of the command holds {len(found)} structures, not the one that was given")
            (labelled,) = found
            # Plain keys are what a program has that writes the results of a calculator.
            energy = labelled.info.get(ENERGY, labelled.info.get("energy"))
            forces = labelled.arrays.get(FORCES, labelled.arrays.get("forces"))
            if energy is None or forces is None:
                raise LabelError(f"the output of the command has no {' or '.join(self.keys)}")
            if structure_hash(labelled) != structure_hash(atoms):
                raise LabelError("the command changed the structure: atoms must come back in place and in order")
            return float(energy), np.asarray(forces, dtype=float)
