"""The labelers by name. A new one is a file and a line here, or a class of yours, by its dotted name."""

import importlib
import os
import sys
from typing import Any

from adaptntk.errors import AdaptNTKError, InputError
from adaptntk.labelers.labeler import Labeler, LabelerSpec

# By dotted name too: a package that a labeler needs is imported where it is used.
LABELERS = {
    "tblite": "adaptntk.labelers.calculator.TBLiteLabeler",
    "pyscf": "adaptntk.labelers.pyscf.PySCFLabeler",
    "ase": "adaptntk.labelers.calculator.CalculatorLabeler",
    "command": "adaptntk.labelers.command.CommandLabeler",
    "dataset": "adaptntk.labelers.dataset.DatasetLabeler",
}


def check_kind(kind: str) -> str:
    """Refuse what is neither the name of a labeler nor a dotted name."""
    if kind not in LABELERS and "." not in kind:
        names = ", ".join(LABELERS)
        raise InputError(f"unknown labeler {kind!r}: choose one of {names}, or write yours as package.module.Name")
    return kind


def build_labeler(spec: LabelerSpec) -> Labeler:
    """The labeler that a specification describes."""
    kind = check_kind(spec.kind)
    if spec.folder is not None and spec.folder not in sys.path:
        sys.path.append(spec.folder)
    place = {"folder": spec.folder} if kind == "command" else {}
    try:
        labeler: Labeler = import_name(LABELERS.get(kind, kind))(**place, **spec.settings)
    except AdaptNTKError:
        raise
    except Exception as error:  # settings may be anything, and a class of the user's may raise anything
        why = str(error) if isinstance(error, TypeError) else f"{type(error).__name__}: {error}"
        raise InputError(f"the labeler {kind} cannot be built: {' '.join(why.split())}") from None
    return labeler


def import_name(name: str) -> Any:
    """What a dotted name stands for; modules in the current folder are found as well."""
    module, _, attribute = name.rpartition(".")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{name}: cannot be imported ({error}); write it as package.module.Name") from None
