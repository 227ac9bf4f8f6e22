"""Files of structures in the extxyz format, changed on purpose: of each change it is known what must come of it."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.fuzz.case import Expected, Rng, pick


@dataclass
class Frame:
    """The lines of one frame."""

    count: str
    comment: str
    rows: list[list[str]]

    @property
    def text(self) -> str:
        return "\n".join([self.count, self.comment, *(" ".join(row) for row in self.rows)]) + "\n"


@dataclass
class Draft:
    """A file in the making, and what must come of reading it.

    ``frames_read`` is how many frames a reader must find if it reads the file at all; ``labels_only`` means that only
    readers of labels must refuse it.
    """

    frames: list[Frame]
    expected: Expected = "accepted"
    frames_read: int | None = None
    raw: bytes | None = None
    labels_only: bool = False

    @classmethod
    def of(cls, text: str) -> "Draft":
        lines, frames = text.splitlines(), []
        while lines:
            stop = 2 + int(lines[0])
            frames.append(Frame(lines[0], lines[1], [line.split() for line in lines[2:stop]]))
            lines = lines[stop:]
        return cls(frames, frames_read=len(frames))

    @property
    def content(self) -> bytes:
        return self.raw if self.raw is not None else "".join(frame.text for frame in self.frames).encode()

    def any_frame(self, rng: Rng) -> Frame:
        return self.frames[int(rng.integers(len(self.frames)))]

    def any_row(self, rng: Rng) -> list[str]:
        rows = self.any_frame(rng).rows
        return rows[int(rng.integers(len(rows)))]


Mutator = Callable[[Rng, Draft], None]
MUTATORS: dict[str, Mutator] = {}


def mutator(expected: Expected) -> Callable[[Mutator], Mutator]:
    """Registers a change under its name, and what must come of it."""

    def register(function: Mutator) -> Mutator:
        def mutate(rng: Rng, draft: Draft) -> None:
            draft.expected = expected
            function(rng, draft)

        MUTATORS[function.__name__.replace("_", " ")] = mutate
        return mutate

    return register


@mutator("accepted")
def nothing(rng: Rng, draft: Draft) -> None:
    pass


@mutator("refused")
def wrong_count(rng: Rng, draft: Draft) -> None:
    frame = draft.any_frame(rng)
    frame.count = str(len(frame.rows) + int(pick(rng, (-1, 1, -2, 2, 5, 1000))))


@mutator("refused")
def odd_count(rng: Rng, draft: Draft) -> None:
    odd = (
        "-3",
        "99999999999",
        "3.0",
        "3e0",
        "0x3",
        "three",
        "3 3",
        "9" * 5000,
        "nan",
        "-1",
        "2147483648",
        "\u0663",
        "0",
    )
    draft.any_frame(rng).count = str(pick(rng, odd))


@mutator("refused")
def odd_coordinate(rng: Rng, draft: Draft) -> None:
    odd = (
        "nan",
        "inf",
        "-inf",
        "1e300",
        "-1e300",
        "1e308",
        "1e400",
        "abc",
        "1..0",
        "9" * 5000,
        "1e154",
        "--1",
        "1e",
        "0x1",
    )
    draft.any_row(rng)[1 + int(rng.integers(3))] = str(pick(rng, odd))


@mutator("either")
def far_coordinate(rng: Rng, draft: Draft) -> None:
    draft.any_row(rng)[1 + int(rng.integers(3))] = str(
        pick(rng, ("1e3", "-1e5", "1e8", "1e12", "1e15", "1e20", "1e-300"))
    )


@mutator("refused")
def unknown_element(rng: Rng, draft: Draft) -> None:
    odd = ("Xx", "Q", "H1", "99", "-1", "0", "hydrogen", "Hh", "X", "\u041e", "Fe", "U", "1.5", "nan", "O2-")
    draft.any_row(rng)[0] = str(pick(rng, odd))


@mutator("refused")
def fused_atoms(rng: Rng, draft: Draft) -> None:
    rows = draft.any_frame(rng).rows
    rows[1][1:4] = rows[0][1:4]


@mutator("refused")
def missing_column(rng: Rng, draft: Draft) -> None:
    draft.any_row(rng).pop()


@mutator("refused")
def odd_label(rng: Rng, draft: Draft) -> None:
    odd = ("nan", "inf", "-inf", "1e308", "-1e300", "abc", "1e400", "9" * 5000, "[1,2]", '"1 2 3"', "T", "{}")
    frame = draft.any_frame(rng)
    frame.comment = re.sub(r"REF_energy=\S+", f"REF_energy={pick(rng, odd)}", frame.comment)
    draft.labels_only = True


@mutator("refused")
def odd_force(rng: Rng, draft: Draft) -> None:
    odd = ("nan", "inf", "1e308", "-1e300", "abc", "1e400")
    draft.any_row(rng)[4 + int(rng.integers(3))] = str(pick(rng, odd))
    draft.labels_only = True


@mutator("refused")
def no_labels(rng: Rng, draft: Draft) -> None:
    frame = draft.any_frame(rng)
    frame.comment = re.sub(r"REF_energy=\S+", "", frame.comment).replace("REF_forces", "other")
    draft.labels_only = True


@mutator("either")
def one_label_missing(rng: Rng, draft: Draft) -> None:
    for frame in draft.frames:
        frame.comment = frame.comment.replace(str(pick(rng, ("REF_energy", "REF_forces"))), "other")


@mutator("refused")
def odd_columns(rng: Rng, draft: Draft) -> None:
    odd = (
        "species:S:1:pos:R:2:REF_forces:R:3", "species:S:1", "pos:R:3:REF_forces:R:3", "species:S:1:pos:R:99999999999",
        "species:S:-1:pos:R:3", "species:S:1:pos:R", "species:Z:1:pos:R:3", "species:S:1:pos:R:0", ":::", "pos",
        "species:S:1:pos:L:3:REF_forces:R:3", "species:S:1:pos:S:3:REF_forces:R:3",
        "species:S:1:pos:R:3:REF_forces:R:9",
    )  # fmt: skip
    frame = draft.any_frame(rng)
    frame.comment = re.sub(r"Properties=\S+", f"Properties={pick(rng, odd)}", frame.comment)


def _set_cell(frame: Frame, lattice: str, periodic: str = "T T T") -> None:
    frame.comment = re.sub(r' ?pbc="[^"]*"', "", frame.comment) + f' Lattice="{lattice}" pbc="{periodic}"'


@mutator("refused")
def odd_cell(rng: Rng, draft: Draft) -> None:
    odd = (
        "1 2 3", "nan 0 0 0 nan 0 0 0 nan", "0 0 0 0 0 0 0 0 0", "a b c d e f g h i", "5 0 0 5 0 0 0 0 5",
        "inf 0 0 0 9 0 0 0 9", "1e300 0 0 0 1e300 0 0 0 1e300", "0.001 0 0 0 0.001 0 0 0 0.001", "9 0 0 0 9 0 0 0",
        "1e-300 0 0 0 9 0 0 0 9", "0.001 0 0 0 9 0 0 0 9", "9 0 0 0 9 0 9 9 1e-9", "1 2 3 4 5 6 7 8 9",
    )  # fmt: skip
    _set_cell(draft.any_frame(rng), str(pick(rng, odd)))


@mutator("either")
def large_cell(rng: Rng, draft: Draft) -> None:
    side = str(pick(rng, ("1e8", "500", "1e5", "1e15", "20", "3", "2.1")))
    cell = f"{side} 0 0 0 {side} 0 0 0 {side}"
    _set_cell(draft.any_frame(rng), cell, str(pick(rng, ("T T T", "T F F", "F F T", "F F F"))))


@mutator("either")
def skewed_cell(rng: Rng, draft: Draft) -> None:
    odd = ("9 0 0 8.999 0.1 0 0 0 9", "9 0 0 900 9 0 0 0 9", "-9 0 0 0 9 0 0 0 9", "300 0 0 0 3 0 0 0 300")
    _set_cell(draft.any_frame(rng), str(pick(rng, odd)))


@mutator("either")
def odd_periodicity(rng: Rng, draft: Draft) -> None:
    odd = ("X T F", "T", "1 2 3", "", "T T T T", "nan nan nan", "true true true")
    _set_cell(draft.any_frame(rng), "9 0 0 0 9 0 0 0 9", str(pick(rng, odd)))


@mutator("refused")
def blank_line(rng: Rng, draft: Draft) -> None:
    place = int(rng.integers(len(draft.frames)))
    parts = [frame.text for frame in draft.frames]
    draft.raw = "".join([*parts[:place], str(pick(rng, ("\n", "   \n", "\n\n\n", "\t\n"))), *parts[place:]]).encode()


@mutator("accepted")
def blank_end(rng: Rng, draft: Draft) -> None:
    draft.raw = draft.content + bytes(pick(rng, (b"\n", b"\n\n\n", b"  \n")))


@mutator("refused")
def truncated(rng: Rng, draft: Draft) -> None:
    lines = draft.content.splitlines(keepends=True)
    per_frame = 2 + len(draft.frames[0].rows)
    kept = int(rng.integers(len(draft.frames))) * per_frame + int(rng.integers(1, per_frame))
    draft.raw = b"".join(lines[:kept])


@mutator("refused")
def same_frame_twice(rng: Rng, draft: Draft) -> None:
    draft.frames.insert(int(rng.integers(len(draft.frames))), draft.any_frame(rng))


@mutator("refused")
def nothing_in_it(rng: Rng, draft: Draft) -> None:
    draft.raw = bytes(pick(rng, (b"", b"\n", b"  \n\t\n", b"\x00", b"\xef\xbb\xbf", b"0\n", b"\x00" * 10000)))


@mutator("either")
def other_encoding(rng: Rng, draft: Draft) -> None:
    text = draft.content.decode()
    draft.raw = text.encode(pick(rng, ("utf-16", "utf-32", "utf-8-sig", "cp037")))


@mutator("either")
def long_line(rng: Rng, draft: Draft) -> None:
    draft.any_frame(rng).comment += " " + str(pick(rng, ("x", "a=1 ", "\x00", '"'))) * 300_000


@mutator("either")
def other_line_ends(rng: Rng, draft: Draft) -> None:
    draft.raw = draft.content.replace(
        b"\n", bytes(pick(rng, (b"\r\n", b"\r", b"\n\r", b"\x0b", b"\x0c", "\u2028".encode())))
    )


@mutator("either")
def odd_entry(rng: Rng, draft: Draft) -> None:
    """An entry of the comment line that means something to somebody."""
    odd = (
        "ntk_variance=abc", "forces_uncertainty=nan", "predicted_energy=x", "hash=7", "numbers=1", 'positions="1 2 3"',
        "energy=nan", "energy=1e308", "stress=7", 'forces="1 2 3"', "free_energy=abc", "pick=-1",
        "beyond_calibration=7",
        "momenta=3", "note=\x1b[2J", "x=\"", "a={", "b=[1,", "c=\\", "=3", '"=', "dipole=[nan,1,2]", "tags=9",
        "magmom=nan",
        f"n={'9' * 5000}", f"long={'x' * 100_000}", f"deep={'[' * 3000}", f"deep={'{' * 3000}", "\u202e=3",
        "d=2020-01-01",
        "calc=None", "celldisp=1", "constraint=x", "info=3", "arrays=4", "pool_index=x", "step=x", "charge=nan",
        'name="<script>alert(1)</script>"', "lone_atoms=maybe", "predicted_forces=3", "species=H", "cell=7", "masses=0",
    )  # fmt: skip
    for frame in draft.frames if rng.random() < 0.5 else [draft.any_frame(rng)]:
        frame.comment += f" {pick(rng, odd)}"


@mutator("either")
def odd_array(rng: Rng, draft: Draft) -> None:
    """A column that means something to somebody, in every frame."""
    name = str(
        pick(
            rng,
            (
                "momenta:R:3",
                "tags:I:1",
                "masses:R:1",
                "numbers:I:1",
                "predicted_forces:R:3",
                "forces:R:3",
                "move_mask:L:1",
                "magmoms:R:1",
                "initial_magmoms:R:1",
                "initial_charges:R:1",
                "pos:R:3",
                "x:S:1",
                "Z:I:1",
            ),
        )
    )
    word = str(pick(rng, ("1", "0", "-1", "nan", "1e300", "T", "F", "x")))
    for frame in draft.frames:
        frame.comment = re.sub(r"(Properties=\S+)", rf"\1:{name}", frame.comment)
        for row in frame.rows:
            row += [word] * int(name[-1])


@mutator("either")
def other_units(rng: Rng, draft: Draft) -> None:
    factor = float(pick(rng, (0.1, 0.529177, 1.889726, 10.0, 1e3, 1e6, 1e-3)))
    for frame in draft.frames:
        for row in frame.rows:
            row[1:4] = [repr(factor * float(word)) for word in row[1:4]]


@mutator("either")
def one_atom_left(rng: Rng, draft: Draft) -> None:
    frame = draft.any_frame(rng)
    del frame.rows[1:]
    frame.count = "1"


@mutator("either")
def many_atoms(rng: Rng, draft: Draft) -> None:
    """Copies of the molecule far from one another."""
    frame, copies = draft.any_frame(rng), int(rng.integers(2, 60))
    frame.rows = [[row[0], str(float(row[1]) + 5.0 * place), *row[2:]] for place in range(copies) for row in frame.rows]
    frame.count = str(len(frame.rows))
