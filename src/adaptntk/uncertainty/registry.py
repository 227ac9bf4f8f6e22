"""The methods by name: a new one is a file and a line here, or a call of `register_method`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_type_hints

from adaptntk.errors import InputError
from adaptntk.uncertainty.baselines.distance import Distance
from adaptntk.uncertainty.baselines.dropout import Dropout
from adaptntk.uncertainty.baselines.ensemble import Ensemble
from adaptntk.uncertainty.baselines.error_model import ErrorModel
from adaptntk.uncertainty.baselines.evidential import Evidential
from adaptntk.uncertainty.baselines.force_size import ForceSize
from adaptntk.uncertainty.baselines.predicted_energy import PredictedEnergy
from adaptntk.uncertainty.baselines.random_numbers import RandomNumbers
from adaptntk.uncertainty.baselines.swag import SWAG
from adaptntk.uncertainty.feature_method import NTK, LastLayer
from adaptntk.uncertainty.method import Method

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
    "force_size": ForceSize,
    "random": RandomNumbers,
}


def register_method(method: type[Method]) -> None:
    """Make a method known under its name, for `fit`, the command line and files of this process."""
    if method.name in METHODS:
        raise InputError(f"there is a method {method.name!r} already")
    METHODS[method.name] = method


def find_method(name: str) -> type[Method]:
    """The method of that name."""
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}: choose one of {', '.join(METHODS)}")
    return METHODS[name]


def make_options(name: str, given: Mapping[str, Any] | None) -> Any:
    """The options of a method, with defaults for what is not given."""
    _check_names(name, given or {})
    return find_method(name).Options(**(given or {}))


def parse_options(name: str, texts: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` texts as options of a method, each of the type that the method declares."""
    types = _types(name)
    found: dict[str, Any] = {}
    for key, _, value in (text.partition("=") for text in texts):
        _check_names(name, [key])
        try:
            found[key] = types[key](value)
        except ValueError:
            raise InputError(f"option {key} of {name} must be of type {types[key].__name__}, not {value!r}") from None
    return found


def _check_names(name: str, given: Sequence[str] | Mapping[str, Any]) -> None:
    types = _types(name)
    for key in given:
        if key not in types:
            options = dataclasses.fields(find_method(name).Options)
            known = ", ".join(f"{item.name} ({types[item.name].__name__}, {item.default})" for item in options)
            raise InputError(f"{name} has no option {key!r}; write KEY=VALUE with one of: {known or 'none'}")


def _types(name: str) -> dict[str, type]:
    """The declared type of each option; of ``X | None``, X."""
    hints = get_type_hints(find_method(name).Options)
    return {key: next((kind for kind in get_args(hint) if kind is not type(None)), hint) for key, hint in hints.items()}
