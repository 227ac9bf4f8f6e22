"""A campaign from its configuration to its verdict: what is on disk, and that it depends on nothing else."""

import csv
import json
import shutil

import ase.io
import numpy as np
import pytest
from ase import Atoms

from adaptntk import verbs
from adaptntk.campaign.config import Overrides
from adaptntk.campaign.layout import read_run
from adaptntk.campaign.loop import run_campaign
from adaptntk.campaign.steps.explore import _pool_of
from adaptntk.campaign.steps.label import shard_features
from adaptntk.data.structures import bare, read_structures, structure_hash, write_structures
from adaptntk.errors import InputError
from adaptntk.evaluation import force_errors
from adaptntk.models.registry import load_potential
from adaptntk.report.campaign import campaign_page
from adaptntk.report.viewer import build_viewer
from adaptntk.training import loop
from adaptntk.training.record import training_record_file
from adaptntk.uncertainty.file import load_fitted
from tests.campaign.conftest import outcome, write_config
from tests.conftest import DATA_FILES


def labels_of(run, **wanted):
    frames = [read_structures(path, labelled=True, own=True)[0] for path in sorted((run / "labels").glob("*.xyz"))]
    return [a for a in frames if all(a.info.get(key) == value for key, value in wanted.items())]


def test_every_round_buys_what_was_asked_for(reference):
    for number, labels in enumerate([(8, 10, 4), (3, 1, 2), (3, 1, 2)]):
        found = tuple(len(labels_of(reference, round=number, role=role)) for role in ("train", "valid", "holdout"))
        assert found == labels
    summaries = outcome(reference)["rounds"]
    assert [s["labels_spent"] for s in summaries] == [22, 28, 34]
    assert [s["labels"]["holdout"] for s in summaries] == [4, 6, 8]
    assert json.loads((reference / "verdict.json").read_text())["reason"] == "rounds"


def test_every_label_knows_where_it_came_from(reference):
    chosen = labels_of(reference, role="train", round=1)
    assert len(chosen) == 3
    for atoms in chosen:
        assert atoms.info["chosen_by"] == "adaptntk"
        assert atoms.info["score"] > 0
        assert atoms.info["trajectory"].startswith("start 0, ")
        assert atoms.info["label_seconds"] > 0
        assert "energy" not in atoms.info  # what the model said is no label
    with (reference / "ledger.csv").open() as file:
        ledger = list(csv.DictReader(file))
    assert {row["hash"] for row in ledger} == {structure_hash(atoms) for atoms in labels_of(reference)}
    assert all(row["label_seconds"] for row in ledger)


def test_picks_are_those_of_the_rule_on_the_pool(reference):
    for number in (1, 2):
        uncertainty = load_fitted(reference / "rounds" / f"{number - 1:02d}" / "model.ntk", device="cpu")
        folder = reference / "rounds" / f"{number:02d}"
        pool = read_structures(folder / "pool.xyz", own=True)
        (wave,) = json.loads((folder / "picks.json").read_text())["waves"]
        # What was drawn at random for validation and hold-out is no candidate any more.
        drawn = [
            structure_hash(a) for role in ("valid", "holdout") for a in labels_of(reference, round=number, role=role)
        ]
        selection = uncertainty.select(pool, 3, exclude=drawn)
        assert [pick["hash"] for pick in wave["picks"]] == [structure_hash(pool[i]) for i in selection.indices]
        assert [pick["score"] for pick in wave["picks"]] == pytest.approx(selection.scores, rel=1e-6)
        told = [np.log1p(score / uncertainty.features.posterior.lam) for score in selection.scores]
        assert [pick["information"] for pick in wave["picks"]] == pytest.approx(told, rel=1e-6)
        summary = json.loads((folder / "round.json").read_text())
        assert summary["information_per_label"] == pytest.approx(np.mean(told), rel=1e-6)


