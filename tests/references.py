"""Holding a fast form to its plain reference, and looking at what it allocates."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lra.models.base import Recurrence
from lra.models.ops.reference import reference_forms
from lra.models.ops.toeplitz import LagKernel

M = TypeVar("M", bound=nn.Module)
LENGTHS = [1, 2, 3, 31, 64, 100, 127, 128, 1000]


def close(found: Tensor, expected: Tensor) -> None:
    """Compare numbers of double precision, to 1e-9."""
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def assert_equal_with_gradients(
    fast: Callable[[], Tensor],
    reference: Callable[[], Tensor],
    leaves: Sequence[Tensor],
    tolerance: float = 1e-9,
) -> None:
    """Compare values and the gradients of all leaves, each relative to the reference's size.

    What is next to nothing beside the largest of them may be nothing but rounding.
    """
    results = []
    for compute in (fast, reference):
        value = compute()
        generator = torch.Generator().manual_seed(0)
        weights = torch.randn(value.shape, generator=generator, dtype=value.real.dtype)
        gradients = torch.autograd.grad((value * weights).sum(), leaves, materialize_grads=True)
        results.append([value, *gradients])
    largest = max(expected.abs().max().item() for expected in results[1])
    for got, expected in zip(*results, strict=True):
        scale = max(1e-6 * largest, expected.abs().max().item())
        torch.testing.assert_close(got / scale, expected / scale, rtol=0, atol=tolerance)


def leaf(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw a tensor that takes a gradient."""
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def randomize(mixer: M) -> M:
    """Draw parameters of a size at which each of them matters."""
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return mixer


def padded_rows(lengths: Sequence[int], padding: int) -> tuple[Tensor, Tensor]:
    """Draw sequences of 8 channels, (sequences, longest + padding, 8), and make their mask."""
    longest = max(lengths) + padding
    return leaf(len(lengths), longest, 8), torch.arange(longest) < torch.tensor([lengths]).T


def by_reference(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Return a function that computes the same by the reference form."""

    def computed() -> Tensor:
        with reference_forms():
            return compute()

    return computed


def assert_mixer_equals_reference(
    mixer: nn.Module, x: Tensor, mask: Tensor, tolerance: float = 1e-9
) -> None:
    """Compare a mixer with its reference form, with gradients, without and with the mask."""
    for given in (None, mask):

        def computed(given: Tensor | None = given) -> Tensor:
            y = mixer(x, given)
            return y if given is None else y[given]

        leaves = [x, *mixer.parameters()]
        assert_equal_with_gradients(computed, by_reference(computed), leaves, tolerance)


def multiply_by_matrix(kernel: LagKernel, x: Tensor) -> Tensor:
    """Multiply x, (batch, length, channels), by the Toeplitz matrices written out."""
    return torch.einsum("cij,bjc->bic", kernel.matrix(x.shape[1]), x)


def run(recurrence: Recurrence, x: Tensor) -> Tensor:
    """Step through sequences: (batch, length, channels) -> the same shape."""
    state, outputs = recurrence.initial_state(x.shape[0]), []
    for position in x.unbind(dim=1):
        output, state = recurrence.step(position, state)
        outputs.append(output)
    return torch.stack(outputs, dim=1)


class LargestTensor(TorchDispatchMode):
    """Notes the largest tensor that any operation makes, in numbers."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(part, Tensor) and part.untyped_storage().size() > 0:
                stored = part.untyped_storage().nbytes() // part.element_size()
                self.numel = max(self.numel, stored)
        return result
