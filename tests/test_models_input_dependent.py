"""Mixers whose decays depend on the input: their equations, options, starts and shared parts."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from conftest import EVERY_MIXER
from lra.models.base import MixerContext, begin_step
from lra.models.delta import Delta
from lra.models.fast.selective_scan import selective_scan_by_blocks
from lra.models.layers.short_convolution import ShortConvolution
from lra.models.linear import Linear
from lra.models.mamba2 import mixer as mamba2
from lra.models.mamba2 import selective_states
from lra.models.mamba2.mixer import Direction, Mamba2
from lra.models.mamba2.selective_states import (
    BlockBiasedStates,
    HeadStates,
    MambaStates,
    Selection,
    SignedHeadStates,
)
from lra.models.mamba2.turning_states import TurningStates
from references import (
    assert_equal_with_gradients,
    close,
    leaf,
    randomize,
)


def build(name: str, *, causal: bool = False, **options: Any) -> Any:
    torch.manual_seed(0)
    context = MixerContext(dim=8, max_length=64, layer=1, depth=3, causal=causal)
    mixer = EVERY_MIXER[name](context, **options).double().eval()
    return randomize(mixer)


def features(mixer: Linear, x: Tensor, *, are_keys: bool) -> Tensor:
    """Compute the features of a head's queries or keys: (length, size) -> (length, count)."""
    if mixer.feature == "elu":
        return torch.where(x > 0, x + 1, x.exp())
    if mixer.feature == "relu":
        return x.clamp(min=0)
    if mixer.feature == "silu":
        shifted = x * torch.sigmoid(x) + 0.5
        return shifted / shifted.norm(dim=-1, keepdim=True)
    if mixer.feature == "cos":
        angle = (
            math.pi * torch.arange(1, len(x) + 1).double()[:, None] / (2 * mixer.context.max_length)
        )
        return torch.cat([x.clamp(min=0) * angle.sin(), x.clamp(min=0) * angle.cos()], dim=-1)
    return random_features(x, mixer.directions, are_keys=are_keys, causal=mixer.context.causal)


def random_features(x: Tensor, directions: Tensor, *, are_keys: bool, causal: bool) -> Tensor:
    """Compute softmax features as google-research's Performer does, one number at a time.

    There the largest product of all keys is taken off in a causal model, too, and looks ahead.
    """
    rows = [[direction @ one / len(one) ** 0.25 for direction in directions.to(x)] for one in x]
    taken_off = [max(row) for row in rows]
    if are_keys:
        taken_off = [torch.zeros(()) if causal else max(taken_off)] * len(x)
    found = [
        [(along - (one @ one) / (2 * len(one) ** 0.5) - top).exp() + 1e-4 for along in row]
        for one, row, top in zip(x, rows, taken_off, strict=True)
    ]
    return torch.tensor(found, dtype=x.dtype) / math.sqrt(len(directions))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("decay", ["none", "fixed", "selective"])
@pytest.mark.parametrize("feature", ["elu", "relu", "silu", "cos", "favor"])
def test_linear_attention_is_a_table_of_pairs(feature: str, decay: str, causal: bool) -> None:
    mixer = build("linear", feature=feature, decay=decay, causal=causal, num_heads=2)
    x = torch.randn(9, 8, dtype=torch.float64)
    projected = mixer.query_key_value(x).detach().unflatten(-1, (3, 2, 4))
    mixed = torch.zeros(9, 2, 4, dtype=torch.float64)
    for head in range(2):
        query, key, value = projected[:, :, head].unbind(dim=1)
        queries, keys = (
            features(mixer, part, are_keys=are_keys)
            for part, are_keys in ((query, False), (key, True))
        )
        fades = torch.zeros(9, dtype=torch.float64)
        if decay == "fixed":
            fades += torch.sigmoid(mixer.decay_logit[head]).log()
        elif decay == "selective":
            fades += torch.sigmoid(-mixer.decay_gate(x)[:, head]).log()
        for i in range(9):
            weights = torch.zeros(9, dtype=torch.float64)
            for j in range(i + 1 if causal else 9):
                # A key fades by the decays from its own to the one before the query's.
                passed = fades[j:i] if j < i else fades[i + 1 : j + 1]
                weights[j] = queries[i] @ keys[j] * passed.sum().exp()
            least = 0 if feature == "favor" else 1e-6
            mixed[i, head] = weights @ value / (weights.sum() + least)
    close(mixer(x[None])[0], mixer.output(mixed.flatten(1)))


