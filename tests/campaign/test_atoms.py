"""A campaign whose uncertainty knows atoms."""

import json

import numpy as np

from adaptntk.campaign.layout import read_own, read_run
from adaptntk.campaign.loop import run_campaign
from adaptntk.report.viewer import OF_ATOMS, build_viewer, list_candidates, viewer_dataset
from adaptntk.uncertainty.file import load_fitted
from adaptntk.uncertainty.method import ATOM_KEYS
from tests.campaign.conftest import write_config


def test_candidates_carry_the_uncertainty_of_their_atoms(tmp_path):
    joint = {"features": "joint", "force_rows": 3, "committee": 4}
    run = tmp_path / "runs" / "water"
    run_campaign(write_config(tmp_path, uncertainty=joint, stop={"rounds": 1}))
    pool = read_own(run / "rounds" / "01" / "pool.xyz")
    fitted = load_fitted(run / "rounds" / "00" / "model.ntk", device="cpu")
    assert fitted.method.committee is not None
    for atoms in pool[:5]:
        expected = fitted.score([atoms], per_atom=True)
        for key, values in zip(ATOM_KEYS, (expected.atoms.sigma, expected.atoms.energy_sigma), strict=True):
            # Positions are written to eight digits, and differences of float32 are right to a hundredth.
            assert np.allclose(atoms.arrays[key], values[0], rtol=0.1)
        assert np.isclose(atoms.info["forces_uncertainty"], expected.sigma[0], rtol=0.1)
    shown = list_candidates(read_run(run))
    dataset = viewer_dataset("water", shown)
    of_atoms = dataset["properties"][OF_ATOMS]
    assert of_atoms["target"] == "atom"
    assert np.allclose(of_atoms["values"][:3], 1000 * shown[0].read().arrays[ATOM_KEYS[0]], atol=0.1)
    assert len(dataset["environments"]) == sum(candidate.atoms for candidate in shown)
    assert json.dumps(dataset["settings"]).count(OF_ATOMS) >= 1
    assert build_viewer(read_run(run)).of_atoms
