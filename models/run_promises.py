"""Checks of what every mixer guarantees that a run needs, one function per guarantee.

Each function takes an input of the caller's choice: x (batch, length, dim) and mask (batch, length)
as in `Mixer.forward`. It raises BrokenPromise if the mixer does not keep the guarantee. Exceptions
of the mixer itself are passed on.
"""

import contextlib
import copy
import inspect
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from lra.models.base import begin_step

TOLERANCES = {torch.float32: (1e-3, 1e-4), torch.float64: (1e-9, 1e-9)}
"""Relative and absolute tolerance of comparisons, by the type of x."""


class BrokenPromise(Exception):
    """A guarantee that a mixer does not keep; the message says what it does and how to fix it."""


def check_weights(mixer: nn.Module) -> None:
    """Check that weights can be trained and saved: real parameters and plain tensors."""
    if "_parameters" not in vars(mixer):
        raise BrokenPromise("its constructor does not call super().__init__()")
    for name, parameter in mixer.named_parameters():
        if isinstance(parameter, UninitializedParameter):
            raise BrokenPromise(f"parameter {name} has no size yet; give it one when it is made")
        if not parameter.is_floating_point():
            raise BrokenPromise(
                f"parameter {name} is {parameter.dtype}, expected real numbers; complex ones can "
                f"be kept as pairs (torch.view_as_real)"
            )
    for name, weight in mixer.state_dict().items():
        if not isinstance(weight, Tensor) or weight.layout is not torch.strided:
            raise BrokenPromise(
                f"its state_dict holds {describe(weight)}, {name}, expected a tensor"
            )


def weight_shapes(mixer: nn.Module) -> dict[str, torch.Size]:
    """Return the shapes of all weights by name."""
    weights = [*mixer.named_parameters(), *mixer.state_dict().items()]
    return {name: weight.shape for name, weight in weights}


def check_weight_shapes(mixer: nn.Module, before: dict[str, torch.Size]) -> None:
    """Check that no weight was added, removed or resized since `weight_shapes` was called."""
    if changed := before.items() ^ weight_shapes(mixer).items():
        names = ", ".join(sorted({name for name, _ in changed}))
        raise BrokenPromise(f"forward adds or changes weights ({names}); make them at the start")