def convolved(convolution: ShortConvolution | None, x: Tensor) -> Tensor:
    """Convolve and activate one sequence, tap by tap: (length, channels)."""
    if convolution is None:
        return x
    y = torch.zeros_like(x)
    for i in range(len(x)):
        for lag in range(min(i + 1, len(convolution.taps))):
            y[i] += convolution.taps[lag] * x[i - lag]
    y = y if convolution.bias is None else y + convolution.bias
    return y * torch.sigmoid(y)


def in_order(causal: bool, x: Tensor) -> list[Tensor]:
    return [x] if causal else [x, x.flip(0)]


def turned(states: TurningStates, x: Tensor, direct: Tensor, inner: int) -> Tensor:
    """Run the states of Mamba-3 as complex ones, channel by channel: (length, inner)."""
    size, heads = states.num_states, states.num_heads
    pairs = size // 4
    y = torch.zeros(len(x), inner, dtype=torch.float64)
    for c in range(inner):
        head = c // (inner // heads)
        group = head // (heads // states.num_groups)
        into, out = (
            norm(x[:, start + group * size :][:, :size]) + bias[head]
            for start, norm, bias in zip(
                (inner, inner + states.num_groups * size), states.norms, states.biases, strict=True
            )
        )
        # States that do not turn are the real parts of complex ones.
        into, out = (
            torch.cat([torch.complex(*part[:, : 2 * pairs].chunk(2, -1)), part[:, 2 * pairs :]], -1)
            for part in (into, out)
        )
        dt = functional.softplus(direct[:, head] + states.step_bias[head])
        rate = functional.softplus(direct[:, heads + head]).clamp(min=1e-4)
        share = torch.sigmoid(direct[:, 2 * heads + head])
        angle = functional.pad(math.pi * torch.tanh(direct[:, 3 * heads :]), (0, size - 2 * pairs))
        state = last = torch.zeros(size - pairs, dtype=torch.complex128)
        for i in range(len(x)):
            # B and C turn, and so the states turn back.
            transition = torch.exp(-dt[i] * torch.complex(rate[i].expand(len(state)), angle[i]))
            state = transition * (state + (1 - share[i]) * dt[i] * last)
            last = into[i] * x[i, c]
            state = state + share[i] * dt[i] * last
            y[i, c] = (out[i].conj() * state).real.sum() + states.factor[head] * x[i, c]
    return y


