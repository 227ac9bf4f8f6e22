"""Of what kinds the fields of a campaign are."""

import re
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from adaptntk.errors import require
from adaptntk.files import shortened

LONGEST_NAME = 100  # bytes


def _absolute(path: Path, info: ValidationInfo) -> Path:
    """As it is seen from anywhere, where the folder of the configuration is known."""
    require("\0" not in str(path), "no name of a file holds a NUL")
    return (info.context or Path()) / path


def _plain_number(value: Any) -> Any:
    """Python takes true for 1, and YAML took 010 for 8; nobody who writes so can know."""
    require(not isinstance(value, bool), f"is a number, not {str(value).lower()}")
    zeros = isinstance(value, str) and re.fullmatch(r"[-+]?0[0-9_]+", value) is not None
    require(not zeros, f"{shortened(value)} begins with a zero: write the number without it")
    return value


File = Annotated[Path, AfterValidator(_absolute)]
Count = Annotated[int, BeforeValidator(_plain_number)]
Number = Annotated[float, BeforeValidator(_plain_number)]
# Hotter than any simulation with a potential makes sense at; a typing error more often than not.
Temperature = Annotated[Number, Field(gt=0, le=20_000)]


def folder_name(name: str) -> str:
    """Refuse what would lead out of ``runs/``, or name a folder that nobody can see, type or trust."""
    why = {
        "is too long": len(name.encode(errors="replace")) > LONGEST_NAME,
        "holds a separator of folders": any(sign in name for sign in "/\\"),
        "holds a character that cannot be seen": not name.isprintable(),
        "begins with a dot or a dash, or begins or ends with a space": name[:1] in ".-" or name != name.strip(),
    }
    for fault, found in why.items():
        require(not found, f"{shortened(repr(name))} {fault}; a folder is named after it: use letters, digits, - and _")
    return name


class Section(BaseModel):
    """A part of the configuration: unknown fields are refused, nothing is changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="after")
    def _checked(self) -> Self:
        self.check()
        return self

    def check(self) -> None:
        """Refuse fields that cannot be used, or not together."""
