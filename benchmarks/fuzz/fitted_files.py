"""Cases of ``.ntk``, ``.uq`` and model files: damaged, edited, swapped, or made to run code."""

import functools
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from adaptntk.uncertainty.file_header import NO_CHECKSUM, write_checksum
from benchmarks.fuzz import blind
from benchmarks.fuzz.case import Case, Expected, Rng, chance, pick
from benchmarks.fuzz.hostile import write_hostile
from benchmarks.fuzz.material import Material, check_scores

Story = tuple[str, Expected]
ODD_VALUES: tuple[Any, ...] = (
    float("nan"), float("inf"), -1.0, 0, -1, 1e300, 10**30, "x", None, [], {}, True, "nan", [[1]], "9" * 5000, "", 7,
    1.5, "nonsense", "\x1b[2J", "../x", "a\x00b", "x" * 10_000,
)  # fmt: skip
PLACES: tuple[Any, ...] = (
    "../case/evil.model", "evil.model", "/etc/passwd", "/dev/zero", "/dev/null", "../../../../../../etc/passwd", ".",
    "", "/",
    "pipe", "gone.model", "water.model\x00", "pool.xyz", "~", 7, [], None, "x" * 5000, "water.ntk", "link.model",
)  # fmt: skip


def make(rng: Rng, folder: Path, material: Material) -> Case:
    """A fitted uncertainty that something was done to, or whose model was, and a verb that reads it."""
    name = str(pick(rng, ("water.ntk", "water.ntk", "water.uq")))
    material.copy(folder, "water.model", name, "pool.xyz")
    change = str(pick(rng, CHANGES))
    story, expected = CHANGES[change](rng, folder, name)
    verb = str(pick(rng, ("score", "score", "select", "md", "fit", "given"))) if "model" in change else "score"
    words = {
        "score": f"score {name} pool.xyz -o out.xyz",
        "given": f"score {name} pool.xyz --model water.model -o out.xyz",
        "select": f"select {name} pool.xyz -n 2 -o out.xyz",
        "md": f"md {name} pool.xyz --steps 1 --coverage 0.8 -o out.xyz",
        "fit": "fit water.model --train train.xyz --valid valid.xyz --sketch-dim 16 -o out.ntk",
    }[verb].split()
    if verb == "fit":
        material.copy(folder, "train.xyz", "valid.xyz")
        if change not in ("model hostile", "model cut", "model of another kind"):
            expected = "either"  # a model of other weights is as good as any
    if verb == "given" and change == "model elsewhere":
        expected = "either"  # the model that is given is the right one
    check = None
    if verb in ("score", "given") and "sealed" not in change:
        like = material.folder / "scored.xyz" if name == "water.ntk" else None
        check = functools.partial(_check, like)
    blamed = (name, "water.model", "evil.model", "model")
    return Case(f"{verb} {name}: {story}", [*words, "--device", "cpu"], expected, blamed, check, ("out.xyz", "out.ntk"))


def _check(like: Path | None, folder: Path) -> None:
    check_scores(folder / "out.xyz", None, like)


def _damaged(rng: Rng, folder: Path, name: str) -> Story:
    story, content = blind.mutate(rng, (folder / name).read_bytes(), blind.BINARY)
    (folder / name).write_bytes(content)
    return story, "refused"


def _flipped(rng: Rng, folder: Path, name: str) -> Story:
    (folder / name).write_bytes(blind.flip_bit(rng, (folder / name).read_bytes()))
    return "a bit flipped", "refused"


def _something_else(rng: Rng, folder: Path, name: str) -> Story:
    others: tuple[bytes, ...] = (
        b"", b"\x00" * 8, b"\xff" * 8 + b"{}", (2).to_bytes(8, "little") + b"{}", rng.bytes(1000),
        (folder / "pool.xyz").read_bytes(), (folder / "water.model").read_bytes(),
        (20_000).to_bytes(8, "little") + b"[" * 20_000, (2**40).to_bytes(8, "little") + b"{}",
    )  # fmt: skip
    (folder / name).write_bytes(pick(rng, others))
    return "something else under its name", "refused"


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["adaptntk"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _write(path: Path, header: dict[str, Any], tensors: dict[str, torch.Tensor], sealed: bool) -> None:
    """As it would be written by somebody who knows how to seal it, or does not."""
    if sealed and "checksum" in header:
        header["checksum"] = NO_CHECKSUM
    contents = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contents, path, {"adaptntk": json.dumps(header, indent=1)})
    if sealed and "checksum" in header:
        write_checksum(path)


def _edited(rng: Rng, folder: Path, name: str, sealed: bool) -> Story:
    header, tensors = _read(folder / name)
    path, value = blind.edit_entry(rng, header, ODD_VALUES)
    story = f"{'.'.join(map(str, path))} = {value}"
    _write(folder / name, header, tensors, sealed)
    ours = any(word in story for word in ("thresholds", "units", "written_by", "checksum"))
    return f"{story}{', sealed' if sealed else ''}", "either" if sealed or ours else "refused"


def _odd_number(rng: Rng, folder: Path, name: str) -> Story:
    """Numbers that make no sense, under a checksum that is right."""
    header, tensors = _read(folder / name)
    place, key = pick(rng, [("forces", "a"), ("forces", "b"), ("energy", "a"), ("energy", "b")])
    value = pick(rng, (float("nan"), float("inf"), -1.0, "x", None, [1], -(10.0**300)))
    header["calibration"][place][key] = value
    _write(folder / name, header, tensors, True)
    return f"calibration.{place}.{key} = {value!r}, sealed", "refused"


