"""Checks of what every mixer guarantees, one function per guarantee.

Each function takes an input of the caller's choice: x (batch, length, dim) and mask (batch, length)
as in `Mixer.forward`. It raises BrokenPromise if the mixer does not keep the guarantee. Exceptions
of the mixer itself are passed on.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from models.base import Mixer, RecurrentMixer, State, begin_step

TOLERANCES = {torch.float32: (1e-3, 1e-4), torch.float64: (1e-9, 1e-9)}
"""Relative and absolute tolerance of comparisons, by the type of x."""
EXACT = (0.0, 0.0)
STEPWISE = (1e-7, 1e-7)
"""Relative and absolute difference up to which a recurrence equals a pass over all positions."""
SEEN = 1e-9
"""Difference from which the change of one position is seen at another one."""


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


def check_gradients(mixer: nn.Module, x: Tensor) -> set[str]:
    """Check that a finite gradient reaches x and every trained parameter.

    Returns: names of the parameters whose gradient is not 0 everywhere.
    """
    mixer.zero_grad(set_to_none=True)
    of_x = take_training_step(mixer, x)
    parameters = {name: p for name, p in mixer.named_parameters() if p.requires_grad}
    if missing := [name for name, parameter in parameters.items() if parameter.grad is None]:
        raise BrokenPromise(f"none reaches {', '.join(missing)}; use them, or remove them")
    if of_x is None:
        raise BrokenPromise("none reaches x; compute the result from it")
    gradients = {name: p.grad for name, p in parameters.items() if p.grad is not None}
    if wrong := [n for n, g in {"x": of_x, **gradients}.items() if not g.isfinite().all()]:
        raise BrokenPromise(f"those of {', '.join(wrong)} are not finite")
    return {name for name, gradient in gradients.items() if gradient.any()}


def check_every_gradient(mixer: nn.Module, batches: Tensor) -> None:
    """Every parameter has a gradient that is not 0 in some of batches, (batches, *shape of x)."""
    alive = {name for x in batches for name in check_gradients(mixer, x)}
    dead = [name for name, parameter in mixer.named_parameters() if name not in alive]
    if dead:
        raise BrokenPromise(f"that of {', '.join(dead)} is always 0; use them, or remove them")


def check_padding_gradient(mixer: nn.Module, x: Tensor, mask: Tensor) -> None:
    """No gradient of the results at real positions reaches padding, and one reaches x."""
    leaf = x.clone().requires_grad_()
    mixer(leaf, mask)[mask].square().sum().backward()
    if leaf.grad is None or not (leaf.grad[mask].abs().amin(dim=0) > 0).any():
        raise BrokenPromise("none reaches the real positions of x")
    if leaf.grad[~mask].any():
        raise BrokenPromise("padded positions (mask False) get one; set x to 0 there first")


def check_empty_batch(mixer: nn.Module, x: Tensor) -> None:
    """A batch without sequences, x (0, length, dim), is computed and trained on."""
    for mask in (None, torch.ones(x.shape[:2], dtype=torch.bool)):
        take_training_step(mixer, x, mask)


@torch.no_grad()
def check_padding(
    mixer: nn.Module, x: Tensor, mask: Tensor, contents: Iterable[Tensor | float]
) -> None:
    """Check that the content of padded positions does not change the results at real ones."""
    expected = _repeatable(mixer, x, mask)
    for content in contents:
        found = _repeatable(mixer, torch.where(mask[..., None], x, content), mask)
        if difference := _difference(found[mask], expected[mask]):
            mode = "training" if mixer.training else "evaluation"
            raise BrokenPromise(
                f"what stands at padded positions (mask False) changes real ones in {mode} "
                f"{difference}; set it to 0 at the input of whatever joins positions"
            )


@torch.no_grad()
def check_rows(mixer: nn.Module, x: Tensor, mask: Tensor | None = None) -> None:
    """Check that a sequence by itself gives the same as the sequence padded in a batch."""
    together = _repeatable(mixer, x, mask)
    for k, row in enumerate(x):
        real = len(row) if mask is None else int(mask[k].sum())
        alone = _repeatable(mixer, row[None, :real], None)[0]
        if not (difference := _difference(together[k, :real], alone)):
            continue
        if real == len(row):
            raise BrokenPromise(f"a sequence gives other numbers alone ({difference})")
        raise BrokenPromise(
            f"the results at {real} positions differ {difference} if {len(row) - real} padded ones "
            f"follow; use mask.sum(dim=1) or context.max_length, not the length of x, and let "
            f"sums, recurrences and transforms over positions keep padding out"
        )


@torch.no_grad()
def check_longer(mixer: nn.Module, x: Tensor) -> None:
    """Check that x, longer than max_length, is mixed or refused, as `takes_longer` says."""
    takes_longer = getattr(mixer, "takes_longer", True)
    try:
        check_output(mixer, x)
    except ValueError as error:
        if takes_longer:
            raise BrokenPromise(
                f"forward refuses sequences longer than max_length ({error}); set takes_longer to "
                f"False, so that nothing asks for them"
            ) from None
        return
    if not takes_longer:
        raise BrokenPromise(
            f"takes_longer is False, but forward mixes {x.shape[1]} positions, which is more than "
            f"max_length; raise ValueError, or remove takes_longer"
        )


@torch.no_grad()
def check_causality(
    mixer: nn.Module, x: Tensor, cuts: Iterable[int], mask: Tensor | None = None
) -> None:
    """Check that positions before a cut, which are all real, do not depend on those after it."""
    expected = _repeatable(mixer, x, mask)
    for cut in cuts:
        changed = x.clone()
        changed[:, cut:] = torch.randn_like(changed[:, cut:])
        found = _repeatable(mixer, changed, mask)
        if difference := _difference(found[:, :cut], expected[:, :cut]):
            count = x.shape[1] - cut
            later = "position changes" if count == 1 else f"{count} positions change"
            raise BrokenPromise(
                f"model.causal is true, and the last {later} earlier ones {difference}; heed "
                f"context.causal, or raise ValueError where it is true"
            )


@torch.no_grad()
def check_reach(mixer: nn.Module, x: Tensor, *, causal: bool) -> None:
    """A change at one position is seen where `reach` and `looks_ahead` say, and nowhere else.

    The mixer is in evaluation; x is one sequence of a few positions in double precision.
    """
    length = x.shape[1]
    place = length // 3
    changed = x.clone()
    changed[0, place] += 1
    moved = (_repeatable(mixer, changed, None) - _repeatable(mixer, x, None))[0].abs().amax(dim=-1)
    seen = (moved > SEEN).nonzero().flatten().tolist()
    reach = getattr(mixer, "reach", None)
    behind, ahead = reach or (length, 0 if causal else length)
    within = [i for i in range(length) if place - ahead <= i <= place + behind]
    is_fixed = getattr(mixer, "has_fixed_reach", True)
    if seen != within if is_fixed else not {place} <= {*seen} <= {*within}:
        raise BrokenPromise(
            f"a change at position {place} of {length} changes the results at {seen}, and `reach` "
            f"is {reach}; set reach to (positions behind, positions ahead), or to None if every "
            f"position reaches all"
        )
    if causal or reach == (0, 0) or not isinstance(mixer, Mixer):
        return
    sees_later = bool(seen) and seen[0] < place
    if mixer.looks_ahead != sees_later:
        verb = "depend" if sees_later else "do not depend"
        raise BrokenPromise(
            f"looks_ahead is {mixer.looks_ahead}, but positions {verb} on later ones; set it to "
            f"{sees_later}"
        )


@torch.no_grad()
def check_recurrence(mixer: RecurrentMixer, x: Tensor) -> None:
    """One position at a time gives the same as `forward`, and so does a prefill, if there is one.

    The mixer is causal and in evaluation, and x in double precision.
    """
    expected = _repeatable(mixer, x, None)
    recurrence = mixer.recurrence(x.shape[1])
    state: State = recurrence.initial_state(len(x))
    rows: list[Tensor] = []
    for row in x.unbind(dim=1):
        y, state = recurrence.step(row, state)
        rows.append(y)
    if difference := _difference(torch.stack(rows, dim=1), expected, STEPWISE):
        raise BrokenPromise(f"its recurrence differs from forward {difference}")
    # The result of a gated prefill is not that of forward; the state after it has to be.
    _, state = recurrence.prefill(x[:, :-1])
    last, _ = recurrence.step(x[:, -1], state)
    if difference := _difference(last, expected[:, -1], STEPWISE):
        raise BrokenPromise(f"a step after its prefill differs from forward {difference}")


@torch.no_grad()
def check_determinism(mixer: nn.Module, x: Tensor) -> None:
    """Check that the same input gives bit-identical results in evaluation mode."""
    if difference := _difference(check_output(mixer, x), check_output(mixer, x), EXACT):
        raise BrokenPromise(f"the second result differs ({difference})")


@torch.no_grad()
def check_saved_weights(mixer: nn.Module, other: nn.Module, x: Tensor) -> None:
    """Check that saved weights in another mixer of the same options give bit-identical results."""
    other.load_state_dict(mixer.state_dict())
    if difference := _difference(check_output(mixer, x), check_output(other, x), EXACT):
        raise BrokenPromise(f"a second one with the same weights differs ({difference})")


@torch.no_grad()
def check_bf16(mixer: nn.Module, x: Tensor, limit: float = math.inf) -> None:
    """Check that under bf16 autocast the result is finite and close to single precision.

    The limit is of the norm of their difference, relative to the norm of the latter.
    """
    exact = check_output(mixer, x)
    with torch.autocast("cpu", torch.bfloat16):
        rough = _call(mixer, x.clone(), None)
    if not isinstance(rough, Tensor) or not rough.isfinite().all():
        raise BrokenPromise("its result holds numbers that are not finite")
    difference, norm = (rough.float() - exact).norm().item(), exact.norm().item()
    if difference >= limit * norm:
        raise BrokenPromise(
            f"its result differs by {difference:.2g} from that of single precision, whose norm is "
            f"{norm:.2g}; expected less than {limit:.0%} of it"
        )


def _call(mixer: nn.Module, x: Tensor, mask: Tensor | None) -> object:
    """Call a mixer, which must leave x and a copy of the mask as they are."""
    before, given = x.detach().clone(), None if mask is None else mask.clone()
    y = mixer(x, given)
    if not torch.allclose(x, before, *EXACT, equal_nan=True):
        raise BrokenPromise(
            f"forward writes to its input x {describe(x)}, which other parts of the model read; "
            f"change a copy instead, x = x.masked_fill(~mask[..., None], 0) for instance"
        )
    if mask is not None and given is not None and not torch.equal(given, mask):
        raise BrokenPromise(
            f"forward writes to its mask {describe(mask)}, by which the model tells padding "
            f"from real positions; change a copy instead, mask.clone()"
        )
    return y


def _apply(mixer: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
    """See `check_output`; x is handed on as it is."""
    y = _call(mixer, x, mask)
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


def _repeatable(mixer: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
    """Apply a mixer with the same random numbers at each call."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return check_output(mixer, x, mask)


def _difference(
    found: Tensor, expected: Tensor, tolerance: tuple[float, float] | None = None
) -> str:
    """Describe how far results differ; nothing if they count as equal.

    The absolute tolerance is for results of size 1, and grows with larger ones.
    """
    relative, absolute = tolerance or TOLERANCES[expected.dtype]
    size = max(1.0, expected.square().mean().sqrt().item())
    if torch.allclose(found, expected, relative, absolute * size):
        return ""
    return f"by up to {(found - expected).abs().max().item():.2g}"


def describe(value: object) -> str:
    """Describe what a mixer was given or returned, in errors."""
    if not isinstance(value, Tensor):
        return "None" if value is None else f"a {type(value).__name__}"
    text = f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return text if value.layout is torch.strided else f"{text} {value.layout}"
