"""What every mixer promises, whatever its maths: all of them, and every form that they have."""

import contextlib
import copy
import inspect
import itertools
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import torch
import torch.nn.utils.parametrize
from pydantic import ValidationError
from torch import nn

from conftest import EVERY_MIXER, build_mixer
from lra.config.components import Section, options_model
from lra.models import run_promises, suite_promises
from lra.models.base import Mixer, MixerContext, RecurrentMixer, begin_step
from references import LargestTensor, assert_mixer_equals_reference
from requested import NOT_CAUSAL

NAMES = sorted(EVERY_MIXER)
MAX_LENGTH = 66
"""Of all mixers here: no power of 2, of which fractions are exact in any precision."""

Options = dict[str, Any]
FORMS: dict[str, list[Options]] = {
    "conv": [{"width": 33}],
    "delta": [
        {"num_heads": 2, "expand": 1, "conv_size": 1},
        {"directions": "own", "negative_eigenvalues": True, "products": 3},
    ],
    "dss": [
        {"normalization": "exp", "separate_steps": True},
        {"bidirectional": False, "output": "linear"},
    ],
    "fd-tnn": [{"rpe_input": "cosine", "rpe_activation": "gelu", "inner_norm": "layer"}],
    "hgrn2": [{"state_size": 1}, {"state_size": 8}],
    "linear": [
        {"feature": "elu", "decay": "selective", "num_heads": 2},
        {"feature": "relu", "decay": "fixed"},
        {"feature": "silu", "decay": "fixed", "num_heads": 1},
        {"feature": "cos"},
        {"feature": "favor", "decay": "selective", "num_heads": 2},
    ],
    "linformer": [
        {"sharing": sharing, "projected_length": 5, "projection_bias": sharing != "heads"}
        for sharing in ("none", "heads", "key_value", "layers", "layers_by_head")
    ],
    "long-conv": [
        {"kernel": "multiscale", "copies": 2},
        {"start": "exponential", "smoothing": 3, "threshold": 0.1},
    ],
    "linoss": [{"discretization": "imex"}],
    "lstm": [{"cell": "gru"}],
    "lru": [{"gate": "half_glu1", "radius_min": 0.3}],
    "mamba2": [
        {"selective": "mamba1", "state_size": 3, "directions": "shared"},
        {"num_heads": 4, "num_groups": 2, "negative_eigenvalues": True},
        {"selective": "mamba3", "num_heads": 4, "num_groups": 2, "conv_size": 1},
        {"selective": "mamba3", "state_size": 7, "directions": "shared"},
        {"selective": "b2s6", "num_heads": 2},
        {"selective": "b2s6", "conv_size": 1, "expand": 1},
    ],
    "mega": [{"chunk": 5, "weighting": "laplace"}, {"chunk": 100, "average_size": 3}],
    "min-gru": [{"cell": "lstm"}],
    "nystrom": [{"num_landmarks": 5, "convolution_size": 5, "num_heads": 2}],
    "reformer": [
        {"num_rounds": 2, "chunk_length": 4, "num_buckets": 6, "look_ahead": False},
        {"num_rounds": 2, "chunk_length": 4},  # a bucket is a combination of two hashes
    ],
    "rtf": [{"state_size": MAX_LENGTH + 3, "num_copies": None}],
    "s4": [{"state_size": 6, "num_copies": None, "step_min": 0.01}],
    "s4d": [
        {"initialization": "lin", "discretization": "bilinear"},
        {"initialization": "inv", "num_copies": None, "state_size": 8},
        {"spectral_exponent": True},
    ],
    "s5": [{"num_blocks": 2, "discretization": "bilinear", "gate": "half_glu2"}],
    "sinkhorn": [
        {"block_size": 3, "joint_softmax": True, "num_heads": 2},
        {"block_size": 5, "gumbel_noise": True, "attention_dim": 4, "projection_bias": False},
    ],
    "ski-tnn": [
        {"num_inducing_points": 9, "interpolation": "cubic", "num_taps": 5},
        {"num_inducing_points": MAX_LENGTH},  # each position is a point
    ],
    "sparse": [
        {"pattern": "strided", "block_size": 5, "num_global": 1},
        {"pattern": "fixed", "block_size": 7, "num_summary": 2},
        {"pattern": "longformer", "window_size": 10, "num_global": 3},
        {"pattern": "longformer", "window_size": 25},
        {"pattern": "bigbird", "block_size": 4, "num_random": 3, "random_within": 24},
        {"pattern": "local", "block_size": 6, "num_global": 2},
    ],
    "synthesizer": [
        {"scores": "random", "dot_product": True},
        {"scores": "factorized_random", "rank": 3},
        {"scores": "dense", "attention_dim": 12, "projection_bias": False},
    ],
    "tnn": [
        {"window": 5, "num_heads": 2, "decay": None, "rpe_residual": True},
        {"decay_learned": True, "inner_norm": "layer", "rpe_input": "scaled"},
    ],
    "toroidal": [
        {"window": 7, "num_platters": 4, "num_heads": 1, "fusion": "attention"},
        {"wrap": False, "harmonics": "rope", "distance_weight": 0.0, "fusion": "mean"},
        {"mode": "spectral"},
        {"mode": "spectral", "wrap": False, "window": 3},
        {"circle": "real_length"},
    ],
    "transformer": [
        {"window": 5, "num_heads": 2, "rotary": True},
        {"attention_dim": 12, "projection_bias": False},
    ],
}
"""Forms beside the default one."""

