"""No byte of a file changes unnoticed, and nothing that no fit can have written is believed."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from adaptntk.errors import InputError
from adaptntk.uncertainty import stored
from adaptntk.uncertainty.file import load_fitted, read_header, save_fitted
from tests.conftest import DATA_FILES
from tests.uncertainty.ntk_files import contents_of, write_contents

OLD = DATA_FILES / "old_formats"


@pytest.fixture(scope="module")
def small_files(tmp_path_factory):
    """A small file of the present format of each method."""
    folder = tmp_path_factory.mktemp("small")
    for name in ("ntk-format-2.ntk", *(f"{path.stem}.uq" for path in OLD.glob("*.uq"))):
        save_fitted(load_fitted(OLD / name, device="cpu"), folder / name.split("-")[0].removesuffix(".uq"))
    return {path.name: path for path in folder.iterdir()}


def refusal(path, readers=(load_fitted, read_header)):
    """The one line that both readers say."""
    said = set()
    for read in readers:
        with pytest.raises(InputError) as no:
            read(path)
        said.add(str(no.value))
    (line,) = said
    assert "\n" not in line
    assert len(line) < 400 + len(str(path))
    return line


def test_every_flipped_bit_is_noticed(small_files, tmp_path):
    whole = small_files["ntk"].read_bytes()
    rng, path = np.random.default_rng(0), tmp_path / "flipped.ntk"
    header = int.from_bytes(whole[:8], "little") + 8
    # The length, header, checksum, padding and numbers.
    places = [*range(8), *range(header - 10, header + 2), whole.index(b"checksum") + 20, len(whole) - 1]
    places += [*rng.integers(0, header, 100), *rng.integers(0, len(whole), 100)]
    for place in places:
        for bit in rng.choice(8, 2, replace=False) if place > 7 else range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << int(bit)
            path.write_bytes(flipped)
            refusal(path)


def test_bytes_that_are_lost_or_added_are_noticed(small_files, tmp_path):
    whole, path = small_files["ntk"].read_bytes(), tmp_path / "cut.ntk"
    for content in (whole[:-1], whole + b"\0", whole[: len(whole) // 2], whole[8:], whole[:8], b"\xff" * 8 + whole[8:]):
        path.write_bytes(content)
        refusal(path)


def test_an_edited_header_is_noticed(small_files, tmp_path):
    header, tensors = contents_of(small_files["ntk"])
    path = tmp_path / "edited.ntk"
    factor = edited(header, "calibration.forces.a", 13 * header["calibration"]["forces"]["a"])
    write_contents(path, factor, tensors, checksum=False)
    assert "its checksum does not fit its content" in refusal(path)
    without = {key: value for key, value in header.items() if key != "checksum"}
    write_contents(path, without, tensors, checksum=False)
    assert "its checksum is missing" in refusal(path)
    # A text that looks like one does not stand in for it.
    write_contents(path, without | {"written_by": '"checksum": "' + "0" * 64 + '"'}, tensors, checksum=False)
    assert "its checksum is missing" in refusal(path)
    # Nor does the format before help, which had none.
    write_contents(path, header | {"format": 3}, tensors, checksum=False)
    refusal(path)


NONSENSE = {
    "format is a text": (("format", "4"), "written in format 4"),
    "format is a list": (("format", [4]), "written in format"),
    "format is no integer": (("format", 4.0), "written in format"),
    "format is true": (("format", True), "written in format"),
    "an unknown method": (("method", "magic"), "unknown method 'magic'"),
    "no networks": (("networks", []), "networks"),
    "a short hash": (("networks.0.sha256", "abc"), "sha256"),
    "a hash that is no hexadecimal": (("train_hashes.0", "x" * 64), "train_hashes.0"),
    "too few structures": (("train_hashes", ["0" * 64]), "shape"),
    "no structures": (("train_hashes", []), "train_hashes"),
    "another precision": (("dtype", "float16"), "dtype"),
    "no parameters": (("parameter_count", 0), "parameter_count"),
    "a negative slope": (("calibration.forces.a", -1.0), "greater than or equal to 0"),
    "a negative floor": (("calibration.energy.b", -1.0), "greater than or equal to 0"),
    "a list for a number": (("calibration.forces.b", [1.0]), "calibration.forces.b"),
    "a text for a number": (("calibration.forces.b", "1.0"), "calibration.forces.b"),
    "NaN": (("calibration.forces.a", float("nan")), "NaN is no number"),
    "infinity": (("settings.ridge.lam", float("inf")), "Infinity is no number"),
    "an infinite offset": (("calibration.energy_offset", float("inf")), "no number"),
    "a text for an offset": (("calibration.energy_offset", "0"), "energy_offset"),
    "another number of labels": (("calibration.force_labels", 3), "shape"),
    "labels that are not there": (("calibration.energy_labels", 3), "energy_ratios is missing"),
    "an unknown power": (("calibration.energy_power", 0.7), "energy_power"),
    "more structures than numbers": (("calibration.structures", 10**12), "shape"),
    "no calibration": (("calibration", None), "calibration_ratios is unknown"),
    "an absurd floor": (("calibration.forces.b", 1e300), "less than"),
    "an absurd lam": (("settings.ridge.lam", 1e-300), "greater than"),
    "lam of zero": (("settings.ridge.lam", 0.0), "settings.ridge.lam"),
    "a negative lam": (("settings.ridge.lam", -1e-5), "settings.ridge.lam"),
    "a huge integer": (("settings.ridge.lam", 10**4000), "is no number"),
    "an unknown map": (("settings.features.map", "magic"), "settings.features.map"),
    "an unknown normalisation": (("settings.features.normalise", "cube"), "settings.features.normalise"),
    "an unknown sketch": (("settings.features.sketch.kind", "charcoal"), "settings.features.sketch.kind"),
    "terabytes": (("settings.features.sketch.dim", 2**40), "settings.features.sketch.dim"),
    "gigabytes": (("settings.features.sketch.dim", 2**30), "shape"),
    "no width": (("settings.features.sketch.dim", -2), "settings.features.sketch.dim"),
    "a seed with a fraction": (("settings.features.sketch.seed", 0.5), "settings.features.sketch.seed"),
    "a huge seed": (("settings.features.sketch.seed", 2**70), "settings.features.sketch.seed"),
    "something unknown": (("settings.magic", 1), "settings.magic"),
    "something unknown above": (("magic", 1), "magic"),
    "nothing": (("settings", {}), "settings.features"),
    "settings of another kind": (("settings", [1]), "settings"),
}


def edited(header, where, value):
    header = copy.deepcopy(header)
    *path, last = where.split(".")
    place = header
    for key in path:
        place = place[int(key) if isinstance(place, list) else key]
    place[int(last) if isinstance(place, list) else last] = value
    return header


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_refused_whatever_the_checksum_says(small_files, tmp_path, name):
    (where, value), message = NONSENSE[name]
    header, tensors = contents_of(small_files["ntk"])
    write_contents(tmp_path / "nonsense.ntk", edited(header, where, value), tensors)
    assert message in refusal(tmp_path / "nonsense.ntk")


def test_a_header_that_is_no_record(small_files, tmp_path):
    _, tensors = contents_of(small_files["ntk"])
    path = tmp_path / "deep.ntk"
    for text, message in (
        ("[" * 100_000, "nested too deeply"),
        ('{"settings": ' * 100_000, "nested too deeply"),
        ("[1]", "not a record"),
        ("null", "not a record"),
        ('{"format": 4, "format": 4}', "twice"),
        ("", "Expecting value"),
    ):
        save_file(tensors, path, {"adaptntk": text})
        assert message in refusal(path)


def changed_tensors(tensors):
    """What is done to the tensors, and what is said."""
    blocks, ratios = tensors["state.blocks"], tensors["calibration_ratios"]
    spoilt = blocks.clone()
    spoilt[3, 0, 5] = float("nan")
    yield {"state.blocks": spoilt}, "NaN"
    yield {"state.blocks": blocks * float("inf")}, "infinite"
    yield {"state.blocks": blocks * 1e200}, "beyond 1e+50"
    yield {"state.blocks": blocks[:-1].clone()}, "has the shape 11 x 1 x 32, not 12 x"
    yield {"state.blocks": blocks[..., :-2].clone()}, "not 12 x 1 x 32"
    yield {"state.blocks": blocks[:, 0].clone()}, "has the shape 12 x 32"
    yield {"state.blocks": blocks.to(torch.int64)}, "is of type int64"
    yield {"state.blocks": None}, "blocks is missing"
    yield {"state.more": blocks.clone()}, "more is unknown"
    yield {"more": blocks.clone()}, "more is unknown"
    yield {"calibration_ratios": ratios.flip(0)}, "not sorted"
    yield {"calibration_ratios": -ratios.flip(0)}, "must be >= 0"
    yield {"calibration_ratios": ratios[1:].clone()}, "shape"
    yield {"calibration_energy_ratios": ratios.clone()}, "energy_ratios is unknown"  # of a file of before


def test_tensors_that_cannot_be(small_files, tmp_path):
    header, tensors = contents_of(small_files["ntk"])
    for change, message in changed_tensors(tensors):
        kept = {name: tensor for name, tensor in (tensors | change).items() if tensor is not None}
        write_contents(tmp_path / "a.ntk", header, kept)
        assert message in refusal(tmp_path / "a.ntk")


OPTIONAL = ("sketch_check", "train_sizes")


def test_every_method_declares_what_its_file_holds(small_files, tmp_path):
    """Each setting turned into something else, each tensor left out, cut or negative where it must not be."""
    assert len(small_files) == 10
    for name, file in small_files.items():
        header, tensors = contents_of(file)
        assert read_header(file)["method"] == name
        path = tmp_path / name
        for key in header["settings"]:
            for value in ("text", [], None, -0.5):
                if (value == -0.5 and key in ("lowest", "intercept")) or (value is None and key in OPTIONAL):
                    continue
                write_contents(path, edited(header, f"settings.{key}", value), tensors)
                assert f"settings.{key}" in refusal(path)
        for key, tensor in tensors.items():
            write_contents(path, header, {other: value for other, value in tensors.items() if other != key})
            assert "is missing" in refusal(path)
            if key != "state.deviations":  # any number of snapshots
                write_contents(path, header, tensors | {key: torch.cat([tensor, tensor])})
                assert "shape" in refusal(path)
            if key.endswith((".scale", ".spreads")):
                write_contents(path, header, tensors | {key: torch.zeros_like(tensor)})
                assert "must be > 0" in refusal(path)


def test_files_of_earlier_formats_obey_the_same_rules(tmp_path):
    """Without a checksum, but nothing that cannot be."""
    for name in ("ntk-format-2.ntk", "ntk-format-3.ntk", "last_layer.uq", "error_model.uq", "swag.uq"):
        header, tensors = contents_of(OLD / name)
        path = tmp_path / name
        for where, value in (
            ("calibration.forces.a", -1.0),
            ("calibration", 3),
            ("calibration.forces", {}),
            ("settings", None),
            ("ridge", []),
            ("normalise", "cube"),
            ("train_hashes", None),
            ("head", 3),
        ):
            if where.split(".")[0] in header:
                write_contents(path, edited(header, where, value), tensors, checksum=False)
                assert "changed or damaged" in refusal(path)
        for key in header:
            if key not in {"written_by", "parameter_count", "parameters_sha256"}:
                left = {other: value for other, value in header.items() if other != key}
                write_contents(path, left, tensors, checksum=False)
                refusal(path)
        for key, tensor in tensors.items():
            if tensor.dtype == torch.bool:
                continue
            for change in (None, tensor[..., 1:].clone(), tensor * float("nan")):
                kept = {other: value for other, value in (tensors | {key: change}).items() if value is not None}
                write_contents(path, header, kept, checksum=False)
                # How wide some rows must be only the model knows.
                assert "changed or damaged" in refusal(path, [lambda path: load_fitted(path, OLD / "tiny.model")])


def test_what_could_not_be_read_is_not_written(fitted, tmp_path):
    spoilt = replace(fitted, calibration=replace(fitted.calibration, energy_power=0.7))
    with pytest.raises(InputError, match="energy_power"):
        save_fitted(spoilt, tmp_path / "a.ntk")
    assert list(tmp_path.iterdir()) == []


def test_shapes_are_said_in_words():
    known = {"n": 3}
    held = stored.Stored({"p": int}, {"a": "n p", "b": "p > 0", "c": "2"})
    ones = {"a": torch.ones(3, 4), "b": torch.ones(4), "c": torch.ones(2)}
    held.check({"p": 4}, ones, known)
    with pytest.raises(ValueError, match="tensor b has the shape 5, not 4"):
        held.check({"p": 4}, ones | {"b": torch.ones(5)}, known)
    stored.Stored().check({"anything": [1]}, {"x": torch.ones(1)}, {})
