"""The methods by name. A new one is a file and a line here."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from adaptntk.errors import InputError
from adaptntk.uncertainty.baselines.controls import PredictedEnergy, Random
from adaptntk.uncertainty.baselines.dropout import Dropout
from adaptntk.uncertainty.baselines.ensemble import Ensemble
from adaptntk.uncertainty.baselines.error_model import ErrorModel
from adaptntk.uncertainty.baselines.evidential import Evidential
from adaptntk.uncertainty.baselines.last_layer import Distance, LastLayer
from adaptntk.uncertainty.baselines.swag import SWAG
from adaptntk.uncertainty.method import Method, Workbench
from adaptntk.uncertainty.ntk_method import NTK

METHODS: dict[str, type[Method]] = {
    "ntk": NTK,
    "error_model": ErrorModel,
    "ensemble": Ensemble,
    "dropout": Dropout,
    "swag": SWAG,
    "evidential": Evidential,
    "last_layer": LastLayer,
    "distance": Distance,
    "energy": PredictedEnergy,
    "random": Random,
}


def fit_method(name: str, workbench: Workbench, options: Mapping[str, Any] | None = None) -> Method:
    """Fit the method of that name."""
    return find_method(name).fit(workbench, **(options or {}))


def find_method(name: str) -> type[Method]:
    """The method of that name."""
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}: choose one of {', '.join(METHODS)}")
    return METHODS[name]


def method_options(name: str) -> dict[str, inspect.Parameter]:
    """What may be chosen when the method is fitted: the parameters of its ``fit`` after the workbench."""
    return dict(list(inspect.signature(find_method(name).fit).parameters.items())[1:])


def parse_options(name: str, texts: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` texts as options of a method, each of the type that the method declares."""
    known = method_options(name)
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or key not in known:
            described = [f"{option} ({_type(p).__name__}, {p.default})" for option, p in known.items()]
            raise InputError(
                f"{name} has no option {text!r}; write KEY=VALUE with one of: {', '.join(described) or 'none'}"
            )
        kind = _type(known[key])
        try:
            found[key] = kind(value)
        except ValueError:
            raise InputError(f"option {key} of {name} must be of type {kind.__name__}, not {value!r}") from None
    return found


def _type(parameter: inspect.Parameter) -> type:
    """The declared type; of ``X | None``, X."""
    return next((kind for kind in get_args(parameter.annotation) if kind is not type(None)), parameter.annotation)
