"""The configuration: checked, explained, and the same after a round trip."""

import itertools
import json
import re
import subprocess
import sys
from typing import get_args

import pytest
import yaml
from typer.testing import CliRunner

from adaptntk.campaign.config import (
    FEWEST_VALID,
    PRESET_NAMES,
    SELECTOR_NAMES,
    Campaign,
    Overrides,
    Train,
    Uncertainty,
)
from adaptntk.campaign.config_file import read_config, schema, template
from adaptntk.campaign.loop import run_campaign
from adaptntk.cli.app import app
from adaptntk.core.calibration import MINIMUM_STRUCTURES
from adaptntk.core.selection.registry import SELECTORS
from adaptntk.core.sketch.registry import SKETCHES
from adaptntk.errors import InputError
from adaptntk.labelers.registry import LABELERS
from adaptntk.training.recipe import PRESETS
from tests.campaign.conftest import write_config


def test_the_template_is_a_valid_configuration_of_defaults(tmp_path):
    (tmp_path / "campaign.yaml").write_text(template())
    found = read_config(tmp_path / "campaign.yaml")
    shortest = Campaign(name="ethanol", start={"molecule": "ethanol"})
    assert found.identity() == shortest.identity()
    assert found.output == tmp_path / "runs" / "ethanol"
    # Every field is explained.
    fields = [line for line in template().splitlines() if ":" in line and not line.startswith("#")]
    assert all("  # " in line for line in fields)


def test_the_schema_knows_every_field_and_its_meaning():
    content = schema()
    assert content["properties"].keys() == Campaign.model_fields.keys()
    for section in content["$defs"].values():
        assert all("description" in field for field in section["properties"].values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"explore": {"temperture": 3}}, "explore.temperture: there is no such field"),
        ({"start": {"molecule": None}}, "give structures, a molecule or a labelled file"),
        ({"start": {"structures": "nowhere.xyz", "molecule": None}}, "nowhere.xyz: no such file"),
        ({"select": {"method": "best"}}, "choose one of adaptntk"),
        ({"first": {"valid": 3}}, "greater than or equal to 10"),
        ({"explore": {"coverage": 0.99}}, "needs first.valid of at least 99"),
        ({"train": {"preset": "huge"}}, "choose one of fast, standard, paper, small, tiny"),
        ({"uncertainty": {"sketch": "fine"}}, "sketch"),
        ({"label": {"kind": "dataset"}}, "settings: {file: labelled.xyz}"),
        ({"name": None}, "name"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(changes, message, tmp_path):
    with pytest.raises(InputError, match=r"campaign.yaml|nowhere") as caught:
        read_config(write_config(tmp_path, **changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "just words", "a: [1, 2", "- 1\n- 2"])
def test_what_is_no_configuration(text, tmp_path):
    (tmp_path / "campaign.yaml").write_text(text)
    with pytest.raises(InputError, match=r"campaign.yaml"):
        read_config(tmp_path / "campaign.yaml")


WATER = "name: water\nstart: {molecule: water}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (WATER + "seed: 2024-01-01", "seed: .*'2024-01-01'"),
        (WATER + "seed: !!timestamp 2024-01-01", "seed is a date"),
        (WATER + "seed: 010", "seed: 010 begins with a zero"),
        (WATER + "seed: 1:30", "seed: .*'1:30'"),
        (WATER + "seed: true", "seed: is a number, not true"),
        (WATER + "seed: 0x10", "seed: .*'0x10'"),
        (WATER + f"seed: {'9' * 5000}", "a number that cannot be read"),
        (WATER + f"seed: {'9' * 4000}", "seed is a number of 4000 digits"),
        (WATER + f"label: {{settings: {'[' * 3000}{']' * 3000}}}", "nested too deeply"),
        (WATER + "label: {settings: {a: !!binary aGVsbG8=}}", "label.settings.a is a bytes"),
        (WATER + "label: !!python/object/apply:os.system [ls]", "line 3, column 8: .*tag"),
        (WATER + "explore: {temperatures: [-5]}", "explore.temperatures.0: .*greater than 0"),
        (WATER + "explore: {temperatures: [1e9]}", "explore.temperatures.0: .*less than or equal to 20000"),
        (WATER + "explore: {steps: 5, interval: 10}", "keeps no frame"),
        (WATER + "explore: {timestep: 500}", "explore.timestep"),
        (WATER + "seed: 1\nseed: 2", "line 4, column 1: the field 'seed' is there twice"),
        ("name: water\nstart:\n\tmolecule: water", "by spaces, not by tabs"),
        ("name: 2024\nstart: {molecule: water}", "name: .*string"),
        ("name: x\nstart: {structures: 'a\0b'}".replace("\0", chr(0)), "no YAML file"),
        ('name: x\nstart: {structures: "a\\0b"}', "NUL"),
        ("name: \xe9".encode("latin1"), "no UTF-8 text"),
        (WATER.encode("utf-16"), "no UTF-8 text"),
        ("a: &a [x, x, x, x, x, x, x, x, x, x]\n"
         + "\n".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in itertools.pairwise("abcdefghi")),
         "more than 10000 entries"),
        ("&a {name: x, b: *a}", "holds itself"),
        (f"a: &a [{'x, ' * 9_000}*a]", "holds itself"),
        ("a: &a {b: 1}\nc: {<<: *a}", "c: there is no such field"),
        ("x" * 110_000, "bytes are no campaign"),
    ],
)  # fmt: skip
def test_surprises_of_yaml_are_told_in_one_line(text, message, tmp_path):
    path = tmp_path / "campaign.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message) as caught:
        read_config(path)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


