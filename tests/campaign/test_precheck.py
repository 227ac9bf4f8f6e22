"""What is refused before anything is paid for, and what is said of a campaign that can be run."""

import os
import socket
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from adaptntk import verbs
from adaptntk.campaign.config_file import read_config
from adaptntk.campaign.layout import read_run
from adaptntk.campaign.loop import run_campaign
from adaptntk.campaign.precheck import PARAMETERS, check_campaign
from adaptntk.cli.app import app
from adaptntk.data.structures import FORCES, write_structures
from adaptntk.data.xtb_md import build_molecule
from adaptntk.errors import AdaptNTKError
from adaptntk.labelers.record import labels_bought
from adaptntk.models.family import EnergyReference
from adaptntk.models.mace.family import MACEFamily, build_network
from tests.campaign.conftest import write_config
from tests.campaign.test_trouble import troubled


@pytest.fixture
def files(tmp_path, ethanol_frames):
    """Ethanol: 40 labelled structures, a pool of 30, an oracle for it, and structures that do not belong."""
    write_structures(tmp_path / "known.xyz", ethanol_frames[:40])
    write_structures(tmp_path / "pool.xyz", ethanol_frames[40:70])
    write_structures(tmp_path / "oracle.xyz", ethanol_frames[40:69])
    strange, wrong, fused = build_molecule("benzene"), ethanol_frames[80].copy(), build_molecule("water")
    strange.numbers[0] = 14
    wrong.arrays[FORCES] = 600 * wrong.arrays[FORCES]
    fused.positions[1] = fused.positions[0] + [0.0, 0.0, 0.4]
    write_structures(tmp_path / "strange.xyz", [strange])
    write_structures(tmp_path / "kcal.xyz", [wrong])
    write_structures(tmp_path / "fused.xyz", [fused])
    return tmp_path


ORACLE = {"kind": "dataset", "settings": {"file": "oracle.xyz"}}
POOL = {"start": {"molecule": None, "labelled": "known.xyz"}, "explore": {"pool": "pool.xyz"}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"execution": {"device": "cuda:99"}}, "device 'cuda:99' cannot be used"),
        ({"execution": {"device": "gpu"}}, "device 'gpu' cannot be used"),
        ({"execution": {"executor": "dask", "scheduler": "tcp://127.0.0.1:9"}}, "no Dask scheduler answers at tcp"),
        ({"execution": {"executor": "dask", "scheduler": "nonsense:x"}}, "no Dask scheduler answers at nonsense"),
        ({"stop": {"labels": 10}}, "stop.labels of 10 are fewer than the 22 labels to begin with"),
        ({"uncertainty": {"sketch_dim": 5000}}, "more than the 704 parameters of the network tiny"),
        ({"train": {"preset": "paper"}, "uncertainty": {"sketch": "none"}, "stop": {"rounds": 5000}}, "can be held"),
        ({"start": {"molecule": None, "structures": "fused.xyz"}}, "fused.xyz, frame 0: .* fused atoms are not"),
        ({"output": "known.xyz/run"}, "known.xyz: is a file"),
        ({**POOL, "round": {"train": 40}}, "pool.xyz: holds 30 structures, and a round wants 43"),
        ({**POOL, "explore": {"pool": "strange.xyz"}}, "strange.xyz: has Si, which no structure to begin with has"),
        ({**POOL, "test": "known.xyz"}, "the two sets must not overlap"),
        ({**POOL, "test": "kcal.xyz"}, "kcal/mol"),
        ({**POOL, "label": ORACLE}, "1 of 30 structures of .*pool.xyz"),
        ({"label": ORACLE}, "needs explore.pool"),
        ({**POOL, "label": ORACLE, "first": {"valid": 11}}, "cannot label"),
        ({"label": {"kind": "command", "settings": {"command": "no-program {input} {output}"}}}, "no-program"),
        ({"label": {"kind": "command", "settings": {"command": "python '{input} {output}"}}}, "quotes come in pairs"),
        ({"label": {"kind": "command", "settings": {"command": "a {input.x} {input} {output}"}}}, "braces are"),
        ({"label": {"kind": "dataset", "settings": {"file": 5}}}, "settings: {file: labelled.xyz}"),
        ({"label": {"kind": "ase", "settings": {"calculator": 5}}}, "the labeler ase cannot be built"),
        ({"label": {"settings": {"metod": "x"}}}, "the labeler tblite cannot be built: .*metod"),
        ({"label": {"folder": "nowhere"}}, "label.folder .*nowhere: no such folder"),
        ({"label": {"kind": "nowhere.Labeler"}}, "nowhere.Labeler: cannot be imported"),
    ],
)  # fmt: skip
def test_nothing_is_paid_for_what_cannot_work(changes, message, files):
    config = write_config(files, **changes)
    before = sorted(path.name for path in files.iterdir())
    for check in (lambda: verbs.config.check(config=config), lambda: run_campaign(config)):
        with pytest.raises(AdaptNTKError, match=message) as caught:
            check()
        assert "\n" not in str(caught.value)
    assert sorted(path.name for path in files.iterdir()) == before


