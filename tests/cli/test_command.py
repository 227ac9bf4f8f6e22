"""Commands are made from settings: every kind of field, and what was given told apart from what is a default."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from adaptntk.cli.command import add_command
from adaptntk.errors import InputError
from adaptntk.progress import Show
from adaptntk.verbs.settings import Settings, argument, option, verb


class Shared(Settings):
    source: Path = argument("Where it begins.")
    seed: int = option("Of chance.", 0)


class Everything(Shared):
    words: tuple[str, ...] = option("Many.", (), flag="--word", metavar="WORD")
    folder: Path | None = option("A place.", None, default_text="beside it")
    pair: tuple[str, int] | None = option("Two.", None)
    loud: bool = option("A flag.", False)
    output: Path = option("Must be given.", short="-o")
    workers: int | None = option("Several.", None, least=1)

    def check_given(self, given: Iterable[str]) -> None:
        if "seed" in given and self.loud:
            raise InputError("--seed is for quiet runs")


@dataclass(frozen=True)
class Echo:
    settings: Everything

    def lines(self) -> Iterable[str]:
        return [f"{name}={value!r}" for name, value in dataclasses.asdict(self.settings).items()]


@verb(Everything)
def echo(settings: Everything, show: Show) -> Echo:
    """Says what it was asked.

    In a second paragraph too.
    """
    show.line("at work")
    return Echo(settings)


@pytest.fixture
def run():
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(lambda: None)
    add_command(app, echo)
    return lambda *arguments: CliRunner().invoke(app, ["echo", *arguments])


def test_what_is_given_arrives_in_its_type(run):
    result = run(
        *[
            "in.xyz",
            "--word",
            "a",
            "--word",
            "b",
            "--folder",
            "x",
            "--pair",
            "k",
            "3",
            "--loud",
            "-o",
            "o",
            "--workers",
            "2",
        ]
    )
    assert result.exit_code == 0, result.output
    first, *lines = result.output.splitlines()
    assert first == "at work"
    expected = Everything(
        source=Path("in.xyz"), words=("a", "b"), folder=Path("x"), pair=("k", 3), loud=True, output=Path("o"), workers=2
    )
    assert lines == Echo(expected).lines()


def test_what_is_not_given_has_its_default(run):
    result = run("in.xyz", "-o", "o")
    assert result.output.splitlines()[1:] == Echo(Everything(source="in.xyz", output="o")).lines()


def test_given_is_told_apart_from_default(run):
    """Even if the value is that of the default."""
    assert run("in.xyz", "-o", "o", "--loud").exit_code == 0
    refused = run("in.xyz", "-o", "o", "--loud", "--seed", "0")
    assert refused.exit_code == 2
    assert "adaptntk: --seed is for quiet runs" in refused.output


@pytest.mark.parametrize("arguments", [["in.xyz"], ["-o", "o"], ["in.xyz", "-o", "o", "--workers", "0"]])
def test_what_cannot_be_is_refused(run, arguments):
    assert run(*arguments).exit_code == 2


def test_help_says_it_all(run):
    text = " ".join(run("--help").output.split())
    for part in (
        "Says what it was asked.",
        "second paragraph",
        "Where it begins.",
        "--word WORD",
        "(beside it)",
        "-o,",
    ):
        assert part in text
    # Those that must be given, then those of the verb, then those it shares.
    assert text.index("--output") < text.index("--word") < text.index("--seed")


def test_the_same_from_python():
    said = []
    settings = Everything(source="in.xyz", output="o", words=["a"])
    assert settings == Everything(source=Path("in.xyz"), output=Path("o"), words=("a",))
    report = echo(settings, show=Show(line=said.append))
    assert report.settings == settings
    assert said == ["at work"]
    assert echo(source="in.xyz", output="o", words=["a"]).settings == settings
    assert echo(settings, seed=3).settings == dataclasses.replace(settings, seed=3)
    with pytest.raises(InputError, match="quiet runs"):
        echo(source="in.xyz", output="o", loud=True, seed=0)
    with pytest.raises(TypeError, match="colour"):
        echo(source="in.xyz", output="o", colour="red")
    assert "seed: Of chance." in echo.__doc__
