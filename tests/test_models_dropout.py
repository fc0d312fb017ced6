"""Dropout: of 16 bits, of whole channels, and at every place where released code has it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lra.classifier.block import CHANNEL_MIXERS, Residual
from lra.classifier.packing import Packing
from lra.config.schema import ModelConfig
from lra.models.base import Mixer, MixerContext
from lra.models.dss import DSS
from lra.models.fd_tnn import FDTNN
from lra.models.layers.basic import Dropout
from lra.models.layers.state_space import StateSpaceMixer
from lra.models.rtf import RTF
from lra.models.s4.mixer import S4
from lra.models.s4d import S4D
from lra.models.ski_tnn.mixer import SKITNN
from lra.models.tnn import TNN


def context(*, grid: tuple[int, int] | None = None, tied: bool = False) -> MixerContext:
    return MixerContext(
        dim=8, max_length=36, layer=0, depth=1, grid=grid, inner_dropout=0.5, tied_dropout=tied
    )


def inputs_of(module: nn.Module) -> list[Tensor]:
    """Collect what a module is given from now on."""
    seen: list[Tensor] = []
    module.register_forward_hook(lambda _module, given, _result: seen.append(given[0]))
    return seen


def dropped(x: Tensor) -> Tensor:
    return (x == 0).double()


@pytest.mark.parametrize("kind", CHANNEL_MIXERS)
def test_channel_mixers_drop_within_half_of_what_they_multiply(kind: str) -> None:
    mixer = CHANNEL_MIXERS[kind](8, 64, "gelu", dropout=0.5)
    seen = inputs_of(mixer.output)
    x = torch.randn(100, 8)
    mixer(x)
    mixer.eval()(x)
    in_training, in_evaluation = seen
    assert dropped(in_training).mean().item() == pytest.approx(0.5, abs=0.05)
    assert dropped(in_evaluation).sum() == 0
    kept = in_training != 0
    torch.testing.assert_close(in_training[kept], 2 * in_evaluation[kept])


@pytest.mark.parametrize("cls", [TNN, FDTNN, SKITNN])
def test_units_drop_what_they_have_mixed_on_grids_alone(cls: Callable[..., Mixer]) -> None:
    """As in OpenNLPLab/lra, tno2d.py, forward4; tno.py has no dropout."""
    options = {"num_inducing_points": 6, "num_taps": 3} if cls is SKITNN else {}
    x = torch.randn(2, 36, 8)
    for grid, share in (((6, 6), 0.5), (None, 0.0)):
        torch.manual_seed(0)
        mixer = cls(context(grid=grid), **options)
        unit = mixer.get_submodule("unit")
        before_output = inputs_of(unit.get_submodule("output"))
        mixer(x)
        assert dropped(before_output[0]).mean().item() == pytest.approx(share, abs=0.08)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("cls", [S4, S4D, DSS, RTF])
def test_state_spaces_drop_where_their_code_does(
    cls: Callable[[MixerContext], StateSpaceMixer], tied: bool
) -> None:
    """S4's FFTConv before GELU, never tied; its S4Block, and DSS, after GELU; RTF never tied."""
    mixer = cls(context(tied=tied))
    before, after = inputs_of(mixer.convolved_dropout), inputs_of(mixer.output)
    drawn = inputs_of(mixer.dropout)
    mixer(torch.randn(16, 36, 8))
    (hidden,) = after
    early = dropped(drawn[0])  # gelu(0) is 0
    share = 0.0 if cls in {DSS, RTF} else 0.5
    assert early.mean().item() == pytest.approx(share, abs=0.03)
    assert before[0].shape == hidden.shape
    late = dropped(hidden)
    assert late.mean().item() == pytest.approx(1 - (1 - share) * 0.5, abs=0.1)
    whole = (late.mean(dim=1) == 1).double().mean().item()
    assert whole == pytest.approx(0.5 if tied and cls is not RTF else 0.0, abs=0.15)
    assert (early.mean(dim=1) == 1).sum() == 0


@pytest.mark.parametrize("tied", [False, True])
def test_tied_dropout_drops_a_channel_of_a_sequence_at_every_position(tied: bool) -> None:
    lengths = torch.tensor([5, 1, 20])
    part = Residual(ModelConfig(dim=64, dropout=0.5, tied_dropout=tied, norm="layer"))
    packing, x, ones = (
        Packing(lengths, torch.device("cpu")),
        torch.zeros(26, 64),
        torch.ones(26, 64),
    )
    added = part(lambda _: ones, x, packing)
    assert set(added.unique().tolist()) == {0.0, 2.0}
    rows = [piece.mean(dim=0) for piece in added.split(lengths.tolist())]
    is_whole = [bool(((row == 0) | (row == 2)).all()) for row in rows]
    assert is_whole == ([True, True, True] if tied else [False, True, False])
    assert not torch.equal(rows[0], rows[2])
    assert torch.equal(part.eval()(lambda _: ones, x, packing), ones)


@pytest.mark.parametrize("probability", [0.1, 0.5, 1e-6])
def test_dropout_keeps_the_fraction_and_the_mean(probability: float) -> None:
    torch.manual_seed(0)
    dropout = Dropout(probability)
    x = torch.ones(1001, 999)
    y = dropout(x)
    kept = (y != 0).double().mean().item()
    deviation = 5 * (probability * (1 - probability) / x.numel()) ** 0.5
    assert abs(kept - (1 - probability)) <= deviation + 1 / 65536
    if kept:
        assert y.double().mean().item() == pytest.approx(1.0, abs=0.02 / (1 - probability) ** 0.5)
        assert len(y.unique()) <= 2


def test_dropout_drops_the_gradient_of_what_it_drops() -> None:
    x = torch.randn(7, 5, 3, requires_grad=True)
    y = Dropout(0.4)(x)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(y, x * x.grad)
    assert len(x.grad.unique()) == 2 and x.grad.min() == 0
    assert Dropout(0.4).eval()(x) is x
