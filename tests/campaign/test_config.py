"""The configuration: checked, explained, and the same after a round trip."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from adaptntk.campaign.config import Campaign, Overrides, read_config, schema, template
from adaptntk.campaign.loop import run_campaign
from adaptntk.cli.app import app
from adaptntk.errors import InputError
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
        ({"train": {"preset": "huge"}}, "choose one of paper, small, tiny"),
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