def selected(direction: Direction, x: Tensor, direct: Tensor, inner: int) -> Tensor:
    """Run the states of Mamba, Mamba-2 or B2S6 channel by channel: (length, inner)."""
    states = direction.states
    x = convolved(direction.convolution, x)
    if isinstance(states, TurningStates):
        return turned(states, x, direct, inner)
    y = torch.zeros(len(x), inner, dtype=torch.float64)
    for c in range(inner):
        if isinstance(states, MambaStates):
            rank, size = states.rank, states.num_states
            low, into, out = (x @ states.maps.weight.T).split([rank, size, size], dim=-1)
            dt = functional.softplus(low @ states.time.weight[c] + states.time.bias[c])
            poles, skip = -states.log_rate[c].exp(), states.factor[c]
        elif isinstance(states, HeadStates):
            head = c // (inner // states.num_heads)
            group = head // (states.num_heads // states.num_groups)
            size = states.num_states
            start = inner + group * size
            into = x[:, start : start + size]
            out = x[:, start + states.num_groups * size :][:, :size]
            dt = functional.softplus(direct[:, head] + states.step_bias[head])
            poles, skip = -states.log_rate[head].exp(), states.factor[head]
        else:
            assert isinstance(states, BlockBiasedStates)
            size = inner // states.num_heads
            block = c // size
            own = x[:, block * size : (block + 1) * size]
            dt = functional.softplus(own @ states.time[block] + states.step_bias[c])
            into = own.to(torch.complex128) @ torch.view_as_complex(states.into)[block].T
            into = into + torch.view_as_complex(states.into_bias)[c]
            out = 2 * own.to(torch.complex128) @ torch.view_as_complex(states.out)[block].T
            poles, skip = (
                torch.complex(-states.log_rate[c].exp(), states.frequency[c]),
                states.factor[c],
            )
        state = torch.zeros(into.shape[1], dtype=into.dtype)
        for i in range(len(x)):
            transition = (dt[i] * poles).exp()
            if isinstance(states, SignedHeadStates):
                transition = 2 * transition - 1
            state = transition * state + dt[i] * into[i] * x[i, c]
            y[i, c] = (out[i] @ state).real + skip * x[i, c]
    return y


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"selective": "mamba1"},
        {"selective": "mamba2", "num_heads": 4, "num_groups": 2},
        {"selective": "mamba2", "directions": "shared"},
        {"selective": "mamba2", "num_heads": 4, "num_groups": 2, "negative_eigenvalues": True},
        {"selective": "mamba3", "num_heads": 4, "num_groups": 2, "state_size": 10},
        {"selective": "mamba3", "conv_size": 1, "state_size": 4},
        {"selective": "b2s6", "num_heads": 2},
        {"selective": "b2s6", "conv_size": 1, "expand": 1},
    ],
)
def test_mamba_is_its_equations(options: dict[str, Any], causal: bool) -> None:
    mixer: Mamba2 = build("mamba2", **{"state_size": 3, **options}, causal=causal)
    x = torch.randn(9, 8, dtype=torch.float64)
    gate, given, direct = mixer.input(x).split(mixer.parts, dim=-1)
    mixed = torch.zeros_like(gate)
    for number, (one, two) in enumerate(
        zip(in_order(causal, given), in_order(causal, direct), strict=True)
    ):
        direction = mixer.directions[number % len(mixer.directions)]
        assert isinstance(direction, Direction)
        y = selected(direction, one, two, mixer.parts[0])
        mixed += y.flip(0) if number else y
    mixed = mixed * functional.silu(gate)
    if options["selective"] == "mamba2":
        groups = mixed.unflatten(-1, (options.get("num_groups", 1), -1))
        mean = groups.square().mean(dim=-1, keepdim=True)
        mixed = (groups / (mean + 1e-5).sqrt()).flatten(-2) * mixer.scale
    close(mixer(x[None])[0], mixed @ mixer.output.weight.T)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("transition", [0.1, -0.1, 1e-4, -1e-7, 0.0])
def test_gradients_of_small_transitions_are_exact(
    transition: float, dtype: torch.dtype, tolerance: float
) -> None:
    """They depend neither on the size of a transition nor on its logarithm."""
    torch.manual_seed(0)
    step = torch.rand(2, 100, 3, dtype=torch.float64)
    step[:, 5::9] = -math.log((1 + transition) / 2)
    x, into, out = (torch.randn(2, 100, *size).double() for size in ([6], [1, 4], [1, 4]))
    leaves = [part.requires_grad_() for part in (x, step, into, out)]
    poles = -torch.ones(6, 1, dtype=dtype)

    def run_fast() -> Tensor:
        given = Selection(*(part.to(dtype) for part in leaves))
        return SignedHeadStates.run(given, poles, None).double()

    def run_loop() -> Tensor:
        state, results = torch.zeros(2, 6, 4, dtype=torch.float64), []
        for k in range(100):
            dt = step[:, k].repeat_interleave(2, dim=-1)[..., None]
            state = (2 * (-dt).exp() - 1) * state + dt * x[:, k, :, None] * into[:, k]
            results.append((state * out[:, k]).sum(dim=-1))
        return torch.stack(results, dim=1)

    assert_equal_with_gradients(run_fast, run_loop, leaves, tolerance)


@pytest.mark.parametrize("selective", ["mamba1", "mamba2", "mamba3", "b2s6"])
def test_single_precision_does_not_look_ahead(selective: str) -> None:
    """A large input changes no result before it, by no difference of large numbers either."""
    mixer: Mamba2 = build("mamba2", selective=selective, conv_size=1, causal=True).float()
    x = torch.randn(1, 60, 8)
    larger = x.clone()
    larger[:, 40] *= 1000
    before, after = mixer(x)[:, :40], mixer(larger)[:, :40]
    torch.testing.assert_close(after, before, rtol=0, atol=1e-7)


