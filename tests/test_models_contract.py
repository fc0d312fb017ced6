"""What every registered mixer promises, whatever its maths."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import torch
import torch.nn.utils.parametrize
from pydantic import ValidationError

from conftest import EVERY_MIXER, build_mixer
from lra.config.options import Section, options_model
from models import promises
from models.base import Mixer, RecurrentMixer, begin_step
from references import assert_prefill_equals_steps

NAMES = sorted(EVERY_MIXER)
LENGTHS = [1, 2, 7, 31, 64]


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
        try:
            made = getattr(options.model_validate({name: value}), name)
        except ValidationError:
            continue
        if made != default and made is not None:
            found.append(made)
    assert found, f"no other value of {name} ({field.annotation}) was found"
    return found


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[False, True], ids=["bidirectional", "causal"])
def causal(request: pytest.FixtureRequest) -> bool:
    return request.param


def padded_batch(length: int, padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Make x (2, length + padding, 8), whose row 0 has padding of size 100, and its mask."""
    x = torch.randn(2, length + padding, 8, dtype=torch.float64)
    x[0, length:] *= 100
    mask = torch.ones(2, length + padding, dtype=torch.bool)
    mask[0, length:] = False
    return x, mask


def test_results_are_like_inputs_which_are_left_as_they_are(name: str, causal: bool) -> None:
    mixer = build_mixer(name, causal=causal)
    for dtype in (torch.float32, torch.float64):
        mixer.to(dtype)
        for length in LENGTHS:
            promises.check_output(mixer, torch.randn(3, length, 8, dtype=dtype))
        mask = torch.arange(31) < torch.tensor([[31], [19]])
        for training, given in itertools.product((True, False), (None, mask)):
            promises.check_output(mixer.train(training), torch.randn(2, 31, 8, dtype=dtype), given)


def test_a_batch_may_be_empty(name: str, causal: bool) -> None:
    mixer = build_mixer(name, causal=causal)
    promises.check_empty_batch(mixer, torch.zeros(0, 100, 8))


def test_padding_never_changes_real_positions(name: str, causal: bool) -> None:
    """Neither what it holds nor how long it is."""
    mixer = build_mixer(name, causal=causal).double().eval()
    contents = (-7.0, float("inf"), float("nan"))
    for length, padding in itertools.product(LENGTHS, (1, 9, 50)):
        x, mask = padded_batch(length, padding)
        promises.check_rows(mixer, x, mask)
        promises.check_padding(mixer, x, mask, contents)
    promises.check_padding(mixer.train(), *padded_batch(7, 9), contents)


def test_no_gradient_reaches_padding(name: str, causal: bool) -> None:
    mixer = build_mixer(name, causal=causal).double()
    promises.check_padding_gradient(mixer, *padded_batch(7, 5))


def test_rows_are_independent(name: str, causal: bool) -> None:
    mixer = build_mixer(name, causal=causal).double().eval()
    promises.check_rows(mixer, torch.randn(4, 13, 8, dtype=torch.float64))


def test_longer_sequences_are_mixed_or_refused(name: str, causal: bool) -> None:
    mixer = build_mixer(name, causal=causal, max_length=64).eval()
    promises.check_longer(mixer, torch.randn(2, 150, 8))


def test_positions_mix(name: str, causal: bool) -> None:
    mixer = build_mixer(name, causal=causal).double().eval()
    promises.check_reach(mixer, torch.randn(1, 13, 8, dtype=torch.float64), causal=causal)


def test_causal_mixers_do_not_look_ahead(name: str) -> None:
    mixer = build_mixer(name, causal=True).double()
    x = torch.randn(2, 20, 8, dtype=torch.float64)
    mask = torch.arange(20) < torch.tensor([[20], [15]])
    for training, given in itertools.product((True, False), (None, mask)):
        promises.check_causality(mixer.train(training), x, (1, 7, 14), given)


def test_recurrences_equal_the_mixer(name: str) -> None:
    mixer = build_mixer(name, causal=True).double().eval()
    if not isinstance(mixer, RecurrentMixer):
        pytest.skip("takes whole sequences only")
    promises.check_recurrence(mixer, torch.randn(2, 40, 8, dtype=torch.float64))


RECURRENT = [name for name in NAMES if issubclass(EVERY_MIXER[name], RecurrentMixer)]
CHUNKS = [1, 2, 31, 32, 33, 65]
"""Positions below, at and above the 32 of a chunk, and in three of them."""


