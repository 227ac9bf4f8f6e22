"""``--store``: features on disk, from the command line."""

import signal
import subprocess
import sys
import time

import ase.io
import numpy as np
from typer.testing import CliRunner

from adaptntk.cli.app import app
from adaptntk.data import structures
from adaptntk.data.structures import StructureFile, open_structures, write_structures
from adaptntk.verbs import score, select


def test_a_file_frame_by_frame_gives_the_same_results(ntk_file, files, tmp_path, monkeypatch):
    given = {"ntk": ntk_file, "pool": files["pool"], "count": 5}
    kept = select(**given, output=tmp_path / "a.xyz", figure=tmp_path / "a.png")
    # From here on even a small file is large beside its budget.
    monkeypatch.setattr(structures, "_SHARE_OF_BUDGET", 10**6)
    assert isinstance(open_structures(files["pool"], memory_budget=2**24), StructureFile)
    little = {"store": tmp_path / "s", "memory": 1 / 64}
    streamed = select(**given, **little, output=tmp_path / "b.xyz", figure=tmp_path / "b.png")
    assert streamed.selection.indices == kept.selection.indices
    assert (tmp_path / "a.xyz").read_text().splitlines()[2] == (tmp_path / "b.xyz").read_text().splitlines()[2]
    plain = score(ntk=ntk_file, structures=files["pool"], output=tmp_path / "c.xyz")
    stored = score(ntk=ntk_file, structures=files["pool"], output=tmp_path / "d.xyz", **little)
    assert np.allclose(plain.scores.variance, stored.scores.variance, rtol=1e-4)
    assert len(ase.io.read(tmp_path / "d.xyz", ":")) == 30


def test_only_what_must_be_computed_is_announced(ntk_file, files, parts, tmp_path):
    write_structures(tmp_path / "some.xyz", parts["pool"][:10])

    def said(pool):
        options = ["-o", str(tmp_path / "scored.xyz"), "--store", str(tmp_path / "store")]
        return CliRunner().invoke(app, ["score", str(ntk_file), str(pool), *options]).output

    assert "energy gradients of 10 structures" in said(tmp_path / "some.xyz")
    first, second = said(files["pool"]), said(files["pool"])
    assert "energy gradients of 20 structures" in first
    assert "10 of 30 structures are in the feature store" in first
    assert "energy gradients of" not in second
    assert "all 30 structures are in the feature store" in second


def test_score_goes_on_after_a_kill(ntk_file, parts, tmp_path):
    pool = []
    rng = np.random.default_rng(0)
    for _ in range(40):
        for atoms in parts["pool"]:
            moved = atoms.copy()
            moved.rattle(0.01, rng=rng)
            pool.append(moved)
    write_structures(tmp_path / "pool.xyz", pool)
    command = [
        sys.executable, "-m", "adaptntk", "score", str(ntk_file), str(tmp_path / "pool.xyz"),
        "-o", str(tmp_path / "scored.xyz"), "--store", str(tmp_path / "store"),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    index = tmp_path / "store" / "index.bin"
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not (index.exists() and index.stat().st_size):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = index.stat().st_size // 36
    assert 0 < done < len(pool)
    assert not (tmp_path / "scored.xyz").exists()
    finished = CliRunner().invoke(app, command[3:])
    assert finished.exit_code == 0, finished.output
    assert f"{done} of {len(pool)} structures are in the feature store" in finished.output
    assert len(ase.io.read(tmp_path / "scored.xyz", ":")) == len(pool)
