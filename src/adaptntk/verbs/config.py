"""``adaptntk config template|schema|check``"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from adaptntk.files import write_atomically
from adaptntk.progress import Show
from adaptntk.verbs.settings import Settings, option, verb
from adaptntk.verbs.shared import CampaignFile


class TextSettings(Settings):
    output: Path | None = option("File to write; shown when not given.", None, short="-o")

    def give(self, text: str) -> "TextReport":
        """Write it, if there is a file for it."""
        if self.output is not None:
            write_atomically(self.output, lambda temporary: temporary.write_text(text))
        return TextReport(text, self.output)


class TextReport(NamedTuple):
    """A text that was asked for, and the file it was written to."""

    text: str
    output: Path | None = None

    def lines(self) -> Iterable[str]:
        yield self.text.removesuffix("\n") if self.output is None else f"wrote {self.output}"


@verb(TextSettings)
def template(settings: TextSettings, show: Show) -> TextReport:
    """A configuration with every field, its default and its meaning."""
    from adaptntk.campaign.config_file import template as make

    return settings.give(make())


@verb(TextSettings)
def schema(settings: TextSettings, show: Show) -> TextReport:
    """The JSON schema, with which editors complete and check the file."""
    from adaptntk.campaign.config_file import schema as make

    return settings.give(json.dumps(make(), indent=1) + "\n")


@verb(CampaignFile)
def check(settings: CampaignFile, show: Show) -> TextReport:
    """Check a configuration and its files, and say what it will do; nothing is computed."""
    from adaptntk.campaign.config_file import read_config
    from adaptntk.labelers.process import check_spec

    found = read_config(settings.config)
    check_spec(found.label.spec)
    later = f"then {found.round.total} in each of up to {found.stop.rounds} rounds"
    return TextReport(
        f"{settings.config}: {found.name}, {found.first.total} labels to begin with, {later}, "
        f"by {found.label.kind}; run directory {found.output}"
    )