@pytest.mark.parametrize(
    ("name", "option"),
    [
        (name, o)
        for name in RECURRENT
        for o in [None, *options_model(EVERY_MIXER[name]).model_fields]
    ],
)
def test_a_prefill_equals_the_steps(name: str, option: str | None) -> None:
    values = [None] if option is None else other_values(options_model(EVERY_MIXER[name]), option)
    x = torch.randn(2, 67, 8, dtype=torch.float64)
    for value in values[:2]:
        options: dict[str, Any] = {} if option is None else {option: value}
        try:
            mixer = build_mixer(name, causal=True, **options).double().eval()
        except ValueError:  # values that the other options do not admit, or not where causal
            continue
        assert isinstance(mixer, RecurrentMixer)
        assert_prefill_equals_steps(mixer.recurrence(67), x, CHUNKS)


def test_evaluation_is_deterministic(name: str, causal: bool) -> None:
    promises.check_determinism(build_mixer(name, causal=causal).eval(), torch.randn(2, 11, 8))


def test_every_parameter_gets_a_finite_gradient(name: str, causal: bool) -> None:
    mixer = build_mixer(name, causal=causal)
    promises.check_every_gradient(mixer, torch.randn(3, 2, 33, 8))


def test_bfloat16_autocast_stays_close(name: str, causal: bool) -> None:
    promises.check_bf16(build_mixer(name, causal=causal).eval(), torch.randn(2, 33, 8), limit=0.05)


def test_saved_weights_give_the_same_again(name: str, causal: bool) -> None:
    first, second = build_mixer(name, causal=causal), build_mixer(name, causal=causal)
    promises.check_saved_weights(first.eval(), second.eval(), torch.randn(1, 9, 8))


OPTIONS = [(name, o) for name in NAMES for o in options_model(EVERY_MIXER[name]).model_fields]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_no_option_is_ignored(name: str, option: str) -> None:
    """Another value changes the parameters, how they train, or the output, or is refused."""
    start, output = start_and_output(name)
    for value in other_values(options_model(EVERY_MIXER[name]), option):
        try:
            other_start, other_output = start_and_output(name, **{option: value})
        except ValueError as refusal:
            assert option in str(refusal)
            return
        if start != other_start or not torch.allclose(output, other_output):
            return
    raise AssertionError(f"{option} of {name} changes nothing")


@contextlib.contextmanager
def double_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(("name", "option"), [*((name, None) for name in NAMES), *OPTIONS])
def test_double_precision_does_not_depend_on_torch_s_default(name: str, option: str | None) -> None:
    """A whole number over another has torch's default type: within double precision, a fault.

    Every form that a word chooses is tried, and one other value of each number.
    """
    if option is None:
        compare_in_double_precision(name)
        return
    for value in other_values(options_model(EVERY_MIXER[name]), option):
        with contextlib.suppress(ValueError):  # refused with the other options' defaults
            compare_in_double_precision(name, **{option: value})
            if not isinstance(value, str):
                return


def compare_in_double_precision(name: str, **options: Any) -> None:
    """Compare a mixer that was built in single precision with one that was built in double.

    No power of 2 is the longest length, as fractions of one are exact in either precision.
    """
    torch.manual_seed(1)
    mixer = build_mixer(name, max_length=99, **options).double().eval()
    x, mask = padded_batch(31, 9)
    expected = mixer(x, mask)[mask]
    with double_by_default():
        torch.testing.assert_close(mixer(x, mask)[mask], expected, rtol=1e-13, atol=1e-13)
        built = build_mixer(name, max_length=99, **options).eval()
        assert {p.dtype for p in built.parameters()} <= {torch.float64}
        built.load_state_dict(mixer.state_dict())
        found = built(x.requires_grad_(), mask)[mask]
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
        found.square().sum().backward()


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


def test_options_are_typed_and_explained(name: str) -> None:
    cls = EVERY_MIXER[name]
    hints = get_type_hints(cls.__init__)
    for option in options_model(cls).model_fields:
        assert option in hints
        assert f"{option}:" in (cls.__doc__ or ""), f"{name}: {option} is not in the docstring"


def test_checkpoints_hold_plain_tensors(name: str, tmp_path: Path) -> None:
    mixer = build_mixer(name)
    promises.check_weights(mixer)
    torch.save(mixer.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert state.keys() == mixer.state_dict().keys()
    assert not any(torch.nn.utils.parametrize.is_parametrized(m) for m in mixer.modules())
    assert not any(value.is_complex() for value in state.values())


@pytest.mark.gpu
def test_gpu_equals_cpu(name: str, causal: bool) -> None:
    mixer = build_mixer(name, causal=causal).double().eval()
    x, mask = padded_batch(31, 9)
    expected = mixer(x, mask)[mask]
    got = mixer.cuda()(x.cuda(), mask.cuda())[mask.cuda()].cpu()
    torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-8)
