"""The few layouts of a run's batches: padding that counts for nothing, and little of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import TINY
from lra.classifier.classifier import Classifier
from lra.classifier.layouts import MOST_LAYOUTS, Layout, choose_layouts, find_layout
from lra.classifier.packing import FixedPacking, Packing
from lra.config.registry import MIXERS
from lra.train.step_graph import sort_parts
from models.layers.norms import BatchNorm, RealRows
from requested import resolve
from tasks.base import TaskInfo
from tasks.goals import ExampleClass

CPU = torch.device("cpu")
PAIRS = TaskInfo(name="toy", goal=ExampleClass(2), max_length=80, vocab_size=17, towers=2)

LENGTHS = {
    "listops": [502, 522, 545, 574, 609, 651, 699, 752, 807, 872, 945, 1017, 1100, 1191, 1297, 1412,
                1520, 1584, 1645, 1824, 2000],
    "text": [52, 399, 512, 590, 648, 702, 752, 799, 853, 913, 979, 1070, 1183, 1310, 1451, 1614,
             1826, 2138, 2617, 3440, 4096],
}  # fmt: skip
"""Every twentieth of the lengths of the training sets, official Text and generated ListOps."""


def draw_batches(task: str, size: int, count: int, seed: int) -> np.ndarray:
    """Draw batches of one part with the lengths of a task: (count, 1, size)."""
    shares = np.random.default_rng(seed).random((count, 1, size))
    lengths = np.interp(shares, np.linspace(0, 1, 21), LENGTHS[task])
    return -np.sort(-lengths.astype(np.int64), axis=2)


@pytest.mark.parametrize(
    ("task", "size", "most"),
    [("listops", 32, 0.20), ("listops", 128, 0.12), ("text", 16, 0.33), ("text", 32, 0.27)],
)
def test_a_dozen_layouts_hold_almost_all_batches(task: str, size: int, most: float) -> None:
    """Padding in mixers is below a limit, and that of the packed form below a tenth."""
    layouts = choose_layouts(draw_batches(task, size, 512, seed=0), max(LENGTHS[task]))
    assert len(layouts) == MOST_LAYOUTS
    batches = draw_batches(task, size, 500, seed=1)
    chosen = [find_layout(layouts, parts) for parts in batches]
    fitting = [(layout, b.sum()) for layout, b in zip(chosen, batches, strict=True) if layout]
    assert len(fitting) >= 0.98 * len(batches)
    real = sum(count for _, count in fitting)
    assert 1 - real / sum(layout.padded for layout, _ in fitting) < most
    assert 1 - real / sum(layout.capacity for layout, _ in fitting) < 0.1
    used = sorted(chosen.count(layout) for layout in layouts)
    assert used[-1] < 0.5 * len(batches)


def test_equal_batches_have_a_layout_without_padding() -> None:
    batches = np.full((100, 1, 4), 30)
    full = Layout(((4, 30),), 120, 120)
    assert choose_layouts(batches, 30) == [full]
    batches[3, 0, 3] = 17  # the last window of a text
    assert choose_layouts(batches, 30) == [full]
    assert full.is_full and find_layout([full], batches[0]) == full
    assert find_layout([full], batches[3]) is None
    batches[10:20, 0, 2:] = 19  # some pairs of documents
    layouts = choose_layouts(batches, 30)
    assert layouts[0] == full and 1 < len(layouts) <= MOST_LAYOUTS
    chosen = [find_layout(layouts, parts) for parts in batches]
    assert None not in chosen and chosen.count(full) == 89


def test_the_cheapest_layout_that_holds_all_parts_is_found() -> None:
    small, large = Layout(((3, 20),), 25, 35), Layout(((3, 20),), 10, 60)
    find = lambda *parts: find_layout([large, small], np.array(parts))  # noqa: E731
    assert find([18, 9, 3]) == small
    assert find([18, 9, 3], [18, 11, 8]) == large
    assert find([12, 3, 3]) == large  # fewer positions than the smaller layout needs
    assert find([21, 9, 3]) is None
    assert find([20, 20, 20]) is None  # no empty row is left
    assert sort_parts(np.array([[3, 9], [4, 1], [7, 7], [5, 6]]), 2).tolist() == [
        [9, 4, 3, 1], [7, 7, 6, 5]
    ]  # fmt: skip


def test_a_packing_takes_other_lengths_of_its_layout() -> None:
    """Padding and empty rows are 0 both ways, whatever was there."""
    layout = Layout(((2, 20), (3, 12)), 40, 70)
    packing = FixedPacking(torch.tensor([3, 20, 9, 12, 5]), CPU, layout)
    for lengths in ([7, 12, 18, 11, 12], [20, 4, 12, 1, 12]):
        packing.refill(torch.tensor(lengths))
        real = sum(lengths)
        usual = Packing(torch.tensor(lengths), CPU)
        x = torch.randn(70, 3)
        x[real:] = torch.nan
        parts = packing.padded(x)
        assert [part.shape for part, _ in parts] == [(2, 20, 3), (3, 12, 3)]
        for part, mask in parts:
            assert mask is not None and (part[~mask] == 0).all()
            part[~mask] = torch.nan
        y = packing.packed([part for part, _ in parts])
        assert torch.equal(y[:real], x[:real]) and not y[real:].any()
        assert torch.equal(packing.position[:real], usual.position)
        assert packing.real is not None and packing.real.count == real
        sums = packing.reduce(lambda part, mask: part.nansum(dim=1), x.nan_to_num())
        expected = torch.stack([row.sum(dim=0) for row in x[:real].split(lengths)])
        torch.testing.assert_close(sums, expected)


@pytest.mark.parametrize("real", [80, 93, 99])
def test_batch_norm_counts_real_rows_only(real: int) -> None:
    torch.manual_seed(0)
    norms = [BatchNorm(7).double() for _ in range(2)]
    x, gradient = (3 * torch.randn(100, 7, dtype=torch.float64) + 5 for _ in range(2))
    x[real:], gradient[real:] = 1e6, 0
    few, many = x[:real].clone().requires_grad_(), x.clone().requires_grad_()
    expected = norms[0](few)
    count = torch.tensor(real, dtype=torch.float64)
    found = norms[1](many, RealRows(count, 80))
    expected.backward(gradient[:real])
    found.backward(gradient)
    assert few.grad is not None and many.grad is not None
    assert not found[real:].any() and not many.grad[real:].any()
    torch.testing.assert_close(found[:real], expected)
    torch.testing.assert_close(many.grad[:real], few.grad)
    for one, other in zip(norms[1].parameters(), norms[0].parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    for one, other in zip(norms[1].buffers(), norms[0].buffers(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("mixer", sorted(MIXERS.classes))
def test_padding_of_a_layout_contributes_nothing(mixer: str) -> None:
    """Logits and all gradients of pairs are those of packed batches, with batch norm."""
    norm = "model.norm=batch"
    config = resolve("listops", mixer, preset="quick", overrides=[*TINY, norm])
    torch.manual_seed(0)
    model = Classifier(config, PAIRS).double()
    lengths = torch.tensor([[5, 61], [80, 20], [33, 12]])
    inputs = torch.randint(1, 17, (int(lengths.sum()),))
    layout = Layout(((2, 80), (1, 40), (3, 25)), 190, 230)
    assert find_layout([layout], sort_parts(lengths.numpy(), 3)) == layout
    weights = torch.randn(3, 2, dtype=torch.float64)

    results = []
    for is_fixed in (False, True):
        torch.manual_seed(1)  # of mixers that draw random numbers
        if is_fixed:
            more = torch.randint(0, 17, (layout.capacity - len(inputs),))
            packing = FixedPacking(lengths.flatten(), CPU, layout)
            logits = model.compute_packed(torch.cat([inputs, more]), packing)
        else:
            logits = model(inputs, lengths)
        (logits * weights).sum().backward()
        results.append([logits.detach(), *(p.grad for p in model.parameters())])
        model.zero_grad()
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
