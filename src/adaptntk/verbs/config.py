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


class CheckSettings(CampaignFile):
    no_label: bool = option("Compute no label, where one is too expensive for a test.", False)


@verb(CheckSettings)
def check(settings: CheckSettings, show: Show) -> TextReport:
    """Check a configuration, its files, where it will run and its labeler, and say what it will do.

    One structure is labelled, and the label is not kept.
    """
    from adaptntk.campaign.config_file import read_config
    from adaptntk.campaign.precheck import check_campaign, label_once

    config = read_config(settings.config)
    found, lines = check_campaign(config)
    labelled = "no label was computed" if settings.no_label else label_once(config, found)
    return TextReport("\n  ".join([f"{settings.config}: {config.name} can be run", *lines, labelled]))