REFUSING = NOT_CAUSAL | {"example of the docs"}
"""Mixers that refuse a causal context, with any options."""
NEVER_CAUSAL = {
    ("spectral_exponent", True), ("pattern", "bigbird"), ("mode", "spectral"),
    ("circle", "real_length"),
}  # fmt: skip
"""Options with which a mixer refuses a causal context."""

BLOCKS = {
    "lra.models.mega.biased_attention.BLOCK": 6,
    "lra.models.fast.circulant.FEWEST_NUMBERS": 1,
    "lra.models.fast.delta_rule.TILE": 5,
    "lra.models.ops.local_attention.BLOCK": 8,
    "lra.models.fast.selective_scan.TILE": 400,
    "lra.models.toroidal.attention.BLOCK": 6,
    "lra.models.transformer.BLOCK": 8,
}
"""Sizes of blocks, with which short sequences have several of them, too."""

EVERY_FORM = [(name, form) for name in NAMES for form in [{}, *FORMS.get(name, [])]]
CASES = [
    (name, form, causal)
    for name, form in EVERY_FORM
    for causal in (False, True)
    if not (causal and (name in REFUSING or form.items() & NEVER_CAUSAL))
]
of_every_form = pytest.mark.parametrize(("name", "form", "causal"), CASES)
of_every_mixer = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in BLOCKS.items():
        monkeypatch.setattr(name, size)


def build(name: str, form: Options, *, causal: bool = False) -> nn.Module:
    return build_mixer(name, causal=causal, max_length=MAX_LENGTH, **form)


