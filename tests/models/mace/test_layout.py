import numpy as np
import pytest
import torch

from adaptntk.models.mace.layout import Groups, Layout, Order


@pytest.mark.parametrize("labels", [[0, 0, 1, 1], [2, 0, 1, 0, 2, 2], [1, 1, 1], [0], [3, 3, 0]])
def test_groups_sum_as_a_loop_does(labels):
    labels = np.array(labels)
    count = int(labels.max()) + 2
    rows = torch.randn(len(labels), 3, dtype=torch.float64)
    groups = Groups(labels, count, torch.device("cpu"))
    expected = torch.zeros(count, 3, dtype=torch.float64)
    for row, label in zip(rows, labels.tolist(), strict=True):
        expected[label] += row
    assert torch.allclose(groups.collect(rows).sum(1), expected)


def test_order_is_undone():
    labels = np.array([2, 0, 1, 0, 2])
    order = Order(labels, torch.device("cpu"))
    rows = torch.arange(5.0)[:, None]
    assert order.sort(rows).ravel().tolist() == [1, 3, 2, 0, 4]
    assert torch.equal(order.restore(order.sort(rows)), rows)
    assert (order.values, order.sizes) == ([0, 1, 2], [2, 1, 2])


def test_every_edge_has_one_slot():
    rng = np.random.default_rng(0)
    neighbours = rng.integers(0, 30, size=50)
    layout = Layout(np.zeros(50, int), np.zeros(50, int), neighbours, 1, torch.device("cpu"))
    slots = layout.padded_edges
    edges = int(neighbours.sum())
    assert sorted(slots[slots < edges].tolist()) == list(range(edges))
    receiver = np.repeat(np.arange(50), neighbours)
    owner = np.where(slots < edges, receiver[np.minimum(slots, edges - 1)], slots - edges)
    first = 0
    atoms = layout.by_width.rows
    for count, width in layout.width_groups:
        for _ in range(count):
            assert set(owner[first : first + width]) == {atoms[0]}
            first, atoms = first + width, atoms[1:]
    assert first == len(slots) < 1.4 * edges
