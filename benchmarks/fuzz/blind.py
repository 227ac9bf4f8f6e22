"""Changes of bytes by something that does not know what they mean."""

import re
from collections.abc import Callable
from typing import Any

from benchmarks.fuzz.case import Rng, chance, pick

ODD_NUMBERS = (
    b"nan", b"-nan", b"inf", b"-inf", b"1e300", b"-1e300", b"1e308", b"1e400", b"1e-320", b"0", b"-0", b"-3", b"3.7",
    b"99999999999", b"18446744073709551616", b"9" * 5000, b"0." + b"1" * 5000, b"1_000", b"0x10", b"1e", b"--1", b"",
    b"1,5", b"NULL", b"None", b"True", b"\xd9\xa3", b"1d3", b"+1", b"1/0", b"1e5", b"1e8",
)  # fmt: skip
ODD_BYTES = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n\n", b"\t", b"\x1b[2J", b"\x1b]0;x\x07", b'"', b"'",
    b"\\", b"=", b"{", b"]", b"%s%n", b"../../", b"\xc3\x28", b"\xe2\x80\xa8", b" ", b"#", b"$(touch CODE-WAS-RUN)",
)  # fmt: skip
_NUMBER = re.compile(rb"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def flip_bit(rng: Rng, content: bytes) -> bytes:
    place, bit = int(rng.integers(len(content))), int(rng.integers(8))
    return content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]


def change_byte(rng: Rng, content: bytes) -> bytes:
    place = int(rng.integers(len(content)))
    return content[:place] + rng.bytes(1) + content[place + 1 :]


def cut_off(rng: Rng, content: bytes) -> bytes:
    return content[: int(rng.integers(len(content)))]


def cut_out(rng: Rng, content: bytes) -> bytes:
    start = int(rng.integers(len(content)))
    return content[:start] + content[start + int(rng.integers(1, 1 + min(200, len(content)))) :]


def insert_bytes(rng: Rng, content: bytes) -> bytes:
    place = int(rng.integers(len(content) + 1))
    added: bytes = pick(rng, ODD_BYTES)
    return content[:place] + added * int(rng.integers(1, 4)) + content[place:]


def insert_noise(rng: Rng, content: bytes) -> bytes:
    place = int(rng.integers(len(content) + 1))
    return content[:place] + rng.bytes(int(rng.integers(1, 100))) + content[place:]


def repeat_part(rng: Rng, content: bytes) -> bytes:
    start = int(rng.integers(len(content)))
    stop = start + int(rng.integers(1, 300))
    return content[:stop] + content[start:stop] + content[stop:]


def zero_part(rng: Rng, content: bytes) -> bytes:
    start = int(rng.integers(len(content)))
    part = content[start : start + int(rng.integers(1, 200))]
    return content[:start] + bytes(len(part)) + content[start + len(part) :]


def odd_number(rng: Rng, content: bytes) -> bytes:
    """A number of the text becomes one that is seldom met."""
    found = list(_NUMBER.finditer(content))
    if not found:
        return insert_bytes(rng, content)
    place, new = found[int(rng.integers(len(found)))], pick(rng, ODD_NUMBERS)
    return content[: place.start()] + new + content[place.end() :]


def _on_lines(change: Callable[[Rng, list[bytes]], None]) -> Callable[[Rng, bytes], bytes]:
    def mutate(rng: Rng, content: bytes) -> bytes:
        lines = content.split(b"\n")
        change(rng, lines)
        return b"\n".join(lines)

    return mutate


def _swap_lines(rng: Rng, lines: list[bytes]) -> None:
    one, other = (int(rng.integers(len(lines))) for _ in range(2))
    lines[one], lines[other] = lines[other], lines[one]


def _drop_line(rng: Rng, lines: list[bytes]) -> None:
    del lines[int(rng.integers(len(lines)))]


def _repeat_line(rng: Rng, lines: list[bytes]) -> None:
    place = int(rng.integers(len(lines)))
    lines[place:place] = [lines[place]] * int(rng.integers(1, 4))


def _splice_lines(rng: Rng, lines: list[bytes]) -> None:
    """The head of one line and the tail of another."""
    one, other = (int(rng.integers(len(lines))) for _ in range(2))
    head, tail = int(rng.integers(1 + len(lines[one]))), int(rng.integers(1 + len(lines[other])))
    lines[one] = lines[one][:head] + lines[other][tail:]


swap_lines, drop_line = _on_lines(_swap_lines), _on_lines(_drop_line)
repeat_line, splice_lines = _on_lines(_repeat_line), _on_lines(_splice_lines)

Mutator = Callable[[Rng, bytes], bytes]
BINARY: dict[str, Mutator] = {
    "flip a bit": flip_bit, "change a byte": change_byte, "cut off": cut_off, "cut out": cut_out,
    "insert noise": insert_noise, "repeat a part": repeat_part, "zero a part": zero_part,
}  # fmt: skip
TEXT: dict[str, Mutator] = {
    "flip a bit": flip_bit, "cut off": cut_off, "cut out": cut_out, "insert odd bytes": insert_bytes,
    "insert noise": insert_noise, "repeat a part": repeat_part, "odd number": odd_number, "two odd numbers":
    lambda rng, content: odd_number(rng, odd_number(rng, content)), "swap lines": swap_lines, "drop a line": drop_line,
    "repeat a line": repeat_line, "splice lines": splice_lines,
}  # fmt: skip


def edit_entry(rng: Rng, content: Any, values: tuple[Any, ...]) -> tuple[list[Any], str]:
    """Another value for one entry of a record, somewhere, or none; its path is returned, and what it holds now."""
    place = content
    path: list[Any] = []
    while isinstance(place, dict | list) and place and (not path or chance(rng, 0.85)):
        key = pick(rng, place if isinstance(place, dict) else range(len(place)))
        parent, place = place, place[key]
        path.append(key)
    if chance(rng, 0.15) and isinstance(parent, dict):
        del parent[key]
        return path, "nothing"
    value = pick(rng, values)
    parent[key] = "other" if value == place else value
    return path, repr(parent[key])[:60]


def mutate(rng: Rng, content: bytes, mutators: dict[str, Mutator]) -> tuple[str, bytes]:
    """Something changed at random, which is named; what is the same afterwards is tried again."""
    for _ in range(20):
        name = str(pick(rng, mutators))
        changed = mutators[name](rng, content)
        if changed != content:
            return name, changed
    return "cut off", content[: len(content) // 2]
