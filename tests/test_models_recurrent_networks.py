"""LSTM, GRU and their minimal forms: torch's networks, equations, and the scan in logarithms."""

from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lra.models.base import MixerContext
from lra.models.lstm import LSTM
from lra.models.min_gru import MinGRU, make_positive
from lra.models.ops.recurrences import scan
from references import assert_equal_with_gradients, close, padded_rows, randomize

Cell = Literal["lstm", "gru"]
CELLS: list[Cell] = ["lstm", "gru"]


@pytest.mark.parametrize("cell", CELLS)
def test_lstm_is_torchs_network_of_packed_sequences(cell: Cell) -> None:
    """In both directions, in values and all gradients."""
    mixer = randomize(LSTM(MixerContext.of(dim=8, length=40), cell=cell).double())
    network: Any = {"lstm": nn.LSTM, "gru": nn.GRU}[cell](
        8, 8, batch_first=True, bidirectional=True
    )
    for direction, one in enumerate(mixer.networks):
        for name, weight in one.named_parameters():
            setattr(network, name + ("_reverse" if direction else ""), weight)
    lengths = [33, 20, 1]
    x, mask = padded_rows(lengths, 5)

    def packed() -> Tensor:
        rows = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True)
        states, _ = pad_packed_sequence(network(rows)[0], batch_first=True, total_length=38)
        return mixer.output(states)[mask]

    leaves = [x, *mixer.parameters()]
    assert_equal_with_gradients(lambda: mixer(x, mask)[mask], packed, leaves)


@pytest.mark.parametrize("cell", CELLS)
def test_prefill_and_steps_of_an_lstm_run_in_bfloat16(cell: Cell) -> None:
    mixer = LSTM(MixerContext.of(dim=8, length=12, causal=True), cell=cell)
    x = torch.randn(2, 12, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        ahead, state = mixer.prefill(x[:, :-1])
        last, _ = mixer.step(x[:, -1], state)
        found = torch.cat([ahead, last[:, None]], dim=1)
        torch.testing.assert_close(found, mixer(x), rtol=1e-2, atol=1e-2)


def run_minimal(mixer: MinGRU, x: Tensor, direction: int) -> Tensor:
    """Run one direction over a sequence by the paper's equations: (length, 8)."""
    weights = mixer.input.weight.view(*mixer.parts, 8)[direction]
    states, state = torch.zeros_like(x), torch.zeros_like(x[0])
    for i in range(len(x))[:: -1 if direction else 1]:
        candidate, *gates = (weight @ x[i] for weight in weights)
        entering = torch.where(candidate >= 0, candidate + 0.5, torch.sigmoid(candidate))
        if len(gates) == 1:
            update = torch.sigmoid(gates[0])
            state = (1 - update) * state + update * entering
        else:
            forget, enter = torch.sigmoid(gates[0]), torch.sigmoid(gates[1])
            state = (forget * state + enter * entering) / (forget + enter)
        states[i] = state
    return states


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("causal", [False, True])
def test_min_gru_is_its_equations(cell: Cell, causal: bool) -> None:
    mixer = randomize(MinGRU(MixerContext.of(dim=8, length=12, causal=causal), cell=cell).double())
    x = torch.randn(12, 8, dtype=torch.float64)
    states = [run_minimal(mixer, x, direction) for direction in range(mixer.parts[0])]
    close(mixer(x[None])[0], torch.cat(states, dim=-1) @ mixer.output.weight.T)


def test_a_gate_of_min_lstm_that_is_nearly_closed_is_not_divided_by_zero() -> None:
    mixer = MinGRU(MixerContext.of(dim=8, length=12), cell="lstm")
    with torch.no_grad():
        mixer.input.weight.fill_(-100.0)
    kept, entering = mixer.gate(torch.ones(8))
    assert torch.equal(kept, torch.full_like(kept, 0.5))
    assert entering.isfinite().all()


def scan_logarithms(update: Tensor, candidate: Tensor) -> Tensor:
    """Run minGRU as the paper does (appendix B), by logarithms of gates and states."""
    log_candidate = torch.where(
        candidate >= 0, (candidate.relu() + 0.5).log(), functional.logsigmoid(candidate)
    )
    over = functional.logsigmoid(-update).cumsum(dim=1)
    entering = functional.logsigmoid(update) + log_candidate
    return (over + (entering - over).logcumsumexp(dim=1)).exp()


def scan_numbers(update: Tensor, candidate: Tensor) -> Tensor:
    return scan(torch.sigmoid(-update), torch.sigmoid(update) * make_positive(candidate))


def test_the_scan_equals_that_of_logarithms_and_is_more_exact() -> None:
    """Equal in double precision; over 16,384 positions of single precision, a thousandfold."""
    parts = [torch.randn(2, 300, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert_equal_with_gradients(
        lambda: scan_numbers(*parts), lambda: scan_logarithms(*parts), parts
    )
    parts = [torch.randn(1, 2**14, 4, dtype=torch.float64) for _ in range(2)]
    expected, single = scan_numbers(*parts), [part.float() for part in parts]
    errors = [
        ((compute(*single) - expected).abs() / expected).max().item()
        for compute in (scan_numbers, scan_logarithms)
    ]
    assert errors[0] < 1e-6
    assert errors[1] > 1e-4
