"""What is begun is begun as a whole, what was changed is noticed, and nothing that was refused leaves a trace."""

import errno
import os
import shutil
import signal
import sys
from contextlib import ExitStack

import pytest

from adaptntk.campaign import layout, loop
from adaptntk.campaign.config import Overrides
from adaptntk.campaign.config_file import read_config
from adaptntk.campaign.layout import RunDirectory, read_run
from adaptntk.campaign.loop import run_campaign
from adaptntk.data.structures import structure_hash, write_structures
from adaptntk.errors import InputError
from adaptntk.files import LOCK
from adaptntk.labelers.record import LabelRecord, Origin, read_label, write_label
from tests.campaign.conftest import outcome, write_config
from tests.campaign.test_trouble import copy_of

NAMES = [
    "../../x",
    "/abs",
    "a/b",
    "a\\b",
    "..",
    ".hidden",
    "-rf",
    "",
    " ",
    "a\nb",
    "a\0b",
    "a\x1b[31mb",
    "a\u202eb",
    "n" * 300,
]


@pytest.mark.parametrize("name", NAMES)
def test_names_stay_inside_runs(name, tmp_path):
    with pytest.raises(InputError) as caught:
        run_campaign(write_config(tmp_path, name=name))
    assert "name:" in str(caught.value)
    assert str(caught.value).isprintable()
    assert [path.name for path in tmp_path.iterdir()] == ["campaign.yaml"]


@pytest.mark.parametrize(
    "changes",
    [
        {"explore": {"timestep": float("inf")}},
        {"stop": {"force_rmse": float("nan")}},
        {"label": {"settings": {"accuracy": float("-inf")}}},
        {"start": {"molecule": "etanol"}},
        {"start": {"molecule": None, "structures": "absent.xyz"}},
    ],
)
def test_what_is_refused_leaves_nothing(changes, tmp_path):
    with pytest.raises(InputError, match=r"infinite or no number|etanol|absent\.xyz"):
        run_campaign(write_config(tmp_path, **changes))
    assert [path.name for path in tmp_path.iterdir()] == ["campaign.yaml"]


def test_yaml_that_holds_itself_is_refused(tmp_path):
    path = tmp_path / "campaign.yaml"
    path.write_text("name: a\nstart: {molecule: water}\nlabel: {settings: &a {again: *a}}\n")
    with pytest.raises(InputError, match="holds itself"):
        read_config(path)


# Called at every system call that makes, opens or renames files; a hook of the interpreter cannot be taken back.
on_files = []
FILE_EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}
sys.addaudithook(lambda event, arguments: [call() for call in on_files] if event in FILE_EVENTS else None)


def begin_with(config, at, what):
    """Begin a run; something happens at one of its calls. Whether the beginning was over before."""
    calls = iter(range(100_000))
    on_files[:] = [lambda: what() if next(calls) == at else None]
    try:
        with loop._open_run(config, "text", False):
            on_files.clear()
            return next(calls) <= at
    finally:
        on_files.clear()


def check_it_goes_on(config):
    begun = (config.output / "run.json").exists()
    with loop._open_run(config, "text", resume=begun) as run:
        assert (config.output / "campaign.yaml").read_text() == "text"
        assert run.record().name == "water"
        assert sorted(path.name for path in config.output.iterdir()) == [".lock", "campaign.yaml", "labels", "run.json"]
    shutil.rmtree(config.output.parent)


