"""A campaign as a YAML file: read without surprises, and written as a template with every choice."""

import inspect
import itertools
import math
import re
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from adaptntk.campaign.config import Campaign, Section
from adaptntk.errors import InputError, require
from adaptntk.files import check_readable, shortened
from adaptntk.labelers.registry import LABELERS, import_name

LARGEST_FILE = 100_000  # bytes: a campaign takes a few thousand, and 10 s are needed for 400,000
MOST_ENTRIES = 10_000
PLAIN = (dict, list, str, int, float, bool, type(None))


class Loader(yaml.SafeLoader):
    """YAML as people read it: no dates, 010 is not eight, 1:30 is not ninety, no and off are words, keys come once.

    Merging by ``<<`` is not known: merges of merges in a small file fill the memory.
    """

    # Texts keep their letters: what a field takes for a number is for the field to say.
    yaml_implicit_resolvers: ClassVar[dict[str, list[Any]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        met: set[Any] = set()
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in met:
                problem = f"the field {shortened(key.value)!r} is there twice"
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=key.start_mark)
            met.add(name)
        return super().construct_mapping(node, deep)


for _kind, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+", "-+.0123456789"),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+."),
):
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"^(?:{_pattern})$"), list(_first))


def read_config(path: str | Path) -> Campaign:
    """Read and check a YAML file and the files that it names; everything that is wrong is said in one line."""
    path = Path(path)
    content, folder = _read_yaml(path), path.absolute().parent
    config = check_content(content, path, folder)
    if config.label.kind == "dataset":
        config.label.settings["file"] = str(folder / config.label.settings["file"])
    for file in config.input_files().values():
        check_readable(file, "file of the campaign")
    return config.model_copy(update={"output": config.output or folder / "runs" / config.name})


def _read_yaml(path: Path) -> Any:
    try:
        check_readable(path, "campaign file")
        size = path.stat().st_size
        require(size <= LARGEST_FILE, f"{path}: {size:,} bytes are no campaign; see adaptntk config template")
        return yaml.load(path.read_text(encoding="utf-8-sig"), Loader)
    except UnicodeDecodeError as error:
        why = f"no UTF-8 text (byte {error.start}); save it as UTF-8"
    except RecursionError:
        why = "no YAML file that can be read: it is nested too deeply"
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark, error.problem or "unreadable"
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        cure = "; indent by spaces, not by tabs" if "\\t" in problem else ""
        why = f"no YAML file ({where}{shortened(problem, 200)}{cure})"
    except yaml.YAMLError as error:
        why = f"no YAML file ({shortened(error, 200)})"
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        why = f"holds a number that cannot be read ({shortened(error)})"
    raise InputError(f"{path}: {why}")


def check_content(content: Any, path: Path, folder: Path | None = None) -> Campaign:
    """What a file says as a campaign, with paths seen from a folder; all that is wrong with it is told in one line."""
    require(isinstance(content, dict), f"{path}: holds no campaign; see adaptntk config template")
    fault = _unusable(content)
    require(fault is None, f"{path}: {fault}")
    try:
        return Campaign.model_validate(content, context=folder)
    except ValidationError as error:
        faults = [_explain(item) for item in error.errors()]
        more = f"; and {len(faults) - 10} more" if len(faults) > 10 else ""
        raise InputError(f"{path}: {'; '.join(faults[:10])}{more}") from None


def _unusable(content: Any) -> str | None:
    """What no file of ours can say again, in free settings too: numbers that are not finite, YAML that holds itself."""
    todo, met = [("", content)], 0
    while todo and met + len(todo) <= MOST_ENTRIES:
        (where, value), met = todo.pop(), met + 1
        if not isinstance(value, PLAIN):
            return f"{where} is a {type(value).__name__}, which no field takes; write it as text"
        if isinstance(value, float) and not math.isfinite(value):
            return f"{where} is infinite or no number"
        if isinstance(value, int) and abs(value) >= 2**64:
            return f"{where} is a number of {len(str(abs(value)))} digits, which no field takes"
        named = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        inner = itertools.islice(named, MOST_ENTRIES)
        todo += [(f"{where}.{shortened(key)}".lstrip("."), part) for key, part in inner]
    return f"holds more than {MOST_ENTRIES} entries, or an anchor that holds itself" if todo else None


def _explain(error: Any) -> str:
    where = ".".join(shortened(part) for part in error["loc"])
    said = {"extra_forbidden": "there is no such field", "missing": "is missing"}
    given = error.get("input")
    # A whole section tells nothing; a value tells what was misunderstood.
    shown = "" if error["type"] == "value_error" or isinstance(given, dict) else f" (it is {shortened(repr(given))})"
    text = said.get(error["type"]) or error["msg"].removeprefix("Value error, ") + shown
    return f"{where}: {text}" if where else text  # what concerns several sections names them itself


def template() -> str:
    """A configuration with every field, its default, its meaning and its choices, ready to be edited."""
    lines = ["# A campaign of adaptntk: edit it, then run  adaptntk run campaign.yaml"]
    for name, field in Campaign.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            lines += ["", f"{name}:  # {(section.__doc__ or '').splitlines()[0]}"]
            for inner, about in section.model_fields.items():
                lines.append(f"  {_line(inner, about.get_default(call_default_factory=True), about)}")
                if (name, inner) == ("label", "settings"):
                    lines += [f"    # {line}" for line in _labeler_settings()]
        else:
            value = {"name": "ethanol", "output": None, "test": None}.get(name, field.default)
            lines.append(_line(name, value, field))
    text = "\n".join(lines) + "\n"
    return text.replace("  molecule: null", "  molecule: ethanol")


def _line(name: str, value: Any, field: FieldInfo) -> str:
    value = str(value) if isinstance(value, Path) else value
    choices = _choices(field.annotation) or [str(example) for example in field.examples or ()]
    known = f" One of {', '.join(choices)}." if choices else ""
    return f"{name}: {_shown(value)}  # {field.description}{known}"


def _shown(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True).split("\n")[0].removesuffix("...").strip()


def _choices(annotation: Any) -> list[str]:
    """The words that a field takes, where there are only some."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return [str(part) for part in parts]
    inner = parts[:1] if origin is Annotated else parts if origin in (Union, UnionType) else ()
    return [choice for part in inner for choice in _choices(part)]


def _labeler_settings() -> list[str]:
    """What each labeler can be told."""
    lines = []
    for kind, place in LABELERS.items():
        found = inspect.signature(import_name(place)).parameters.values()
        words = [
            p.name if p.default is p.empty else f"{p.name}: {_shown(p.default)}" for p in found if p.name != "folder"
        ]
        lines.append(f"{kind}: {{{', '.join(words)}}}")
    return lines


def schema() -> dict[str, Any]:
    """The JSON schema, for editors that complete and check YAML files."""
    return Campaign.model_json_schema()
