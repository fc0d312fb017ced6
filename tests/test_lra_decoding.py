"""Position after position a whole classifier computes what it does for all positions together."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lra.classifier.classifier import Classifier, count_state
from lra.classifier.decoders import FullPassDecoder, RecurrentDecoder, has_recurrence
from lra.config.registry import MIXERS
from lra.models.base import RecurrentMixer
from lra.models.layers.kernel_cache import cache_kernels
from references import randomize
from requested import NOT_CAUSAL, resolve

TRAINED = 24
"""Positions of a window in training."""

CAUSAL = sorted(MIXERS.classes.keys() - NOT_CAUSAL)
RECURRENT = [name for name in CAUSAL if issubclass(MIXERS.classes[name], RecurrentMixer)]

MODELS = [
    [],
    ["model.prenorm=false", "model.positions=sinusoidal", "model.channel_mixer=mlp"],
    ["model.norm=simple_rms", "model.tied_embeddings=true", "model.positions=learned"],
    ["model.channel_mixer=none", "model.dropout=0.3", "model.tied_dropout=true",
     "model.embedding_dropout=0.3", "model.inner_dropout=0.3"],
]  # fmt: skip


OWN_SETTINGS = {"toroidal": ["mixer.num_heads=2"]}  # of 8 channels each head has two on a platter


def build(mixer: str, *changes: str, length: int = TRAINED) -> Classifier:
    """Build a small model of bytes, for a length beyond that of its training, too."""
    small = ["model.dim=8", "model.depth=2", "model.norm=layer", f"task.sequence_length={TRAINED}"]
    config = resolve(
        "lm", mixer, preset="quick", overrides=[*small, *OWN_SETTINGS.get(mixer, []), *changes]
    )
    info = config.build_task().info
    longer = replace(info, max_length=max(length, TRAINED))
    return randomize(Classifier(config, longer, trained=info).eval())


def decoded(
    decoder: RecurrentDecoder | FullPassDecoder, tokens: Tensor, *parts: int
) -> Iterator[tuple[int, Tensor]]:
    """Give a decoder parts of a sequence, then single positions; yield the last place of each."""
    sizes = [*parts, *[1] * (len(tokens) - sum(parts))]
    done = 0
    for part in tokens.split(sizes):
        done += len(part)
        yield done - 1, decoder.take(part)


def whole(model: Classifier, tokens: Tensor) -> Tensor:
    return model(tokens, torch.tensor([[len(tokens)]]))


@pytest.mark.parametrize(
    ("mixer", "changes"),
    [(mixer, MODELS[0]) for mixer in RECURRENT] + [("s4d", changes) for changes in MODELS[1:]],
)
@torch.no_grad()
def test_steps_equal_the_full_pass_in_double_precision(mixer: str, changes: list[str]) -> None:
    length = TRAINED if "model.positions=learned" in changes else 2 * TRAINED
    model = build(mixer, *changes, length=length).double()
    assert has_recurrence(model)
    tokens = torch.randint(0, 256, (length,))
    expected = whole(model, tokens)
    scale = expected.abs().max()
    for first in (1, length // 2 + 1, length):  # positions that are taken together
        for place, logits in decoded(RecurrentDecoder(model, length), tokens, first):
            found = logits / scale
            torch.testing.assert_close(found, expected[place] / scale, rtol=0, atol=1e-9)


@torch.no_grad()
def test_a_recurrence_of_steps_alone_is_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a plug-in may have it."""
    monkeypatch.delattr("lra.models.layers.state_space.ConvolutionRecurrence.prefill")
    model = build("s4d").double()
    tokens = torch.randint(0, 256, (TRAINED,))
    found = RecurrentDecoder(model, TRAINED).take(tokens)
    torch.testing.assert_close(found, whole(model, tokens)[-1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mixer", CAUSAL)
@torch.no_grad()
def test_full_passes_equal_the_model_as_it_is_at_the_last_length(mixer: str) -> None:
    length = TRAINED * (2 if MIXERS.classes[mixer].takes_longer else 1)
    model = build(mixer, length=length).double()
    assert has_recurrence(model) == (mixer in RECURRENT) == bool(count_state(model, length))
    seen: list[int] = []
    model.blocks[0].register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    tokens = torch.randint(0, 256, (length,))
    expected = whole(model, tokens)
    with cache_kernels():
        for place, logits in decoded(FullPassDecoder(model, length), tokens, 4, length - 12):
            torch.testing.assert_close(logits, expected[place], rtol=1e-9, atol=1e-9)
    assert max(seen) == length