def killed(config, at):
    child = os.fork()
    if child == 0:
        over = begin_with(config, at, lambda: os.kill(os.getpid(), signal.SIGKILL))
        os._exit(0 if over else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_beginning_that_is_killed_anywhere_is_begun_anew(tmp_path):
    config = read_config(write_config(tmp_path))
    at = 0
    while not killed(config, at):
        check_it_goes_on(config)
        at += 1
    assert at > 10


def test_a_beginning_on_a_full_disk_leaves_nothing_or_goes_on(tmp_path):
    config = read_config(write_config(tmp_path))

    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    refused = 0
    for at in range(1000):
        try:
            if begin_with(config, at, full):
                break
        except InputError:
            refused += 1
            if not (config.output / "run.json").exists():
                assert not config.output.parent.exists()
        check_it_goes_on(config)
    assert 5 < refused < at


def test_what_an_earlier_version_left_of_a_beginning_is_no_hindrance(tmp_path):
    config = write_config(tmp_path)
    run = tmp_path / "runs" / "water"
    (run / "labels").mkdir(parents=True)
    shutil.copy(config, run)
    with loop._open_run(read_config(config), config.read_text(), resume=True) as opened:
        assert opened.record().name == "water"
    other = tmp_path / "other"
    other.mkdir()
    (other / "campaign.yaml").write_text("somebody else's")
    with pytest.raises(InputError, match="not empty"):
        run_campaign(config, overrides=Overrides(output=other))
    assert (other / "campaign.yaml").read_text() == "somebody else's"


def test_a_lost_record_and_a_file_in_the_way_are_told(reference, tmp_path):
    config, run = copy_of(reference, tmp_path)
    (run / "run.json").unlink()
    with pytest.raises(InputError, match=r"run\.json was lost: put it back"):
        run_campaign(config, resume=True)
    shutil.rmtree(run)
    run.write_text("a file")
    with pytest.raises(InputError, match="is a file"):
        run_campaign(config)


def test_temporaries_are_no_data_and_are_swept_on_resume(reference, tmp_path):
    config, run = copy_of(reference, tmp_path)
    some = next((run / "labels").glob("*.xyz"))
    half = some.read_text()[:40]
    for folder in ("labels", "quarantine", "rounds/01", "rounds/02/trajectories", "."):
        (run / folder).mkdir(exist_ok=True)
        (run / folder / f".{some.name}.abcd_123.xyz").write_text(half)  # as earlier versions called it
        (run / folder / ".adaptntk-tmp-abcd_123").mkdir()
        (run / folder / ".adaptntk-tmp-abcd_123" / some.name).write_text(half)
    assert len(read_run(run).labels) == 34
    write_config(tmp_path)
    run_campaign(config, resume=True)
    assert outcome(run) == outcome(reference)
    assert not [path for path in run.rglob(".*") if path.name != ".lock"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_label_that_is_killed_while_it_is_written_is_complete_or_absent(ethanol_frames, tmp_path):
    run = RunDirectory(tmp_path)
    run.files.labels.mkdir()
    atoms = Origin(round=0, role="train", chosen_by="start", number=0).mark(ethanol_frames[0].copy())
    path = run.files.label(structure_hash(atoms))
    complete = []
    for at in range(1000):
        child = os.fork()
        if child == 0:
            calls = iter(range(1000))
            on_files[:] = [lambda at=at, calls=calls: os.kill(os.getpid(), 9) if next(calls) == at else None]
            write_label(path, atoms)
            os._exit(0)
        over = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        complete.append(bool(run.files.all_labels()))
        if complete[-1]:
            read_label(path)
        run.sweep()
        assert [entry.name for entry in run.files.labels.iterdir()] == ([path.name] if complete[-1] else [])
        path.unlink(missing_ok=True)
        if over:
            break
    assert len(complete) > 5
    assert complete == sorted(complete)


@pytest.mark.parametrize("what", ["energy", "force", "role", "with its hash", "a second frame"])
def test_a_label_that_was_edited_is_named(what, reference, tmp_path):
    config, run = copy_of(reference, tmp_path)
    path = sorted((run / "labels").glob("*.xyz"))[3]
    (atoms, record), text = read_label(path), path.read_text()
    if what == "energy":
        text = text.replace(f"REF_energy={record.energy}", f"REF_energy={record.energy + 1e-9}")
    elif what == "force":
        last = text.split()[-1]
        text = text.replace(last, f"{float(last) + 1e-8:.8f}")
    elif what == "role":
        text = text.replace("role=", "role=train old=", 1).replace("role=train old=train", "role=holdout old=train")
    elif what == "a second frame":
        text = 2 * text
    else:  # somebody who knows how: the ledger tells
        atoms.arrays["REF_forces"][0] += 0.1
        write_label(path, atoms)
        text = path.read_text()
    assert text != path.read_text() or what == "with its hash"
    path.write_text(text)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=f"{path.name}: (was changed|is not what|holds 2)"):
        run_campaign(config, resume=True)
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}  # the verdict as well


def test_given_labels_are_protected_too(ethanol_frames, tmp_path):
    frame = ethanol_frames[0].copy()
    frame.info |= {"label_hash": "of somebody else", "round": 0, "role": "train", "number": -1, "chosen_by": "given"}
    path = tmp_path / f"{structure_hash(frame)}.xyz"
    write_structures(path, [frame])
    with pytest.raises(InputError, match="was changed"):
        read_label(path)
    write_label(path, frame)
    assert read_label(path)[1].label_hash == LabelRecord.read(path).label_hash


def test_picks_that_are_not_in_the_pool_are_told(reference, tmp_path):
    config, run = copy_of(reference, tmp_path)
    here = run / "rounds" / "02"
    for name in ("round.json", "model.model", "model.ntk"):
        (here / name).unlink()
    picks = here / "picks.json"
    picks.write_text(picks.read_text().replace('"hash": "', '"hash": "0', 1))
    with pytest.raises(InputError, match=r"picks\.json: names a structure that pool\.xyz does not hold"):
        run_campaign(config, resume=True)


def test_who_comes_second_leaves_the_lock_of_the_first(tmp_path, monkeypatch):
    """Of two that begin at one moment the one that is refused must not open the folder to a third."""
    real, run = layout.locked, layout.RunDirectory(tmp_path / "runs" / "both")
    with ExitStack() as first:

        def somebody_was_faster(folder):
            first.enter_context(real(folder))
            return real(folder)

        monkeypatch.setattr(layout, "locked", somebody_was_faster)
        with pytest.raises(InputError, match="another process is working there"), run.alone():
            pytest.fail("two in one folder")
        assert (run.path / LOCK).exists()
    monkeypatch.setattr(layout, "locked", real)
    with pytest.raises(ZeroDivisionError), layout.RunDirectory(tmp_path / "new" / "run").alone():
        raise ZeroDivisionError
    assert not (tmp_path / "new").exists()
