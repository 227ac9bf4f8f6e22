"""Each kind of bad input: one clear line, exit code 2, nothing written."""

import os
import resource
import shutil
import subprocess
import sys

import numpy as np
import pytest
from ase import Atoms
from typer.testing import CliRunner

from adaptntk.cli.app import app
from adaptntk.data.structures import ENERGY, FORCES, write_structures
from adaptntk.errors import InputError
from tests.conftest import tiny_network


@pytest.fixture
def pool_with(parts, tmp_path):
    """A copy of the pool with one frame changed."""

    def make(change, part="pool"):
        frames = [atoms.copy() for atoms in parts[part]]
        change(frames)
        write_structures(tmp_path / "bad.xyz", frames)
        return tmp_path / "bad.xyz"

    return make


def test_missing_labels(refused, pool_with, ntk_file, tmp_path):
    bad = pool_with(lambda f: f[3].info.pop(ENERGY), "test")
    line = refused("evaluate", ntk_file, bad, "-o", tmp_path / "report", cause="frame 3: no label 'REF_energy'")
    assert str(bad) in line


def test_wrong_key(refused, pool_with, ntk_file, tmp_path):
    def rename(frames):
        for atoms in frames:
            atoms.info["energy"] = atoms.info.pop(ENERGY)

    refused(
        "evaluate", ntk_file, pool_with(rename, "test"), "-o", tmp_path / "report", cause="pass --energy-key energy"
    )


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_none(refused, pool_with, ntk_file, tmp_path, value):
    bad = pool_with(lambda f: f[2].positions.__setitem__((0, 0), value))
    refused("score", ntk_file, bad, "-o", tmp_path / "out.xyz", cause="frame 2: position is NaN or infinite")


def test_unknown_element(refused, pool_with, ntk_file, tmp_path):
    bad = pool_with(lambda f: f[4].numbers.__setitem__(0, 17))
    refused(
        "select",
        ntk_file,
        bad,
        "-n",
        2,
        "-o",
        tmp_path / "out.xyz",
        cause="frame 4: the model does not know the element Cl",
    )


def test_empty_pool(refused, ntk_file, tmp_path):
    (tmp_path / "empty.xyz").touch()
    refused("select", ntk_file, tmp_path / "empty.xyz", "-n", 2, "-o", tmp_path / "out.xyz", cause="the file is empty")


def test_fewer_candidates_than_asked(refused, files, ntk_file, tmp_path):
    refused(
        "select", ntk_file, files["pool"], "-n", 31, "-o", tmp_path / "out.xyz", cause="only 30 of 30 are candidates"
    )


def test_duplicate_frames(refused, pool_with, ntk_file, tmp_path):
    bad = pool_with(lambda f: f.append(f[5].copy()))
    refused(
        "select", ntk_file, bad, "-n", 2, "-o", tmp_path / "out.xyz", cause="frames 5 and 30 are the same structure"
    )


def test_overlapping_sets(refused, files, trained, tmp_path):
    refused(
        "fit", trained.source, "--train", files["train"], "--valid", files["train"], "-o", tmp_path / "a.ntk",
        cause="must not overlap",
    )  # fmt: skip


def test_labels_in_kcal(refused, pool_with, files, tmp_path):
    def convert(frames):
        for atoms in frames:
            atoms.info[ENERGY] *= 23.06
            atoms.arrays[FORCES] *= 23.06

    bad = pool_with(convert, "train")
    refused("train", "--train", bad, "--valid", files["valid"], "-o", tmp_path / "a.model", cause="kcal/mol")


def test_positions_in_bohr(refused, pool_with, ntk_file, tmp_path):
    def convert(frames):
        for atoms in frames:
            atoms.positions /= 0.529177

    refused("score", ntk_file, pool_with(convert), "-o", tmp_path / "out.xyz", cause="look like Bohr")


def test_truncated_structure_file(refused, files, ntk_file, tmp_path):
    lines = files["pool"].read_text().splitlines(keepends=True)
    for kept in (11 * 15 + 1, 11 * 15 + 2, 11 * 15 + 6):  # in the second, third and seventh line of a frame
        (tmp_path / "cut.xyz").write_text("".join(lines[:kept]) + lines[kept][:20])
        refused("score", ntk_file, tmp_path / "cut.xyz", "-o", tmp_path / "out.xyz", cause="frame 15")


def test_truncated_ntk(refused, files, ntk_file, tmp_path):
    (tmp_path / "cut.ntk").write_bytes(ntk_file.read_bytes()[:3000])
    refused(
        "score", tmp_path / "cut.ntk", files["pool"], "-o", tmp_path / "out.xyz", cause="not a .ntk file, or truncated"
    )