def test_mamba3_starts_and_decays_as_its_code() -> None:
    mixer = Mamba2(MixerContext.of(dim=8, length=40), selective="mamba3")
    names = {parameter: name for name, parameter in mixer.named_parameters()}
    undecayed = {names[parameter].split(".", 2)[-1] for parameter in mixer.learning_rates()}
    assert undecayed == {"states.step_bias", "states.factor"}
    states = mixer.directions[0].states
    assert isinstance(states, TurningStates)
    assert bool((states.biases == 1).all())


@pytest.mark.parametrize("directions", ["own", "shared"])
@pytest.mark.parametrize("selective", ["mamba1", "mamba2", "mamba3", "b2s6"])
def test_both_directions_as_on_a_gpu_equal_one_after_the_other(
    selective: str, directions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: dict[str, Any] = {} if selective == "mamba1" else {"num_heads": 4}
    mixer: Mamba2 = build("mamba2", selective=selective, directions=directions, **sizes)
    x, mask = leaf(2, 19, 8), torch.arange(19) < torch.tensor([[19], [12]])

    def mix() -> Tensor:
        return mixer(x, mask) * mask[..., None]

    def mix_as_on_a_gpu() -> Tensor:
        with monkeypatch.context() as patch:
            patch.setattr(mamba2, "mix_together", selective_states.mix_as_one)
            patch.setattr(selective_states, "selective_scan", selective_scan_by_blocks)
            return mix()

    assert_equal_with_gradients(mix_as_on_a_gpu, mix, [x, *mixer.parameters()])


@pytest.mark.parametrize(("highest", "products"), [(1, 1), (2, 1), (2, 3)])
@pytest.mark.parametrize("causal", [False, True])
def test_the_delta_rule_replaces_what_keys_held(causal: bool, highest: int, products: int) -> None:
    options = {"negative_eigenvalues": highest > 1, "products": products}
    mixer: Delta = build("delta", num_heads=2, causal=causal, **options)
    x = torch.randn(9, 8, dtype=torch.float64)
    mixed = torch.zeros(9, 2, 8, dtype=torch.float64)
    orders = zip(
        in_order(causal, mixer.query_key_value(x)), in_order(causal, mixer.rate_and_decay(x)),
        strict=True,
    )  # fmt: skip
    for number, (projected, moved) in enumerate(orders):
        own = mixer.directions[number]
        query, *stored = convolved(own.convolution, projected).split(
            [8, *[8] * products, *[16] * products], dim=-1
        )
        rates = highest * torch.sigmoid(moved[:, : 2 * products])
        for head in range(2):
            q, *keys = (
                part / (part.square().sum(-1, True) + 1e-6).sqrt()
                for one in (query, *stored[:products])
                for part in [one[:, 4 * head : 4 * head + 4]]
            )
            values = [part[:, 8 * head : 8 * head + 8] for part in stored[products:]]
            speed = functional.softplus(moved[:, 2 * products + head] + own.step_bias[head])
            decay = (-own.log_rate[head].exp() * speed).exp()
            matrix = torch.zeros(4, 8, dtype=torch.float64)
            for i in range(9):
                matrix = decay[i] * matrix
                for product, (k, v) in enumerate(zip(keys, values, strict=True)):
                    rate = rates[i, 2 * product + head]
                    matrix = matrix + rate * torch.outer(k[i], v[i] - matrix.T @ k[i])
                place = 8 - i if number else i
                mixed[place, head] += matrix.T @ q[i] / 2
    mean = mixed.square().mean(dim=-1, keepdim=True)
    normed = mixed / (mean + 1e-5).sqrt() * mixer.norm.weight
    gated = normed.flatten(1) * functional.silu(x @ mixer.gate.weight.T)
    close(mixer(x[None])[0], gated @ mixer.output.weight.T)


def initial(name: str, dim: int = 64, **options: Any) -> Any:
    return EVERY_MIXER[name](MixerContext(dim=dim, max_length=64, layer=0, depth=3), **options)


def test_directions_are_drawn_again_when_a_step_begins() -> None:
    mixer = initial("linear", feature="favor", redraw_steps=2)
    x, last = torch.randn(1, 5, 64), mixer.directions.clone()
    same = []
    for _ in range(5):
        begin_step(nn.Sequential(mixer))
        mixer(x)
        mixer(x)
        same.append(torch.equal(mixer.directions, last))
        last = mixer.directions.clone()
    assert same == [True, True, False, True, False]
    assert set(mixer.state_dict()) >= {"directions", "steps_since"}
