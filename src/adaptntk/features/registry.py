"""The feature maps by name: a new one is a file and a line here."""

from typing import Any

from adaptntk.errors import InputError
from adaptntk.features.energy_gradients import EnergyGradients
from adaptntk.features.feature_map import FeatureMap
from adaptntk.features.last_layer import LastLayerFeatures
from adaptntk.memory import DEFAULT_BUDGET

FEATURE_MAPS: dict[str, type[FeatureMap]] = {"energy": EnergyGradients, "last_layer": LastLayerFeatures}


def restore_feature_map(spec: dict[str, Any], memory_budget: int = DEFAULT_BUDGET) -> FeatureMap:
    """The map that was written down with its ``spec``."""
    if spec["map"] not in FEATURE_MAPS:
        raise InputError(f"unknown feature map {spec['map']!r}: this version knows {', '.join(FEATURE_MAPS)}")
    return FEATURE_MAPS[spec["map"]].restore(spec, memory_budget)
