"""The methods by name. A new one is a file and a line here."""

from collections.abc import Callable
from typing import Any

from adaptntk.errors import InputError
from adaptntk.methods.controls import PredictedEnergy, Random
from adaptntk.methods.dropout import Dropout
from adaptntk.methods.ensemble import Ensemble
from adaptntk.methods.error_model import ErrorModel
from adaptntk.methods.evidential import Evidential
from adaptntk.methods.last_layer import Distance, LastLayer
from adaptntk.methods.method import Method, Workbench
from adaptntk.methods.ntk_method import NTK
from adaptntk.methods.swag import SWAG

METHODS: dict[str, Callable[..., Method]] = {
    "ntk": NTK.fit,
    "error_model": ErrorModel.fit,
    "ensemble": Ensemble.fit,
    "dropout": Dropout.fit,
    "swag": SWAG.fit,
    "evidential": Evidential.fit,
    "last_layer": LastLayer.fit,
    "distance": Distance.fit,
    "energy": PredictedEnergy.fit,
    "random": Random.fit,
}


def fit_method(name: str, workbench: Workbench, **options: Any) -> Method:
    """Fit the method of that name."""
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}: choose one of {', '.join(METHODS)}")
    return METHODS[name](workbench, **options)
