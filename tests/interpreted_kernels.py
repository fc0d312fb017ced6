"""Runs public kernels on a CPU, in Triton's interpreter, and prints how far they are from ours.

It is a process of its own, with TRITON_INTERPRET=1, which Triton reads as it decorates kernels. For
each case it prints the largest errors of values and gradients in float32, relative to our reference
forms in float64, and how often a public kernel ran.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from models.fast import public_kernels
from models.fast.public_kernels import DECAYING_ATTENTION, DELTA_RULE
from models.ops.recurrences import decaying_attention, delta_rule
from models.ops.reference import KERNEL_CHOICE, reference_forms

LENGTH = 64
PADDING = 13

Errors = dict[str, float]
"""The largest errors of values and of gradients."""


class Index(int):
    """A loop variable of a kernel, which has the methods of a compiled one."""

    def to(self, dtype: object) -> Index:
        return self


def indices(*bounds: Any) -> Iterator[Index]:
    return map(Index, range(*bounds))


def run_first_configuration(tuner: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a kernel without measuring which of its configurations is the fastest."""
    chosen = tuner.configs[0].all_kwargs()
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    return tuner.fn.run(*args, **kwargs, **chosen)


def count_calls(kernel: public_kernels.PublicKernel, calls: list[str]) -> None:
    """Import a public function, make it run in the interpreter, and list its calls."""
    entry = kernel.entry
    assert not isinstance(entry, str), entry
    for name, module in list(sys.modules.items()):
        if name.startswith("fla.ops"):
            vars(module)["range"] = indices

    def called(*args: Any, **kwargs: Any) -> Any:
        calls.append(kernel.function)
        return entry(*args, **kwargs)

    vars(kernel)["entry"] = called


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float32)


def delta(query: Tensor, key: Tensor, value: Tensor, rates: Tensor, weight: Tensor) -> Tensor:
    key = torch.nn.functional.normalize(key, dim=-1) * weight
    rate, log_decay = rates
    return delta_rule(query, key, value, rate.sigmoid(), -0.1 * log_decay.abs())


def attention(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor) -> Tensor:
    return decaying_attention(query, key, value, -0.1 * log_decay.abs())


def real_weight(length: int) -> Tensor:
    """Return 1 at real positions and 0 at the padding behind them: (length, 1)."""
    return (torch.arange(length) < length - PADDING)[:, None].float()


def of_operator(compute: Callable[..., Tensor], *given: Tensor) -> Errors:
    results = []
    for dtype in (torch.float32, torch.float64):
        leaves = [x.to(dtype).requires_grad_() for x in given]
        results.append(outcome(lambda leaves=leaves: compute(*leaves), leaves))
    return errors(*results)


def outcome(compute: Callable[[], Tensor], leaves: Sequence[Tensor]) -> list[Tensor]:
    """Return a value and its gradients, those of float64 by our reference forms."""
    precise = leaves[0].dtype == torch.float64
    KERNEL_CHOICE.device = None if precise else "cpu"
    if precise:
        with reference_forms():
            value = compute()
    else:
        value = compute()
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(value.shape, generator=generator, dtype=torch.float64)
    loss = (value * weights.to(value.dtype)).sum()
    return [value, *torch.autograd.grad(loss, leaves, materialize_grads=True)]


def errors(found: list[Tensor], expected: list[Tensor]) -> Errors:
    largest = max(x.abs().max().item() for x in expected[1:])
    each = [
        (a.double() - b).abs().max().item() / max(b.abs().max().item(), 1e-3 * largest * (k > 0))
        for k, (a, b) in enumerate(zip(found, expected, strict=True))
    ]
    return {"values": each[0], "gradients": max(each[1:])}


def operators() -> Iterator[tuple[str, Errors]]:
    for length in (LENGTH, LENGTH - 23):
        heads = [draw(2, 2, length, size) for size in (16, 16, 32)]
        rates = draw(2, 2, 2, length)
        for name, weight in (("", torch.ones(length, 1)), (", padding", real_weight(length))):
            found = of_operator(delta, *heads, rates, weight)
            yield f"delta rule, {length} positions{name}", found
        shared = draw(2, 1, length, 16), draw(2, 1, length, 16)
        found = of_operator(attention, *shared, draw(2, 3, length, 33), draw(2, 3, length))
        yield f"attention with decay, {length} positions", found


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = True  # or the delta rule would run in our form
    tuner = importlib.import_module("triton.runtime.autotuner").Autotuner
    tuner.run = run_first_configuration
    calls: list[str] = []
    for kernel in (DELTA_RULE, DECAYING_ATTENTION):
        count_calls(kernel, calls)
    cases: dict[str, Any] = {}
    for name, found in operators():
        cases[name] = {**found, "calls": len(calls)}
        calls.clear()
    json.dump({"cases": cases, "used": KERNEL_CHOICE.used}, sys.stdout)


if __name__ == "__main__":
    main()
