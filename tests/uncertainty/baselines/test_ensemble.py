import numpy as np
import pytest

from adaptntk.errors import InputError
from adaptntk.uncertainty.baselines.ensemble import EnsembleOptions
from adaptntk.uncertainty.fit import fit
from adaptntk.uncertainty.folder_workbench import FolderWorkbench


def test_an_ensemble_is_its_members(fit_by_name, parts):
    ensemble = fit_by_name("ensemble").method
    test = parts["test"][:3]
    forces = [np.stack([m.predict(test).forces[i] for m in ensemble.members]) for i in range(3)]
    found = ensemble.assess(test)
    assert len(ensemble.members) == 2
    assert np.allclose(found.score, [f.std(axis=0, ddof=1).mean() for f in forces])
    assert np.allclose(found.forces[1], forces[1].mean(axis=0))
    assert np.allclose(found.energies, np.mean([m.predict(test).energies for m in ensemble.members], axis=0))
    with pytest.raises(InputError, match="at least two members"):
        EnsembleOptions(members=1)


def test_an_ensemble_of_copies_is_refused(workbench, parts, tmp_path):
    file = workbench.folder / "member-0.model"
    given = {"member-0": file, "member-1": file}
    bench = FolderWorkbench(
        parts["train"], parts["valid"], 1, folder=tmp_path, recipe=workbench.recipe, device="cpu", given=given
    )
    with pytest.raises(InputError, match="are the same network"):
        fit(bench, "ensemble", {"members": 2})