def _odd_tensor(rng: Rng, folder: Path, name: str, sealed: bool) -> Story:
    header, tensors = _read(folder / name)
    which = str(pick(rng, sorted(tensors)))
    tensor = tensors[which]
    how = str(pick(rng, ("nan", "inf", "shape", "dtype", "lost", "empty", "huge", "more", "swapped")))
    if how in ("nan", "inf", "huge"):
        changed = tensor.clone().double()
        changed.view(-1)[int(rng.integers(changed.numel()))] = float("1e308" if how == "huge" else how)
        tensors[which] = changed.to(tensor.dtype) if tensor.is_floating_point() else changed
    elif how == "shape":
        tensors[which] = tensor.reshape(-1)[: max(1, tensor.numel() - 1)].clone()
    elif how == "dtype":
        tensors[which] = tensor.to(torch.float16 if tensor.is_floating_point() else torch.float64)
    elif how == "lost":
        del tensors[which]
    elif how == "empty":
        tensors[which] = torch.zeros(0)
    elif how == "more":
        tensors["state.more"] = torch.zeros(3)
    else:
        other = str(pick(rng, sorted(tensors)))
        tensors[which], tensors[other] = tensors[other].clone(), tensors[which].clone()
        if other == which:
            return "nothing", "either"
    _write(folder / name, header, tensors, sealed)
    loose = sealed and how in ("more", "huge", "dtype", "swapped", "shape")
    return f"{which}: {how}{', sealed' if sealed else ''}", "either" if loose else "refused"


def _hostile_place(rng: Rng, folder: Path, name: str) -> Story:
    """A file that names a model elsewhere, with the hash that belongs to it."""
    header, tensors = _read(folder / name)
    what = write_hostile(rng, folder / "evil.model", (folder / "water.model").read_bytes())
    os.mkfifo(folder / "pipe")
    (folder / "link.model").symlink_to("evil.model")
    place = pick(rng, PLACES)
    network = header["networks"][0]
    network["path"] = place
    if chance(rng, 0.7):
        network["sha256"] = hashlib.sha256((folder / "evil.model").read_bytes()).hexdigest()
    if not isinstance(place, str):
        place = repr(place)
    _write(folder / name, header, tensors, True)
    return f"its model is {place[:30]!r} ({what})", "refused"


def _hostile_model(rng: Rng, folder: Path, name: str) -> Story:
    what = write_hostile(rng, folder / "water.model", (folder / "water.model").read_bytes())
    if chance(rng, 0.6):  # with the hash that belongs to it
        header, tensors = _read(folder / name)
        header["networks"][0]["sha256"] = hashlib.sha256((folder / "water.model").read_bytes()).hexdigest()
        _write(folder / name, header, tensors, True)
    return f"its model runs code ({what})", "refused"


def _damaged_model(rng: Rng, folder: Path, name: str) -> Story:
    story, content = blind.mutate(rng, (folder / "water.model").read_bytes(), blind.BINARY)
    (folder / "water.model").write_bytes(content)
    return f"{story} in its model", "refused"


def _other_model(rng: Rng, folder: Path, name: str) -> Story:
    """A file that torch reads, and that is no network."""
    path, layer = folder / "water.model", torch.nn.Linear(2, 2)
    how = str(pick(rng, ("weights", "layer", "list", "number", "script", "empty archive", "module of another kind")))
    if how == "script":
        torch.jit.script(layer).save(path)
    elif how == "empty archive":
        path.write_bytes(b"PK\x05\x06" + bytes(18))
    else:
        others = {"weights": layer.state_dict(), "layer": layer, "list": [1, "x"], "number": 7}
        torch.save(others.get(how, torch.nn.Sequential(layer, torch.nn.Tanh())), path)
    return f"its model is a {how}", "refused"


def _downgraded(rng: Rng, folder: Path, name: str) -> Story:
    """As if an earlier version had written it, before there were checksums, and somebody edited it since."""
    header, tensors = _read(folder / name)
    del header["checksum"]
    header["format"] = pick(rng, (3, 2, 1, 0, 5, "4", None, 4))
    story = "nothing"
    if chance(rng, 0.7):
        path, value = blind.edit_entry(rng, header, ODD_VALUES)
        story = f"{'.'.join(map(str, path))} = {value}"
    _write(folder / name, header, tensors, False)
    return f"format {header.get('format')!r}, {story}", "either"


def _cut_model(rng: Rng, folder: Path, name: str) -> Story:
    content = (folder / "water.model").read_bytes()
    (folder / "water.model").write_bytes(content[: int(rng.integers(len(content) * 3 // 4))])
    return "its model is cut", "refused"


CHANGES: dict[str, Callable[[Rng, Path, str], Story]] = {
    "damaged": _damaged,
    "flipped": _flipped,
    "something else": _something_else,
    "edited": functools.partial(_edited, sealed=False),
    "edited, sealed": functools.partial(_edited, sealed=True),
    "edited, sealed, again": functools.partial(_edited, sealed=True),
    "number, sealed": _odd_number,
    "tensor": functools.partial(_odd_tensor, sealed=False),
    "tensor, sealed": functools.partial(_odd_tensor, sealed=True),
    "model elsewhere": _hostile_place,
    "model hostile": _hostile_model,
    "model damaged": _damaged_model,
    "model cut": _cut_model,
    "model of another kind": _other_model,
    "sealed by an earlier version": _downgraded,
}
