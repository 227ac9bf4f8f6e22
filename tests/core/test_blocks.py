import pytest
import torch

from adaptntk.core import blocks as module
from adaptntk.core.blocks import TensorBlocks, all_rows, as_blocks, asked_rows, chunks, join, sum_over_asked
from adaptntk.errors import InputError
from tests.core.selection.rules import blocks


def test_a_matrix_is_one_row_for_each_structure():
    rows = torch.randn(5, 3)
    found = as_blocks(rows)
    assert found.shape == (5, 1, 3)
    assert found.asked == 1
    assert torch.equal(all_rows(found), rows)
    assert as_blocks(found) is found


def test_rows_of_blocks():
    found = blocks(0, 4, rows=3, asked=2, width=5)
    assert torch.equal(all_rows(found)[4], found.tensor[1, 1])
    assert torch.equal(asked_rows(found[torch.tensor([3, 0])], 2)[1], found.tensor[3, 1])
    joined = join(found, torch.ones(2, 3, 5, dtype=torch.float32))
    assert joined.shape == (6, 3, 5)
    assert joined.asked == 2
    assert joined.tensor.dtype == torch.float64


def test_a_part_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "_CHUNK_BYTES", 8 * 3 * 5 * 4)
    found = blocks(0, 10, rows=3, asked=2, width=5)
    parts = list(chunks(found))
    assert [len(part) for _, part in parts] == [4, 4, 2]
    assert torch.equal(torch.cat([part for _, part in parts]), found.tensor)
    lengths = sum_over_asked(found, lambda rows: rows.square().sum(1))
    assert torch.allclose(lengths, found.tensor[:, :2].square().sum((1, 2)))


def test_what_is_no_block_is_refused():
    with pytest.raises(InputError, match="blocks of at least 4 rows"):
        TensorBlocks(torch.zeros(5, 3, 2), asked=4)
    with pytest.raises(InputError, match="array of shape"):
        as_blocks(torch.zeros(5))