def test_a_labeler_that_cannot_label_the_start(tmp_path):
    down = tmp_path / "down"
    down.touch()
    config = write_config(tmp_path, label=troubled(down=str(down)))
    result = CliRunner().invoke(app, ["config", "check", str(config)])
    assert result.exit_code == 2
    assert (
        "the labeler ase failed (CalculationFailed: no licence); mend it, or skip this with --no-label" in result.output
    )
    result = CliRunner().invoke(app, ["config", "check", str(config), "--no-label"])
    assert result.exit_code == 0
    assert "no label was computed" in result.output


def test_what_was_checked_is_told(files):
    result = CliRunner().invoke(app, ["config", "check", str(write_config(files, **POOL, stop={"rounds": 3}))])
    assert result.exit_code == 0, result.output
    for words in (
        "0 labels to begin with (40 are given), then 6 in each of up to 3 rounds, by tblite; at most 18 in all",
        "known.xyz: 40 structures of 9 atoms (H C O)",
        "network tiny, 788 parameters in float32; sketch sparse of 64; features of 49 training structures",
        "one label, not kept, by tblite",
        "from the label that was given it differs by",
    ):
        assert words in result.output
    assert sorted(path.name for path in files.iterdir()) == sorted(
        ["campaign.yaml", "fused.xyz", "kcal.xyz", "known.xyz", "oracle.xyz", "pool.xyz", "strange.xyz"]
    )


def test_a_scheduler_that_answers(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        config = read_config(write_config(tmp_path, execution={"executor": "dask", "scheduler": address}))
        check_campaign(config)


@pytest.mark.parametrize("preset", PARAMETERS)
def test_networks_have_as_many_parameters_as_the_estimate_says(preset):
    constant, each = PARAMETERS[preset]
    for elements in (1, 3):
        reference = EnergyReference(tuple(range(1, elements + 1)), (0.0,) * elements, 1.0, 0.0)
        network = build_network(MACEFamily.architectures[preset], reference, 8.0, torch.float32, 0)
        assert sum(p.numel() for p in network.parameters()) == constant + each * elements


def test_a_check_costs_little(tmp_path):
    """No torch, no MACE: about a second of the processor with a label, where it was six."""
    config = write_config(tmp_path)
    before = os.times()
    subprocess.run([sys.executable, "-m", "adaptntk", "config", "check", str(config)], check=True, capture_output=True)
    spent = os.times()
    assert spent.children_user + spent.children_system - before.children_user - before.children_system < 3.0


def test_labels_are_counted_in_one_way(reference):
    run = read_run(reference)
    assert labels_bought(run.labels) == run.summaries[-1].labels_spent == 34
    assert any("34 labels; " in str(line) for line in verbs.status(run=reference).lines())


def test_networks_of_other_sizes_are_counted(tmp_path):
    config = write_config(tmp_path, train={"preset": "tiny", "channels": 6, "cutoff": 3.0}, uncertainty={})
    _, lines = check_campaign(read_config(config))
    reference = EnergyReference((1, 8), (0.0, 0.0), 1.0, 0.0)
    expected = build_network(MACEFamily.architectures["tiny"].resized(channels=6), reference, 5.0, torch.float32, 0)
    count = sum(parameter.numel() for parameter in expected.parameters())
    assert f"{count:,} parameters" in "\n".join(lines)