def check_output(mixer: nn.Module, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Check that the result is finite, has x's shape and type, and leaves x and mask unchanged.

    Where x itself is not finite, only the results at real positions have to be.
    """
    return _apply(mixer, x.clone(), mask)


def take_training_step(mixer: nn.Module, x: Tensor, mask: Tensor | None = None) -> Tensor | None:
    """Check that a training step raises nothing if x is a view, as it is in a block.

    Returns: the gradient of x, None if none reaches it; parameters keep theirs.
    """
    try:
        inspect.signature(mixer.forward).bind(x, mask)
    except TypeError as error:
        raise BrokenPromise(f"forward(x, mask) is not possible: {error}") from None
    begin_step(mixer)
    leaf = x.clone().requires_grad_()
    (view,) = (1 * leaf).split([len(x)])
    y = _apply(mixer, view, mask)
    if y.requires_grad:
        y.square().sum().backward()
    return leaf.grad


def check_padding(
    mixer: nn.Module, x: Tensor, mask: Tensor, contents: Iterable[Tensor | float]
) -> None:
    """Check that the content of padded positions changes neither results nor gradients.

    These are the results at real positions, and their gradients to x and to the parameters.
    """
    expected = _pass_both_ways(mixer, x, mask)
    for name, value in expected.items():
        if not value.isfinite().all():
            raise BrokenPromise(f"{name} is not finite")
    for content in contents:
        actual = _pass_both_ways(mixer, torch.where(mask[..., None], x, content), mask)
        for name, value in expected.items():
            if difference := describe_difference(actual[name], value, TOLERANCES[x.dtype]):
                mode = "training" if mixer.training else "evaluation"
                raise _find_fault(mixer, x,
                    f"what stands at padded positions (mask False) changes {name} in {mode} "
                    f"{difference}; set x to 0 there first, x.masked_fill(~mask[..., None], 0), "
                    f"and again what joins positions, as a bias changes zeros"
                )  # fmt: skip


def _pass_both_ways(mixer: nn.Module, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Return the results at real positions and the gradients of a weighted sum of them, by name."""
    mixer = copy_mixer(mixer)
    leaf = x.clone().requires_grad_()
    inputs = {"x": leaf} | {name: p for name, p in mixer.named_parameters() if p.requires_grad}
    weights = torch.cos(torch.arange(x.numel(), dtype=x.dtype)).view_as(x)[mask]
    results = _apply_seeded(mixer, leaf, mask)[mask]
    values = {"real ones": results.detach()}
    if results.requires_grad:
        gradients = torch.autograd.grad(
            results, [*inputs.values()], weights, allow_unused=True, materialize_grads=True
        )
        values |= {f"the gradient of {n}": g for n, g in zip(inputs, gradients, strict=True)}
    return values


@torch.no_grad()
def check_rows(mixer: nn.Module, x: Tensor, mask: Tensor | None = None) -> None:
    """Check that a sequence by itself gives the same as the sequence padded in a batch."""
    together = repeatable(mixer, x, mask)
    for k, row in enumerate(x):
        real = len(row) if mask is None else int(mask[k].sum())
        alone = repeatable(mixer, row[None, :real])[0]
        if difference := describe_difference(together[k, :real], alone):
            raise _find_fault(mixer, x,
                f"the results at {real} positions differ {difference} if other sequences and "
                f"{len(row) - real} padded positions come with them; use mask.sum(dim=1) or "
                f"context.max_length, not the length of x, and let sums, recurrences and "
                f"transforms over positions keep padding out"
            )  # fmt: skip


@torch.no_grad()
def check_less_padding(mixer: nn.Module, x: Tensor, mask: Tensor) -> None:
    """Check that the shorter half of sequences gives the same with less padding.

    In training, results may depend on the other sequences of a batch, as with a batch norm.
    """
    some = mask.sum(dim=1) <= (mask.shape[1] + 1) // 2
    width = int(mask[some].sum(dim=1).max())
    expected, real = repeatable(mixer, x[some], mask[some])[:, :width], mask[some, :width]
    actual = repeatable(mixer, x[some, :width], real)
    if difference := describe_difference(actual[real], expected[real]):
        padded = mask.shape[1] - width
        raise _find_fault(mixer, x,
            f"the results of a batch differ {difference} if {padded} padded positions come with "
            f"it; let norms and sums over positions keep padding out, x[mask]"
        )  # fmt: skip


@torch.no_grad()
def check_causality(
    mixer: nn.Module, x: Tensor, cuts: Iterable[int], mask: Tensor | None = None
) -> None:
    """Check that positions before a cut, which are all real, do not depend on those after it."""
    expected = repeatable(mixer, x, mask)
    for cut in cuts:
        changed = x.clone()
        changed[:, cut:] = torch.randn_like(changed[:, cut:])
        actual = repeatable(mixer, changed, mask)
        if difference := describe_difference(actual[:, :cut], expected[:, :cut]):
            count = x.shape[1] - cut
            later = "position changes" if count == 1 else f"{count} positions change"
            raise _find_fault(mixer, x,
                f"model.causal is true, and the last {later} earlier ones {difference}; heed "
                f"context.causal, or raise ValueError where it is true"
            )  # fmt: skip


def _apply(mixer: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
    """See `check_output`; x is handed on as it is."""
    before, mask_copy = x.detach().clone(), None if mask is None else mask.clone()
    y = mixer(x, mask_copy)
    if not torch.allclose(x, before, 0.0, 0.0, equal_nan=True):
        raise BrokenPromise(
            f"forward writes to its input x {describe(x)}, which other parts of the model read; "
            f"change a copy instead, x = x.masked_fill(~mask[..., None], 0) for instance"
        )
    if mask is not None and mask_copy is not None and not torch.equal(mask_copy, mask):
        raise BrokenPromise(
            f"forward writes to its mask {describe(mask)}, by which the model tells padding "
            f"from real positions; change a copy instead, mask.clone()"
        )
    expected = (x.shape, x.dtype, x.layout)
    if not isinstance(y, Tensor) or (y.shape, y.dtype, y.layout) != expected:
        raise BrokenPromise(
            f"forward returned {describe(y)} for x {describe(x)} and mask {describe(mask)}; "
            f"expected the shape and type of x"
        )
    real = y if mask is None or x.isfinite().all() else y[mask]
    if not real.isfinite().all():
        raise BrokenPromise(
            f"forward returned numbers that are not finite for x {describe(x)}, at most "
            f"{x[x.isfinite()].abs().max().item():.2g} in size, and mask {describe(mask)}"
        )
    return y


def copy_mixer(mixer: nn.Module) -> nn.Module:
    """Copy a mixer, so that passes change no buffer, counter or generator of it, if that works."""
    values = [value for module in mixer.modules() for value in vars(module).values()]
    computed = [tensor for tensor in values if isinstance(tensor, Tensor) and not tensor.is_leaf]
    memo = {id(tensor): tensor.detach().clone() for tensor in computed}  # which torch does not copy
    with contextlib.suppress(Exception):
        return copy.deepcopy(mixer, memo)
    return mixer


def repeatable(mixer: nn.Module, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Apply a copy of a mixer with the same random numbers at each call; see `check_output`."""
    return _apply_seeded(copy_mixer(mixer), x, mask)


def _find_fault(mixer: nn.Module, x: Tensor, text: str) -> BrokenPromise:
    """Return the fault with a text, unless two passes over the same input differ already."""
    if difference := describe_difference(repeatable(mixer, x), repeatable(mixer, x)):
        text = (
            f"two passes over the same input differ {difference}: it draws random numbers of "
            f"another library, or changes a state that copy.deepcopy cannot copy; use random "
            f"numbers of torch, and buffers"
        )
    return BrokenPromise(text)


def _apply_seeded(mixer: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return check_output(mixer, x, mask)


def describe_difference(
    actual: Tensor, expected: Tensor, tolerance: tuple[float, float] | None = None
) -> str:
    """Describe how far results differ; nothing if they count as equal.

    The absolute tolerance is for results of size 1, and grows with larger ones.
    """
    relative, absolute = tolerance or TOLERANCES[expected.dtype]
    size = max(1.0, expected.square().mean().sqrt().item())
    if torch.allclose(actual, expected, relative, absolute * size):
        return ""
    return f"by up to {(actual - expected).abs().max().item():.2g}"


def describe(value: object) -> str:
    """Describe what a mixer was given or returned, in errors."""
    if not isinstance(value, Tensor):
        return "None" if value is None else f"a {type(value).__name__}"
    text = f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return text if value.layout is torch.strided else f"{text} {value.layout}"