def test_errors_are_those_of_the_model_on_the_hold_out(reference):
    holdout = labels_of(reference, role="holdout")
    predicted = load_potential(reference / "rounds" / "02" / "model.model", "cpu").predict(holdout)
    errors = force_errors(predicted.forces, holdout)
    stated = outcome(reference)["rounds"][-1]["errors"]
    assert stated["force_rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-4)
    assert stated["force_rmse_low"] < stated["force_rmse"] < stated["force_rmse_high"]


def test_every_round_says_what_limits_its_model(reference):
    for number, summary in enumerate(outcome(reference)["rounds"]):
        learnt, limit = summary["learnt"], summary["limit"]
        potential = load_potential(reference / "rounds" / f"{number:02d}" / "model.model", "cpu")
        frames = [atoms for n in range(number + 1) for atoms in labels_of(reference, role="train", round=n)]
        errors = force_errors(potential.predict(frames).forces, frames)
        assert learnt["train"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-4)
        sides = learnt["train"], learnt["valid"], summary["errors"]["force_rmse"]
        assert all(f"{1000 * error:.1f}" in limit["evidence"] for error in sides)
    text = json.loads((reference / "verdict.json").read_text())["text"]
    assert (limit["advice"] in text) == (limit["by"] != "labels")


def first_rounds(reference, folder, rounds):
    """A copy of the run as it was after so many rounds."""
    run = shutil.copytree(reference, folder / "runs" / "water")
    (run / "verdict.json").unlink()
    for number in range(rounds, 3):
        shutil.rmtree(run / "rounds" / f"{number:02d}")
        for atoms in labels_of(run, round=number):
            (run / "labels" / f"{structure_hash(atoms)}.xyz").unlink()
    return run


def test_the_executor_does_not_matter(reference, tmp_path):
    """Dask is compared in the test in which one of its workers is killed."""
    run = first_rounds(reference, tmp_path, 1)
    run_campaign(write_config(tmp_path), resume=True, overrides=Overrides("local", workers=2))
    assert outcome(run) == outcome(reference)


def test_killed_between_a_model_and_the_record_of_its_training(reference, tmp_path, monkeypatch):
    run = first_rounds(reference, tmp_path, 2)

    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop, "write_training_record", killed)
        with pytest.raises(KeyboardInterrupt):
            run_campaign(write_config(tmp_path), resume=True)
    model = run / "rounds" / "02" / "model.model"
    assert model.exists()
    assert not training_record_file(model).exists()
    run_campaign(write_config(tmp_path), resume=True)
    assert outcome(run) == outcome(reference)
    written = [
        training_record_file(folder / "rounds" / "02" / "model.model").read_bytes() for folder in (run, reference)
    ]
    assert written[0] == written[1]


def test_a_finished_run_is_resumed_at_no_cost_and_can_be_extended(reference, tmp_path):
    run = first_rounds(reference, tmp_path, 2)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.xyz")}
    _, verdict = run_campaign(write_config(tmp_path, stop={"rounds": 1}), resume=True)
    assert verdict.text.startswith("the planned round is done")
    with pytest.raises(InputError, match="go on with --resume"):
        run_campaign(tmp_path / "campaign.yaml")
    run_campaign(tmp_path / "campaign.yaml", resume=True)
    assert before == {path: path.stat().st_mtime_ns for path in run.rglob("*.xyz")}
    run_campaign(write_config(tmp_path), resume=True)
    assert outcome(run) == outcome(reference)


def test_a_campaign_that_an_older_version_began_is_resumed(tmp_path):
    """It was killed after round 0; ``expected.json`` has what the old version made of it."""
    folder = shutil.copytree(DATA_FILES / "old_formats" / "campaign", tmp_path / "campaign")
    expected = json.loads((folder / "expected.json").read_text())
    with pytest.raises(InputError, match=r"changed since the run began \(.*uncertainty.features: energy -> joint"):
        run_campaign(folder / "campaign.yaml", resume=True)
    text = (folder / "campaign.yaml").read_text()
    (folder / "campaign.yaml").write_text(text.replace("{sketch_dim: 16}", "{sketch_dim: 16, features: energy}"))
    paid = sorted(path.name for path in (folder / "run" / "labels").glob("*.xyz"))
    run, _ = run_campaign(folder / "campaign.yaml", resume=True)
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict | {"text": expected["verdict"]["text"]} == expected["verdict"]  # but for its wording
    summary = json.loads((run / "rounds" / "01" / "round.json").read_text())
    assert summary.keys() == expected["round"].keys() | {"remarks", "learnt", "limit"}
    assert summary["labels"] == expected["round"]["labels"]
    assert summary["errors"] == pytest.approx(expected["round"]["errors"], rel=1e-6)
    waves = [json.loads((run / "rounds" / "01" / "picks.json").read_text()), expected["picks"]]
    found, wanted = (found["waves"][0]["picks"] for found in waves)
    assert [pick["hash"] for pick in found] == [pick["hash"] for pick in wanted]
    assert [pick["score"] for pick in found] == pytest.approx([pick["score"] for pick in wanted], rel=1e-6)
    assert set(paid) < {path.name for path in (run / "labels").glob("*.xyz")}


