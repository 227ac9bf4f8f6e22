"""What the file of a method holds besides networks: declared by each method, checked when it is written and read."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model
from torch import Tensor

from adaptntk.core.sketch.registry import SKETCHES
from adaptntk.features.feature_map import NORMALISATIONS
from adaptntk.files import shortened

# Numbers are finite, an integer is not a text that looks like one, and nothing unknown stands beside what is known.
CLOSED = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

# No number of physics comes near these; their squares and products are still numbers.
LARGEST = 1e50
Positive = Annotated[float, Field(gt=1 / LARGEST, lt=LARGEST)]
NotNegative = Annotated[float, Field(ge=0, lt=LARGEST)]
Several = Annotated[int, Field(ge=2, lt=2**31)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**64)]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def one_of(names: Iterable[str]) -> Any:
    """The type of a choice."""
    return Annotated[str, Field(pattern=f"^({'|'.join(names)})$")]


def record(name: str, fields: Mapping[str, Any]) -> Any:
    """A type with these entries and no others; a pair is a type and what stands for an entry that is not there."""
    types = {key: record(key, kind) if isinstance(kind, Mapping) else kind for key, kind in fields.items()}
    entries = {key: kind if isinstance(kind, tuple) else (kind, ...) for key, kind in types.items()}
    return create_model(name, __config__=CLOSED, **entries)  # type: ignore[call-overload]


_RIDGE = {"alpha": Positive, "lam": Positive, "criterion": str, "effective_dimension": NotNegative, "reason": str}
_CHECK = {
    "dim": Several,
    "error": NotNegative,
    "median_error": NotNegative,
    "rank_correlation": Annotated[float, Field(ge=-1.001, le=1.001)],
    "reference": str,
}
_COMMITTEE = {"members": Several, "seed": Seed, "step": Positive, "precision": (one_of(["float64"]) | None, None)}
_SKETCH = {"kind": one_of(SKETCHES), "dim": Annotated[int, Field(ge=1, lt=2**31)], "seed": Seed}


@dataclass(frozen=True)
class Stored:
    """Types of the settings of a method, and shapes of its tensors.

    Args:
        settings: the type of each, with its range; a mapping for settings within settings.
        shapes: of each tensor: numbers and names, ``n`` for the training structures, ``P`` for the parameters of the
            model, a dotted name for a number of the settings, any other for a size that is the same wherever it stands;
            and what the numbers must be: ``"f > 0"``, ``"f >= 0"``. None leaves names and shapes open.
        optional: tensors that need not be there.
    """

    settings: Mapping[str, Any] | None = None
    shapes: Mapping[str, str] | None = None
    optional: frozenset[str] = frozenset()

    def check(self, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], sizes: Mapping[str, int]) -> None:
        """``ValueError`` in one line for what cannot be; ``sizes`` are known beforehand."""
        if self.settings is not None:
            validate(record("settings", self.settings), settings, "settings")
        if self.shapes is not None and (odd := (self.shapes.keys() ^ tensors.keys()) - self.optional):
            raise ValueError(f"tensor {shortened(min(odd))} is {'missing' if min(odd) in self.shapes else 'unknown'}")
        known = dict(sizes)
        for name, tensor in tensors.items():
            check_tensor(name, tensor, (self.shapes or {}).get(name), known, settings)


def of_features(spec: Any = dict[str, Any], width: str = "p") -> Stored:
    """Of a method whose score is a distance between features: what its map is made from, and how wide its rows are."""
    settings = {
        "features": spec,
        "ridge": _RIDGE,
        "sketch_check": record("sketch_check", _CHECK) | None,
        "train_sizes": (Annotated[list[Annotated[int, Field(gt=0)]], Field(min_length=1)] | None, None),
        "committee": (record("committee", _COMMITTEE) | None, None),
    }
    return Stored(settings, {"blocks": f"n rows {width}", "further": f"m {width}"}, frozenset({"further"}))


ENERGY_GRADIENTS = of_features(
    {
        "map": one_of(["energy"]),
        "normalise": one_of(NORMALISATIONS),
        "sketch": _SKETCH,
        "force_rows": (Annotated[int, Field(ge=1, lt=2**31)], 0),
        "strain_rows": (Annotated[int, Field(ge=1, lt=2**31)], 0),
    },
    "features.sketch.dim",
)
LAST_LAYER = of_features({"map": one_of(["last_layer"]), "normalise": one_of(NORMALISATIONS)})


def check_tensor(
    name: str, tensor: Tensor, shape: str | None, known: dict[str, int], settings: Mapping[str, Any]
) -> None:
    """Finite, of the declared shape, within the declared range; sizes that are new become known."""
    if tensor.dtype not in (torch.float64, torch.float32, torch.bool):
        raise ValueError(f"tensor {name} is of type {str(tensor.dtype).removeprefix('torch.')}")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"tensor {name} holds NaN or infinite numbers")
    if bool((tensor.abs() > LARGEST).any() if tensor.is_floating_point() else False):
        raise ValueError(f"tensor {name} holds numbers beyond {LARGEST:.0e}")
    if shape is None:
        return
    sizes, _, least = shape.partition(" >")
    tokens = sizes.split()
    if len(tokens) != tensor.ndim or any(
        size != _size(token, size, known, settings) for token, size in zip(tokens, tensor.shape, strict=True)
    ):
        wanted = " x ".join(str(_size(token, token, known, settings)) for token in tokens)
        raise ValueError(f"tensor {name} has the shape {' x '.join(map(str, tensor.shape))}, not {wanted}")
    if least and bool((tensor <= 0 if least == " 0" else tensor < 0).any()):
        raise ValueError(f"tensor {name} must be{' >' + least}")


def _size(token: str, default: Any, known: dict[str, int], settings: Mapping[str, Any]) -> Any:
    if token.isdigit():
        return int(token)
    if "." in token:
        found: Any = settings
        for key in token.split("."):
            found = found[key]
        return found
    return known.setdefault(token, default) if isinstance(default, int) else known.get(token, default)


def validate(kind: Any, content: Any, where: str) -> None:
    """``ValueError`` in one line if the content is not of that type."""
    try:
        # As JSON: strict, and lists are tuples there.
        TypeAdapter(kind).validate_json(json.dumps(content))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join([where, *map(str, first["loc"])])
        raise ValueError(f"{shortened(place, 100)}: {shortened(first['msg'], 200)}") from None