def test_foreign_ntk(refused, files, ntk_file, fitted, tmp_path):
    tiny_network(seed=9).save(tmp_path / "other.model")
    line = refused(
        "score", ntk_file, files["pool"], "-o", tmp_path / "out.xyz", "--model", tmp_path / "other.model",
        cause="was fitted for another model",
    )  # fmt: skip
    assert fitted.potential.fingerprint in line


def test_model_that_is_none(refused, files, tmp_path):
    (tmp_path / "bad.model").write_bytes(b"nonsense")
    refused(
        "fit", tmp_path / "bad.model", "--train", files["train"], "--valid", files["valid"], "-o", tmp_path / "a.ntk",
        cause="not a MACE model file",
    )  # fmt: skip


def test_output_in_a_missing_folder(refused, files, ntk_file, tmp_path):
    refused("score", ntk_file, files["pool"], "-o", tmp_path / "no" / "out.xyz", cause="does not exist")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_output_in_a_read_only_folder(refused, files, ntk_file, tmp_path):
    tmp_path.chmod(0o500)
    try:
        refused("score", ntk_file, files["pool"], "-o", tmp_path / "out.xyz", cause="Permission denied")
    finally:
        tmp_path.chmod(0o700)


def test_output_where_no_file_can_be(refused, files, ntk_file):
    refused("score", ntk_file, files["pool"], "-o", "/proc/out.xyz", cause="cannot write /proc/out.xyz")


def test_fused_atoms(refused, pool_with, ntk_file, tmp_path):
    bad = pool_with(lambda f: f[1].positions.__setitem__(1, f[1].positions[0] + 0.05))
    refused("score", ntk_file, bad, "-o", tmp_path / "out.xyz", cause="frame 1: two atoms are")


def test_no_atoms(refused, ntk_file, tmp_path):
    (tmp_path / "none.xyz").write_text("0\n\n")
    refused(
        "score",
        ntk_file,
        tmp_path / "none.xyz",
        "-o",
        tmp_path / "out.xyz",
        cause="frame 0: the structure has no atoms",
    )


def test_missing_group(refused, files, ntk_file, tmp_path):
    refused(
        "select", ntk_file, files["pool"], "-n", 2, "-o", tmp_path / "out.xyz", "--per-group-max", "config_type", 3,
        cause="no 'config_type' to group by",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value", "cause"),
    [
        ("--sketch", "fourier", "unknown sketch"),
        ("--sketch-dim", "7", "sketch dimension must be even"),
        ("--sketch-dim", "1000", "exceeds the 788 parameters of the model"),
        ("--lam-criterion", "magic", "unknown criterion"),
        ("--normalise", "magic", "unknown normalisation"),
        ("--device", "abacus", "cannot be used"),
        ("--dtype", "float8", "unknown dtype"),
        ("--head", "nose", "no head 'nose'"),
        ("--lam", "-1", "lam must be positive"),
        ("--alpha", "0", "alpha must be positive"),
        ("--memory", "inf", "memory budget must be"),
    ],
)
def test_impossible_options(refused, files, trained, tmp_path, option, value, cause):
    refused(
        "fit", trained.source, "--train", files["train"], "--valid", files["valid"], "-o", tmp_path / "a.ntk",
        option, value, cause=cause,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value", "cause"),
    [
        ("--sketch", "fourier", "unknown sketch"),
        ("--sketch-dim", "7", "sketch dimension must be even"),
        ("--normalise", "magic", "choose one of none, sqrt_n, per_atom, auto"),
    ],
)
def test_options_are_checked_before_anything_is_read(refused, tmp_path, option, value, cause):
    none = tmp_path / "none"
    refused("fit", none, "--train", none, "--valid", none, "-o", tmp_path / "a.ntk", option, value, cause=cause)


def test_no_batches(ntk_file, files, tmp_path):
    arguments = "evaluate", ntk_file, files["test"], "-o", tmp_path / "report", "--batch-size", 0
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 2
    assert "--batch-size" in result.output