def test_from_labelled_structures_and_a_pool_with_an_oracle(ethanol_frames, tmp_path):
    alone = [Atoms(symbol, info={"REF_energy": -9.0, "config_type": "IsolatedAtom"}) for symbol in "HCO"]
    write_structures(tmp_path / "known.xyz", [*alone, *ethanol_frames[:40]])
    for atoms in (precise := [bare(atoms) for atoms in ethanol_frames[40:80]]):
        atoms.positions += 1e-9
    ase.io.write(tmp_path / "pool.traj", precise)
    write_structures(tmp_path / "oracle.xyz", ethanol_frames[40:])
    config = write_config(
        tmp_path,
        start={"molecule": None, "labelled": "known.xyz"},
        explore={"pool": "pool.traj"},
        label={"kind": "dataset", "settings": {"file": "oracle.xyz"}},
        stop={"rounds": 1},
        select={"method": "lcmd"},
    )
    given = tmp_path / "pool.traj"
    run, _ = run_campaign(config)
    assert len(labels_of(run, chosen_by="given")) == 40
    assert len(read_structures(run / "isolated_atoms.xyz", labelled=True)) == 3
    network = load_potential(run / "rounds" / "01" / "model.model", "cpu")
    assert network.isolated_energies == pytest.approx({1: -9.0, 6: -9.0, 8: -9.0})
    first, last = outcome(run)["rounds"]
    assert first["labels"] == {"train": 26, "valid": 10, "holdout": 4, "quarantined": 0}
    assert (first["labels_spent"], last["labels_spent"]) == (0, 6)
    hidden = {structure_hash(atoms) for atoms in ethanol_frames[40:80]}
    bought = labels_of(run, round=1)
    assert {structure_hash(atoms) for atoms in bought} <= hidden
    # No label of the oracle is anywhere but with the structures that were bought.
    pool = read_structures(run / "rounds" / "01" / "pool.xyz", own=True)
    assert all("REF_energy" not in atoms.info for atoms in pool)
    # Candidates of a file are scored, as those of simulations are, and counted.
    scores = load_fitted(run / "rounds" / "00" / "model.ntk", device="cpu").score(pool)
    assert [atoms.info["ntk_variance"] for atoms in pool] == pytest.approx(scores.variance, rel=1e-4)
    assert [atoms.info["forces_uncertainty"] for atoms in pool] == pytest.approx(scores.sigma, rel=1e-4)
    explored = json.loads((run / "rounds" / "01" / "explored.json").read_text())
    assert (explored["trajectories"], explored["frames"]) == ([], {"taken": 40, "dropped": {}})
    page = campaign_page(read_run(run))
    assert "What became of the frames" in page
    assert "40 of these were given" in page
    assert build_viewer(read_run(run)).total == 40
    assert any("6 labels, 40 given; " in str(line) for line in verbs.status(run=run).lines())
    # From exactly what was written, so that a campaign that is resumed picks the same.
    features = [
        shard_features(run / "rounds" / "00" / "model.ntk", frames, "cpu") for frames in (pool, _pool_of(given))
    ]
    assert np.array_equal(*features)


def test_from_a_model_that_exists_by_fine_tuning(trained, ethanol_frames, tmp_path):
    write_structures(tmp_path / "start.xyz", ethanol_frames[:3])
    config = write_config(
        tmp_path,
        start={"molecule": None, "structures": "start.xyz", "model": trained.source, "displacement": 0.02},
        train={"mode": "fine-tune", "epochs": 1, "learning_rate": 1e-6},
        stop={"rounds": 1},
    )
    run, _ = run_campaign(config)
    models = [load_potential(run / "rounds" / number / "model.model", "cpu") for number in ("00", "01")]
    given = dict(trained.parameters())
    for name, tensor in models[0].parameters():
        assert np.array_equal(tensor.detach(), given[name].detach())
    moved = max(float((tensor - given[name]).detach().abs().max()) for name, tensor in models[1].parameters())
    assert 0 < moved < 1e-3
    # The first has not learnt from the labels of the campaign: nothing can be said of what limits it.
    assert [summary["limit"] is None for summary in outcome(run)["rounds"]] == [True, False]


def test_what_ends_a_campaign_may_be_raised(reference, tmp_path):
    """The first round reaches the target; without it the budget lasts for two."""
    run = first_rounds(reference, tmp_path, 1)
    _, verdict = run_campaign(write_config(tmp_path, stop={"force_rmse": 1e3}), resume=True)
    assert verdict.reason == "target"
    _, verdict = run_campaign(write_config(tmp_path, stop={"labels": 30}), resume=True)
    assert verdict.reason == "budget"
    assert len(labels_of(run)) == 28
    _, verdict = run_campaign(write_config(tmp_path, stop={"information": 1e3}), resume=True)
    assert verdict.reason == "information"
