"""`lra.mixer`: mixers of the suite in models of one's own."""

import pytest
import torch
from torch import nn

import lra
from lra.config.registry import MIXERS
from lra.models.base import Mixer, RecurrentMixer

NEED_A_LENGTH = {
    "dss", "fd-tnn", "linformer", "long-conv", "mega", "reformer", "rtf", "s4", "s4d", "sinkhorn",
    "ski-tnn", "sparse", "synthesizer", "tnn", "toroidal",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(MIXERS.classes))
def test_every_mixer_is_a_module_for_any_model(name: str) -> None:
    if name in NEED_A_LENGTH:
        with pytest.raises(lra.UserError, match=f"mixer {name}: it needs the longest sequence"):
            lra.mixer(name, dim=16)
    length = 64 if name in NEED_A_LENGTH else None
    module = lra.mixer(name, dim=16, length=length)
    x, mask = torch.randn(2, 24, 16), torch.arange(24) < torch.tensor([[24], [9]])
    mixed = module(x, mask)
    assert mixed.shape == x.shape and isinstance(module, Mixer)
    torch.testing.assert_close(mixed[1, :9], module(x[1:, :9])[0], rtol=1e-3, atol=1e-4)
    with pytest.raises(lra.UserError, match=r"mask: got torch\.float32, expected torch\.bool"):
        module(x, mask=mask.float())


def test_a_wrong_option_is_named_with_a_near_one() -> None:
    for options, part in (
        ({"num_head": 2}, "lra.mixer: unknown option of transformer 'num_head'; did you mean num_"),
        ({"num_heads": 3}, "num_heads 3 does not divide"),
        ({"num_heads": "two"}, "lra.mixer: mixer.num_heads: got 'two'"),
    ):
        with pytest.raises(lra.UserError) as caught:
            lra.mixer("transformer", dim=16, **options)  # pyright: ignore[reportArgumentType]
        assert part in str(caught.value)
    with pytest.raises(lra.UserError, match="unknown mixer 'transformr'; did you mean transformer"):
        lra.mixer("transformr", dim=16)
    with pytest.raises(lra.UserError, match="dim: got 0, expected at least 1"):
        lra.mixer("s5", dim=0)


def test_a_hybrid_trains_and_decodes() -> None:
    """Every third block is attention; a recurrent mixer goes on position by position."""
    torch.manual_seed(0)
    names = ["mamba2", "mamba2", "transformer"]
    blocks = nn.ModuleList(
        lra.mixer(name, dim=16, causal=True, layer=layer, depth=3)
        for layer, name in enumerate(names)
    )
    x = torch.randn(2, 12, 16, requires_grad=True)
    y = x
    for block in blocks:
        y = y + block(y)
    y.square().mean().backward()
    assert x.grad is not None and x.grad.isfinite().all()
    first = blocks[0]
    assert isinstance(first, RecurrentMixer)
    recurrence = first.recurrence(12)
    _, state = recurrence.prefill(x[:, :8])
    for position in range(8, 12):
        result, state = recurrence.step(x[:, position], state)
        torch.testing.assert_close(result, first(x)[:, position], rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_mixer_computes_the_same() -> None:
    module = lra.mixer("conv", dim=8)
    x = torch.randn(2, 5, 8)
    compiled = torch.compile(module, backend="eager")
    torch.testing.assert_close(compiled(x), module(x))