def padded_batch(length: int, padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Make x (2, length + padding, 8), whose row 0 has padding of size 100, and its mask."""
    x = torch.randn(2, length + padding, 8, dtype=torch.float64)
    x[0, length:] *= 100
    mask = torch.ones(2, length + padding, dtype=torch.bool)
    mask[0, length:] = False
    return x, mask


@of_every_form
def test_results_are_like_inputs_and_repeat(name: str, form: Options, causal: bool) -> None:
    mixer, other = build(name, form, causal=causal), build(name, form, causal=causal)
    run_promises.check_weights(mixer)
    suite_promises.check_empty_batch(mixer, torch.zeros(0, 20, 8))
    suite_promises.check_every_gradient(mixer, torch.randn(3, 2, 33, 8))
    for training in (True, False):
        run_promises.check_output(mixer.train(training), torch.randn(3, 31, 8))
    suite_promises.check_determinism(mixer, torch.randn(2, 11, 8))
    suite_promises.check_saved_weights(mixer, other.eval(), torch.randn(1, 9, 8))
    suite_promises.check_bf16(mixer, torch.randn(2, 33, 8), limit=0.05)
    suite_promises.check_longer(mixer, torch.randn(2, MAX_LENGTH + 9, 8))


@of_every_form
def test_padding_changes_no_real_position(name: str, form: Options, causal: bool) -> None:
    """Neither what it holds nor how long it is; and no gradient reaches it."""
    mixer = build(name, form, causal=causal).double().eval()
    infinity, nan = float("inf"), float("nan")
    contents = {(1, 1): (nan,), (2, 9): (infinity,), (7, 50): (nan,), (31, 35): (-7.0, nan)}
    for (length, padding), some in contents.items():
        x, mask = padded_batch(length, padding)
        run_promises.check_rows(mixer, x, mask)
        run_promises.check_padding(mixer, x, mask, some)
    mixer.train()
    run_promises.check_padding(mixer, *padded_batch(31, 9), (-7.0, infinity, nan))
    suite_promises.check_padding_gradient(mixer, *padded_batch(31, 5))


@of_every_form
def test_positions_see_what_they_may(name: str, form: Options, causal: bool) -> None:
    """A causal mixer does not look ahead, and its recurrence and its prefill equal its pass."""
    mixer = build(name, form, causal=causal).double()
    if causal:
        x = torch.randn(2, 40, 8, dtype=torch.float64)
        mask = torch.arange(40) < torch.tensor([[40], [32]])
        for training, given in itertools.product((True, False), (None, mask)):
            run_promises.check_causality(mixer.train(training), x, (1, 7, 14, 30), given)
    mixer.eval()
    if not form:
        suite_promises.check_reach(mixer, torch.randn(1, 13, 8, dtype=torch.float64), causal=causal)
    if causal and isinstance(mixer, RecurrentMixer):
        x = torch.randn(2, MAX_LENGTH, 8, dtype=torch.float64)
        counts = [1, 2, 31, 32, 33]  # below, at and above the 32 of a chunk
        suite_promises.check_recurrence(mixer, x, counts)
        assert mixer.state_size(9) > 0
    elif isinstance(mixer, RecurrentMixer):
        with pytest.raises(ValueError, match="only a causal mixer"):
            mixer.recurrence(10)


@of_every_form
def test_the_fast_form_equals_the_reference(name: str, form: Options, causal: bool) -> None:
    """In values and all gradients, without padding and with it.

    And in double precision whatever torch's default type is, which a whole number over another has.
    """
    mixer = build(name, form, causal=causal).double().eval()
    for length in (1, 2, 37):
        x = torch.randn(3, length, 8, dtype=torch.float64, requires_grad=True)
        mask = torch.arange(length) < torch.tensor([[length], [length // 2 + 1], [1]])
        assert_mixer_equals_reference(mixer, x, mask)
    expected = mixer(x, mask)[mask]  # pyright: ignore[reportPossiblyUnboundVariable]
    torch.set_default_dtype(torch.float64)
    try:
        built = build(name, form, causal=causal).eval()
        built.load_state_dict(mixer.state_dict())
        found = built(x, mask)[mask]
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "form"),
    [case for case in EVERY_FORM if case[0] in REFUSING or case[1].items() & NEVER_CAUSAL],
)
def test_what_cannot_be_causal_refuses_it(name: str, form: Options) -> None:
    context = MixerContext.of(dim=8, length=MAX_LENGTH, causal=True)
    with pytest.raises(ValueError, match="causal"):
        EVERY_MIXER[name](context, **form)


LINEAR: list[tuple[str, Options]] = [
    ("dss", {}),
    ("linear", {}),
    ("mega", {}),
    ("mega", {"chunk": 64}),
    ("nystrom", {}),
    ("reformer", {"num_rounds": 1}),
    ("rtf", {}),
    ("s4", {}),
    ("s4d", {}),
    ("ski-tnn", {}),
    ("sparse", {"pattern": "bigbird", "block_size": 16}),
    ("sparse", {"pattern": "local", "block_size": 16}),
    ("sparse", {"window_size": 32}),
    ("toroidal", {}),
    ("toroidal", {"window": 8}),
    ("transformer", {"window": 16}),
]
"""Forms that make no table of all pairs."""


@pytest.mark.parametrize(("name", "form"), LINEAR)
def test_tensors_grow_with_the_length_alone(
    name: str, form: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest of twice as many positions is at most about twice as large."""
    monkeypatch.undo()  # blocks are as large as they are
    largest = []
    for length in (1024, 2048):
        mixer = build_mixer(name, max_length=length, **form)
        x = torch.randn(1, length, 8, requires_grad=True)
        mixer(x)  # tables of a length are made once
        with LargestTensor() as made:
            mixer(x).sum().backward()
        largest.append(made.numel)
    assert largest[1] <= 2.2 * largest[0]


REFUSED: list[tuple[str, Options, str]] = [
    ("conv", {"width": 4}, "width 4 is even"),
    ("linear", {"num_random": 4}, "num_random concerns feature favor"),
    ("long-conv", {"kernel": "multiscale", "smoothing": 3}, "kernel_dropout concern free kernels"),
    ("mamba2", {"num_heads": 5}, "num_heads 5 does not divide the 16 inner channels"),
    ("mamba2", {"selective": "b2s6", "negative_eigenvalues": True}, "not b2s6"),
    ("mamba2", {"selective": "mamba3", "state_size": 3}, "state_size 3 is too small"),
    ("s4", {"num_copies": 3}, "num_copies 3 does not divide model.dim 8"),
    ("s4d", {"exponent_lr": 0.01}, "exponent_lr concerns spectral_exponent"),
    ("ski-tnn", {"num_inducing_points": 500}, "num_inducing_points 500 for sequences of 66"),
    ("sparse", {"block_size": 4}, "pattern longformer has no option block_size; its options are"),
    ("synthesizer", {"rank": 3}, "rank concerns scores factorized_random"),
    ("tnn", {"decay": None, "decay_learned": True}, "decay_learned needs a decay"),
    (
        "toroidal",
        {"depth_wrap": True, "num_platters": 1},
        "depth_wrap has no effect: num_platters",
    ),
    ("toroidal", {"fusion": "none", "fusion_rank": 2}, "fusion_rank 2 concerns low_rank of"),
    ("transformer", {"num_heads": 8, "rotary": True}, "rotary turns pairs of channels"),
    ("transformer", {"num_heads": 3, "attention_dim": 4}, "does not divide attention_dim 4"),
]
"""Options that do not work together, or that would be ignored."""


@pytest.mark.parametrize(("name", "form", "message"), REFUSED)
def test_options_that_contradict_are_refused(name: str, form: Options, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build(name, form)


def other_values(options: type[Section], name: str) -> list[Any]:
    """Find valid values of an option that are not its default, whatever its type."""
    field = options.model_fields[name]
    default = field.default
    literals = [
        c for part in (field.annotation, *get_args(field.annotation)) for c in get_args(part)
    ]
    doubled = [2 * default, default / 2] if isinstance(default, (int, float)) else []
    found = []
    for value in [*literals, *doubled, True, False, 2, 3, 0.5, 0.25]:
        with contextlib.suppress(ValidationError):
            made = getattr(options.model_validate({name: value}), name)
            if made != default and made is not None:
                found.append(made)
    assert found, f"no other value of {name} ({field.annotation}) was found"
    return found


def start_and_output(name: str, **options: Any) -> tuple[list[object], torch.Tensor]:
    """Describe how a mixer's parameters start, and apply one whose parameters are random."""
    torch.manual_seed(1)
    built = build_mixer(name, randomized=False, **options)
    rates = built.learning_rates() if isinstance(built, Mixer) else {}
    # Of each parameter its shape, its values and its learning rate.
    start: list[object] = [
        (p.shape, p.tolist(), rates.get(p, "the run's")) for p in built.parameters()
    ]
    torch.manual_seed(1)
    mixer = build_mixer(name, **options)
    begin_step(mixer)
    torch.manual_seed(2)
    return start, mixer(torch.randn(2, 30, 8))


@of_every_mixer
def test_options_are_typed_explained_and_not_ignored(name: str) -> None:
    """Another value changes the parameters, how they train, or the output, or is refused."""
    cls = EVERY_MIXER[name]
    options, hints = options_model(cls), get_type_hints(cls.__init__)
    start, output = start_and_output(name)

    def changes_something(option: str, value: Any) -> bool:
        try:
            other_start, other_output = start_and_output(name, **{option: value})
        except ValueError as refusal:
            return option in str(refusal)
        return start != other_start or not torch.allclose(output, other_output)

    for option in options.model_fields:
        assert option in hints
        assert f"{option}:" in (cls.__doc__ or ""), f"{name}: {option} is not in the docstring"
        assert any(changes_something(option, value) for value in other_values(options, option)), (
            f"{option} of {name} changes nothing"
        )


@of_every_mixer
def test_a_mixer_is_a_plain_module(name: str, tmp_path: Path) -> None:
    cls = EVERY_MIXER[name]
    assert next(iter(inspect.signature(cls).parameters)) == "context"
    mixer, x = build_mixer(name).eval(), torch.randn(2, 20, 8)
    assert torch.equal(copy.deepcopy(mixer)(x), mixer(x))
    torch.save(mixer.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert state.keys() == mixer.state_dict().keys()
    assert not any(torch.nn.utils.parametrize.is_parametrized(m) for m in mixer.modules())
    assert not any(value.is_complex() for value in state.values())


@pytest.mark.gpu
def test_gpu_equals_cpu() -> None:
    for name, form in EVERY_FORM:
        mixer = build(name, form).double().eval()
        x, mask = padded_batch(31, 9)
        expected = mixer(x, mask)[mask]
        got = mixer.cuda()(x.cuda(), mask.cuda())[mask.cuda()].cpu()
        torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-8)
