"""Position after position a whole classifier computes what it does for all positions together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lra.classifier.classifier import Classifier
from lra.classifier.decoding import ByFullPass, ByRecurrence, Decoder, has_recurrence
from lra.classifier.resolve import resolve
from lra.config.registry import MIXERS
from lra.generate.sampling import Generated, Sampler, generate
from models.base import MixerContext, RecurrentMixer
from models.layers.kernel_cache import kernels_cached

TRAINED = 24
"""Positions of a window in training."""

CAUSAL: list[str] = []
for _name, _cls in sorted(MIXERS.classes.items()):
    try:
        _cls(MixerContext.of(dim=8, length=8, causal=True))
    except ValueError:
        continue
    CAUSAL.append(_name)
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
    model = Classifier(config, longer, trained=info).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return model


def decoded(decoder: Decoder, tokens: Tensor, *parts: int) -> Iterator[tuple[int, Tensor]]:
    """Give a decoder parts of a sequence, then single positions; yield the last place of each."""
    sizes = [*parts, *[1] * (len(tokens) - sum(parts))]
    done = 0
    for part in tokens.split(sizes):
        done += len(part)
        yield done - 1, decoder.take(part)


def whole(model: Classifier, tokens: Tensor) -> Tensor:
    return model(tokens, torch.tensor([[len(tokens)]]))


def test_the_mixers_with_a_recurrence_are_among_those_tried() -> None:
    assert set(RECURRENT) >= {"tnn", "fd-tnn", "s4", "s4d", "dss"}
    assert set(CAUSAL) > {"transformer", "conv", *RECURRENT}


@pytest.mark.parametrize("changes", MODELS, ids=lambda c: c[0] if c else "quick")
@pytest.mark.parametrize("mixer", RECURRENT)
@torch.no_grad()
def test_steps_equal_the_full_pass_in_double_precision(mixer: str, changes: list[str]) -> None:
    beyond = "model.positions=learned" not in changes
    for length in (1, 5, TRAINED, *([3 * TRAINED] if beyond else [])):
        model = build(mixer, *changes, length=length).double()
        tokens = torch.randint(0, 256, (length,))
        expected = whole(model, tokens)
        scale = expected.abs().max()
        for place, logits in decoded(ByRecurrence(model, length), tokens, min(3, length)):
            torch.testing.assert_close(logits / scale, expected[place] / scale, rtol=0, atol=1e-9)


@pytest.mark.parametrize("length", [TRAINED, 3 * TRAINED])
@pytest.mark.parametrize("mixer", CAUSAL)
@torch.no_grad()
def test_full_passes_equal_the_model_as_it_is_at_the_last_length(mixer: str, length: int) -> None:
    model = build(mixer, length=length).double()
    tokens = torch.randint(0, 256, (length,))
    expected = whole(model, tokens)
    for context in (nullcontext, kernels_cached):
        with context():
            for place, logits in decoded(ByFullPass(model, length), tokens, 4):
                torch.testing.assert_close(logits, expected[place], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mixer", CAUSAL)
def test_in_training_a_pass_has_no_more_positions_than_there_are(mixer: str) -> None:
    model = build(mixer)
    seen: list[int] = []
    model.blocks[0].register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    tokens = torch.randint(0, 256, (8,))
    with torch.no_grad():
        for _ in decoded(ByFullPass(model, 8), tokens, 4):
            pass
    assert seen == [8, 5, 6, 7, 8], "kernels are made by the first pass, for all"


@pytest.mark.parametrize("mixer", CAUSAL)
def test_which_models_have_a_recurrence(mixer: str) -> None:
    model = build(mixer)
    assert has_recurrence(model) == (mixer in RECURRENT)


def drawn(way: type[Decoder], model: Classifier, count: int, temperature: float = 1.0) -> Generated:
    sampler = Sampler(temperature, seed=1)
    prompt = list(b"It is")
    return generate(
        way, model, prompt, count=count, sampler=sampler, emit=lambda token: True
    )  # fmt: skip


@pytest.mark.parametrize("mixer", RECURRENT)
@pytest.mark.parametrize(("count", "temperature"), [(20, 1.0), (150, 1.0), (150, 0.0)])
def test_both_ways_draw_the_same_tokens(mixer: str, count: int, temperature: float) -> None:
    model = build(mixer, length=160)
    steps = drawn(ByRecurrence, model, count, temperature)
    passes = drawn(ByFullPass, model, count, temperature)
    assert steps.tokens == passes.tokens
    assert steps.probabilities == pytest.approx(passes.probabilities, rel=1e-2)
    assert len(steps.tokens) == count
    assert temperature == 0 or len(set(steps.tokens)) > 5