def test_sets_are_checked_before_members_are_trained(refused, files, trained, tmp_path):
    refused(
        "fit", trained.source, "--train", files["train"], "--valid", files["train"], "-o", tmp_path / "a.ntk",
        "--method", "ensemble", "--executor", "local", cause="frame 0 is the same structure as --train",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value", "cause"),
    [
        ("--preset", "huge", "unknown preset"),
        ("--energy-loss", "none", "unknown --energy-loss"),
        ("--energy-reference", "none", "is none of isolated, average, mean"),
        ("--e0s", "Q=1", "is no chemical element"),
        ("--e0s", "isolated", "no frame is an atom with config_type=IsolatedAtom"),
        ("--e0s", "H=-13.6", "no energy is given of an isolated C, O"),
        ("--dtype", "float8", "unknown dtype"),
        ("--epochs", "0", "epochs must be positive"),
        ("--batch-size", "-1", "batch size must be positive"),
        ("--learning-rate", "-1", "learning rate must be positive"),
    ],
)
def test_impossible_training_options(refused, files, tmp_path, option, value, cause):
    refused(
        "train", "--train", files["train"], "--valid", files["valid"], "-o", tmp_path / "a.model", option, value,
        cause=cause,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("-n", "-3"), "ask for at least one"),
        (("-n", "2", "--method", "best"), "unknown selection method"),
        (("-n", "2", "--coverage", "2"), "coverage must lie between 0 and 1"),
        (("-n", "2", "--per-group-max", "frame", "0"), "allow at least one"),
        (("-n", "20", "--min-separation", "0.9"), "satisfy the constraints"),
        (("-n", "9", "--min-separation", "1.9"), "between 0 (the same structure) and 1"),
        (("-n", "9", "--min-separation", "-0.1"), "between 0 (the same structure) and 1"),
        (("-n", "9", "--min-separation", "nan"), "between 0 (the same structure) and 1"),
        (("-n", "2", "--figure", "picks.pdf"), "must be a .png file"),
        (("-n", "2", "--target", "there.xyz"), "the rule adaptntk has no target: use bait+forces"),
        (("-n", "2", "--ceiling", "0"), "--ceiling must be a positive number"),
        (("-n", "2", "--max-error", "nan"), "--max-error must be a positive number"),
        (("-n", "2", "--max-error", "1e-9"), "but only 0 candidates are below the ceiling: raise it, or ask for fewer"),
    ],
)
def test_impossible_selections(refused, files, ntk_file, tmp_path, arguments, cause):
    refused("select", ntk_file, files["pool"], "-o", tmp_path / "out.xyz", *arguments, cause=cause)


def test_too_few_calibration_structures(refused, files, trained, parts, tmp_path):
    write_structures(tmp_path / "few.xyz", parts["valid"][:3])
    refused(
        "fit", trained.source, "--train", files["train"], "--valid", tmp_path / "few.xyz", "-o", tmp_path / "a.ntk",
        cause="at least 10 labelled structures, better 100, not 3",
    )  # fmt: skip


def test_full_disk(trained, tmp_path):
    """The operating system's own limit on file sizes stands in for a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, before[1]))
    try:
        with pytest.raises(InputError, match=f"cannot write {tmp_path / 'out.model'}"):
            trained.save(tmp_path / "out.model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_missing_data_set(refused, tmp_path):
    refused("data", "rmd17", "aspirin", "-o", tmp_path / "out", "--data-dir", tmp_path, cause="It is published as")


def test_unknown_molecule(refused, tmp_path):
    refused("data", "md", "unobtainium", "-o", tmp_path / "out", cause="unknown molecule")


def test_as_a_real_process(tmp_path):
    """Exit code and streams of the installed command."""
    command = [
        sys.executable,
        "-m",
        "adaptntk",
        "score",
        str(tmp_path / "no.ntk"),
        "x.xyz",
        "-o",
        str(tmp_path / "o.xyz"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"adaptntk: {tmp_path / 'no.ntk'}: no such file\n"


def test_a_single_structure_is_scored(ntk_file, parts, tmp_path):
    """The smallest pool there is."""
    write_structures(tmp_path / "one.xyz", parts["pool"][:1])
    arguments = [str(ntk_file), str(tmp_path / "one.xyz"), "-o", str(tmp_path / "out.xyz")]
    assert CliRunner().invoke(app, ["score", *arguments]).exit_code == 0
    figure = str(tmp_path / "picks.png")
    assert CliRunner().invoke(app, ["select", *arguments, "-n", "1", "--figure", figure]).exit_code == 0


def test_an_isolated_atom_is_scored(ntk_file, tmp_path):
    write_structures(tmp_path / "one.xyz", [Atoms("C", positions=[[0, 0, 0]])])
    result = CliRunner().invoke(
        app, ["score", str(ntk_file), str(tmp_path / "one.xyz"), "-o", str(tmp_path / "out.xyz")]
    )
    assert result.exit_code == 0


@pytest.mark.parametrize("spelled", ["pool.xyz", "./pool.xyz", "link.xyz"])
def test_nothing_is_written_onto_what_is_read(refused, ntk_file, files, tmp_path, spelled):
    shutil.copy(files["pool"], tmp_path / "pool.xyz")
    (tmp_path / "link.xyz").symlink_to("pool.xyz")
    output = f"{tmp_path}/{spelled}"
    refused("score", ntk_file, tmp_path / "pool.xyz", "-o", output, cause="it is also the structures of this command")
    refused(
        "md", ntk_file, files["pool"], "-o", tmp_path / "a.xyz", "--candidates", tmp_path / "a.xyz",
        cause="it is also the candidates of this command",
    )  # fmt: skip


def test_an_error_is_not_longer_than_a_page(refused, tmp_path):
    line = refused("data", "md", "x" * 10_000, "-o", tmp_path / "out", cause="unknown molecule")
    assert len(line) < 2000
