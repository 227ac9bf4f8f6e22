"""``adaptntk config template|schema|check``"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from adaptntk.progress import Show
from adaptntk.verbs.settings import Settings, argument, option, verb


@dataclass(frozen=True, kw_only=True)
class TextSettings(Settings):
    """Where a text goes."""

    output: Path | None = option("File to write; shown when not given.", None, short="-o")


@dataclass(frozen=True, kw_only=True)
class CheckSettings(Settings):
    """Which campaign."""

    config: Path = argument("See adaptntk config template.", metavar="CAMPAIGN.YAML")


@dataclass(frozen=True)
class TextReport:
    """A text that was asked for, and the file it was written to."""

    text: str
    output: Path | None = None

    def lines(self) -> Iterable[str]:
        yield self.text.removesuffix("\n") if self.output is None else f"wrote {self.output}"


@verb(TextSettings)
def template(settings: TextSettings, show: Show) -> TextReport:
    """A configuration with every field, its default and its meaning."""
    from adaptntk.campaign.config import template as make

    return _give(make(), settings.output)


@verb(TextSettings)
def schema(settings: TextSettings, show: Show) -> TextReport:
    """The JSON schema, with which editors complete and check the file."""
    from adaptntk.campaign.config import schema as make

    return _give(json.dumps(make(), indent=1) + "\n", settings.output)


@verb(CheckSettings)
def check(settings: CheckSettings, show: Show) -> TextReport:
    """Check a configuration and its files, and say what it will do; nothing is computed."""
    from adaptntk.campaign.config import read_config
    from adaptntk.labelers.process import check_spec

    found = read_config(settings.config)
    check_spec(found.label.spec)
    later = f"then {found.round.total} in each of up to {found.stop.rounds} rounds"
    return TextReport(
        f"{settings.config}: {found.name}, {found.first.total} labels to begin with, {later}, "
        f"by {found.label.kind}; run directory {found.output}"
    )


def _give(text: str, output: Path | None) -> TextReport:
    from adaptntk.files import write_atomically

    if output is not None:
        write_atomically(output, lambda temporary: temporary.write_text(text))
    return TextReport(text, output)