def test_merges_of_merges_do_not_grow(tmp_path):
    """Ten entries, merged ten times at each of many levels, would be more than any memory holds."""
    path, ten = tmp_path / "campaign.yaml", ", ".join(f"k{number}: 1" for number in range(10))
    levels = [f"{b}: &{b} {{<<: [{', '.join([f'*{a}'] * 10)}]}}" for a, b in itertools.pairwise("abcdefghijklmnop")]
    path.write_text("\n".join([f"a: &a {{{ten}}}", *levels]))
    with pytest.raises(InputError, match="more than 10000 entries"):
        read_config(path)


def test_words_and_numbers_are_what_they_look_like(tmp_path):
    path = tmp_path / "campaign.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: no\nstart: {molecule: water}\nseed: '7'\nuncertainty: {alpha: 1e-5}\n")
    found = read_config(path)
    assert (found.name, found.seed, found.uncertainty.alpha) == ("no", 7, 1e-5)


def test_the_names_that_a_configuration_knows_are_those_of_the_registries():
    assert tuple(SELECTORS) == SELECTOR_NAMES
    assert tuple(PRESETS) == PRESET_NAMES
    assert get_args(Uncertainty.model_fields["sketch"].annotation) == ("auto", *SKETCHES)
    assert FEWEST_VALID == MINIMUM_STRUCTURES
    for choice in (
        *SELECTOR_NAMES,
        *PRESET_NAMES,
        *SKETCHES,
        *LABELERS,
        "normal_modes",
        "fine-tune",
        "float64",
        "dask",
    ):
        assert re.search(rf"One of .*\b{re.escape(choice)}[,.]", template()), choice
    assert "# pyscf: {xc: b3lyp, basis: def2-svp" in template()


def test_a_model_that_lacks_steps_is_trained_on_before_labels_are_bought():
    def extensions(**train):
        return Campaign(name="x", start={"molecule": "water"}, train=train).train.recipe.extensions

    assert extensions() == 1
    assert extensions(preset="fast", extensions=3) == 3
    assert extensions(extensions=0) == 0
    assert extensions(preset="small") == 0  # has no part at a constant rate that could be longer
    assert "  extensions: 1" in template()


def test_a_configuration_is_read_without_torch(tmp_path):
    """Which takes longer to import than all else."""
    (tmp_path / "c.yaml").write_text(template())
    code = (
        f"import sys; from adaptntk.campaign.config_file import read_config; read_config({str(tmp_path / 'c.yaml')!r})"
    )
    subprocess.run([sys.executable, "-c", f"{code}; sys.exit('torch' in sys.modules)"], check=True)


def test_the_verb(tmp_path):
    result = CliRunner().invoke(app, ["config", "template", "-o", str(tmp_path / "c.yaml")])
    assert result.exit_code == 0
    result = CliRunner().invoke(app, ["config", "check", str(tmp_path / "c.yaml")])
    assert result.exit_code == 0
    assert "80 labels to begin with, then 30 in each of up to 5 rounds, by tblite" in result.output
    result = CliRunner().invoke(app, ["config", "schema"])
    assert json.loads(result.output)["title"] == "Campaign"
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"name": "x", "start": {}}))
    result = CliRunner().invoke(app, ["config", "check", str(tmp_path / "c.yaml")])
    assert result.exit_code == 2


def test_an_executor_that_is_none_begins_no_run(tmp_path):
    config = write_config(tmp_path)
    for given, message in (({"executor": "abacus"}, "unknown executor"), ({"scheduler": "tcp://x"}, "belongs to")):
        with pytest.raises(InputError, match=message):
            run_campaign(config, overrides=Overrides(**given))
    assert [path.name for path in tmp_path.iterdir()] == [config.name]


def test_rounds_that_go_on_from_a_model_are_slower_and_shorter():
    first, later = (getattr(Train(), name) for name in ("recipe", "later_recipe"))
    assert (later.learning_rate, later.steps) == (pytest.approx(0.3 * first.learning_rate), first.steps // 4)
    chosen = Train(steps=700, learning_rate=0.02)
    assert chosen.later_recipe == chosen.recipe
