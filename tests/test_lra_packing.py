"""Packed batches, and the classifier's independence from how a batch is put together."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import TINY
from lra.classifier.block import NORMS
from lra.classifier.classifier import Classifier, pool, sinusoidal_positions
from lra.classifier.packing import Packing
from lra.config.registry import MIXERS
from lra.tasks.base import TaskInfo
from lra.tasks.goals import ExampleClass
from requested import resolve

CPU = torch.device("cpu")
TOKENS = TaskInfo(name="toy", goal=ExampleClass(5), max_length=80, vocab_size=17)
PAIRS = TaskInfo(name="toy", goal=ExampleClass(2), max_length=80, vocab_size=17, towers=2)


@settings(deadline=None, max_examples=60)
@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=40), smallest=st.integers(1, 900))
def test_padding_and_packing_are_inverse(lengths: list[int], smallest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lra.classifier.packing.SMALLEST_GROUP", smallest)
        packing = Packing(torch.tensor(lengths), CPU)
    assert smallest < 900 or len(packing.groups) <= 3
    x = torch.randn(sum(lengths), 3)
    parts = packing.padded(x)
    assert sum(len(part) for part, _ in parts) == len(lengths)
    for part, mask in parts:
        if mask is not None:
            assert (part[~mask] == 0).all()
            assert mask[:, 0].all() and (mask[:, 1:] <= mask[:, :-1]).all()
    assert torch.equal(packing.packed([part for part, _ in parts]), x)
    sums = packing.reduce(lambda part, mask: part.sum(dim=1), x)
    expected = torch.stack([row.sum(dim=0) for row in x.split(lengths)])
    torch.testing.assert_close(sums, expected)
    assert packing.position.tolist() == [i for length in lengths for i in range(length)]


def classifier(mixer: str, info: TaskInfo, *changes: str) -> Classifier:
    config = resolve("listops", mixer, preset="quick", overrides=[*TINY, *changes])
    return Classifier(config, info).double()


def batch_of(lengths: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    total = sum(map(sum, lengths))
    return torch.randint(1, 17, (total,)), torch.tensor(lengths)


@pytest.mark.parametrize("mixer", sorted(MIXERS.classes))
def test_company_never_changes_a_sequence(mixer: str) -> None:
    """In evaluation the logits of a sequence are the same alone and beside longer ones."""
    poolings = {"mean": [], "max": [], "last": [], "cls": ["model.causal=false"]}
    if mixer == "mean":  # refused: a position alone knows nothing of the others
        del poolings["last"]
    if mixer in ("mean", "dss"):  # refused: the first position sees nothing of the others
        del poolings["cls"]
    for pooling, changes in poolings.items():
        model = classifier(mixer, TOKENS, f"model.pooling={pooling}", *changes).eval()
        values, lengths = batch_of([[5], [80], [33], [1]])
        together = model(values, lengths)
        for row, part in enumerate(values.split(lengths[:, 0].tolist())):
            alone = model(part, lengths[row : row + 1])
            torch.testing.assert_close(alone[0], together[row], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("prenorm", ["true", "false"])
def test_training_does_not_depend_on_the_grouping(
    monkeypatch: pytest.MonkeyPatch, norm: str, prenorm: str
) -> None:
    """Batch statistics included: one padded group or several give the same loss gradient."""
    gradients = []
    for smallest, groups in ((1, 4), (1000, 1)):
        monkeypatch.setattr("lra.classifier.packing.SMALLEST_GROUP", smallest)
        torch.manual_seed(3)
        model = classifier("tnn", TOKENS, f"model.norm={norm}", f"model.prenorm={prenorm}")
        values, lengths = batch_of([[5], [80], [33], [12]])
        assert len(Packing(lengths.flatten(), CPU).groups) == groups
        model(values, lengths).square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for got, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-10)


def test_batch_norm_of_one_position_takes_the_running_statistics() -> None:
    norm = NORMS["batch"](4)
    norm(torch.randn(9, 4) + 3)
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    x = torch.randn(1, 4, requires_grad=True)
    y = norm(x)
    y.sum().backward()
    assert x.grad is not None and x.grad.all()
    assert all(torch.equal(buffer, before[name]) for name, buffer in norm.named_buffers())
    torch.testing.assert_close(y, norm.eval()(x))
    assert norm.train()(torch.randn(2, 4)).shape == (2, 4)
    assert not torch.equal(norm.get_buffer("running_mean"), before["running_mean"])


def test_two_towers_share_an_encoder() -> None:
    model = classifier("tnn", PAIRS).eval()
    values, lengths = batch_of([[5, 9], [20, 20], [1, 40]])
    logits = model(values, lengths)
    assert logits.shape == (3, 2)
    single = classifier("tnn", PAIRS).eval()
    single.load_state_dict(model.state_dict())
    first = values[:14]
    torch.testing.assert_close(single(first, lengths[:1])[0], logits[0], rtol=1e-9, atol=1e-9)
    swapped = torch.cat([first[5:], first[:5]])
    assert not torch.allclose(model(swapped, torch.tensor([[9, 5]]))[0], logits[0])


def test_sinusoids_by_formula() -> None:
    table = sinusoidal_positions(50, 6)
    assert table.shape == (50, 6)
    assert table[7, 3].item() == pytest.approx(torch.tensor(7 / 10000 ** (2 / 6)).cos().item())
    assert sinusoidal_positions(4, 5).shape == (4, 5)


def test_pooling_by_definition() -> None:
    x = torch.randn(2, 4, 3)
    mask = torch.tensor([[True, True, False, False], [True] * 4])
    torch.testing.assert_close(pool(x, mask, "mean")[0], x[0, :2].mean(dim=0))
    torch.testing.assert_close(pool(x, mask, "max")[0], x[0, :2].amax(dim=0))
    assert torch.equal(pool(x, mask, "last"), torch.stack([x[0, 1], x[1, 3]]))
    assert torch.equal(pool(x, None, "cls"), x[:, 0])
