import dataclasses

import pytest
import torch

from adaptntk.errors import InputError
from adaptntk.models.mace.family import TINY
from adaptntk.uncertainty.baselines.ensemble import Ensemble, EnsembleOptions
from adaptntk.uncertainty.folder_workbench import FolderWorkbench
from tests.uncertainty.conftest import RECIPE


def work_in(folder, parts, recipe=RECIPE, **more):
    return FolderWorkbench(parts["train"], parts["valid"], 1, folder=folder, recipe=recipe, device="cpu", **more)


def test_members_differ_and_are_trained_once(workbench, parts):
    weights = [torch.cat([p.flatten() for _, p in workbench.member(n).parameters()]) for n in (0, 1)]
    assert not torch.allclose(*weights)
    before = {path: path.stat().st_mtime_ns for path in workbench.folder.glob("*.model")}
    again = work_in(workbench.folder, parts)
    again.member(0), again.member(1)
    assert {path: path.stat().st_mtime_ns for path in workbench.folder.glob("*.model") if path in before} == before
    assert again.seconds_in_training == 0
    assert again.used == {"member-0", "member-1"}
    assert workbench.training_seconds()["member-0"] > 0


def test_given_networks_are_not_trained_again(workbench, parts, tmp_path):
    given = {f"member-{n}": workbench.folder / f"member-{n}.model" for n in (0, 1)}
    bench = work_in(tmp_path, parts, given=given)
    found = Ensemble.fit(bench, None, EnsembleOptions(2))
    assert found.members[1].fingerprint == workbench.member(1).fingerprint
    assert not list(tmp_path.glob("*.model"))
    other = dataclasses.replace(RECIPE, architecture=dataclasses.replace(TINY, max_ell=0))
    with pytest.raises(InputError, match="not built like the networks of this preset"):
        work_in(tmp_path, parts, other, given=given).member(2)


def test_a_network_of_another_training_is_not_taken(workbench, parts):
    """The folder remembers what its networks were trained on."""
    other = FolderWorkbench(parts["valid"], parts["test"], 1, folder=workbench.folder, recipe=RECIPE, device="cpu")
    with pytest.raises(InputError, match="with other data, seed or settings"):
        other.member(0)
    longer = dataclasses.replace(RECIPE, epochs=RECIPE.epochs + 1)
    with pytest.raises(InputError, match="with other data, seed or settings"):
        work_in(workbench.folder, parts, longer).member(1)


def test_an_interrupted_training_goes_on(parts, tmp_path):
    recipe, few = dataclasses.replace(RECIPE, epochs=3), {name: frames[:10] for name, frames in parts.items()}

    def stop(name, report):
        if report.steps == 2 * 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work_in(tmp_path / "cut", few, recipe, on_lap=stop).member(0)
    seen = []
    resumed = work_in(tmp_path / "cut", few, recipe, on_lap=lambda name, report: seen.append((name, report.steps)))
    cut = resumed.member(0)
    assert seen == [("member-0", 6)]
    whole = work_in(tmp_path / "whole", few, recipe).member(0)
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(cut.parameters(), whole.parameters(), strict=True))
