"""Checks of what the suite's mixers guarantee beyond a run's needs; see `lra.models.run_promises`.

The tests use them, and `lra.check`.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lra.models.base import GatedRecurrence, Mixer, RecurrentMixer, State
from lra.models.run_promises import (
    BrokenPromise,
    check_output,
    describe_difference,
    repeatable,
    take_training_step,
)

EXACT = (0.0, 0.0)
STEPWISE = (1e-7, 1e-7)
"""Relative and absolute difference up to which a recurrence equals a pass over all positions."""
SEEN = 1e-9
"""Difference from which the change of one position is seen at another one."""


def check_gradients(mixer: nn.Module, x: Tensor) -> set[str]:
    """Check that a finite gradient reaches x and every trained parameter.

    Returns: names of the parameters whose gradient is not 0 everywhere.
    """
    mixer.zero_grad(set_to_none=True)
    of_x = take_training_step(mixer, x)
    gradients = {name: p.grad for name, p in mixer.named_parameters() if p.requires_grad}
    for name, gradient in {**gradients, "x": of_x}.items():
        if gradient is None:
            raise BrokenPromise(f"none reaches {name}; compute the result from it, or remove it")
        if not gradient.isfinite().all():
            raise BrokenPromise(f"that of {name} is not finite")
    return {name for name, gradient in gradients.items() if gradient is not None and gradient.any()}


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
    else:
        if not takes_longer:
            raise BrokenPromise(
                f"takes_longer is False, but forward mixes {x.shape[1]} positions, which is more "
                f"than max_length; raise ValueError, or remove takes_longer"
            )


@torch.no_grad()
def check_reach(mixer: nn.Module, x: Tensor, *, causal: bool) -> None:
    """A change at one position is seen where `reach` and `looks_ahead` say, and nowhere else.

    The mixer is in evaluation; x is one sequence of a few positions in double precision.
    """
    length = x.shape[1]
    position = length // 3
    changed = x.clone()
    changed[0, position] += 1
    moved = (repeatable(mixer, changed) - repeatable(mixer, x))[0].abs().amax(dim=-1)
    seen = (moved > SEEN).nonzero().flatten().tolist()
    reach = getattr(mixer, "reach", None)
    behind, ahead = reach or (length, 0 if causal else length)
    within = [i for i in range(length) if position - ahead <= i <= position + behind]
    # Without a fixed reach the input may determine which of the others it depends on.
    is_right = {position} <= {*seen} <= {*within} if reach is None else seen == within
    if not is_right:
        raise BrokenPromise(
            f"a change at position {position} of {length} changes the results at {seen}, and "
            f"`reach` is {reach}; set reach to (positions behind, positions ahead), or to None if "
            f"it has no limit"
        )
    if causal or reach == (0, 0) or not isinstance(mixer, Mixer):
        return
    sees_later = bool(seen) and seen[0] < position
    if mixer.looks_ahead != sees_later:
        raise BrokenPromise(
            f"looks_ahead is {mixer.looks_ahead}, but whether positions depend on later ones is "
            f"{sees_later}; set it to that"
        )


@torch.no_grad()
def check_recurrence(mixer: RecurrentMixer, x: Tensor, counts: Sequence[int] = ()) -> None:
    """One position at a time gives the same as `forward`, and so do a prefill and a step after it.

    The mixer is causal and in evaluation, and x in double precision. A prefill takes all positions
    but the last, and each number of counts.
    """
    expected = repeatable(mixer, x)
    recurrence = mixer.recurrence(x.shape[1])
    state: State = recurrence.initial_state(len(x))
    rows: list[Tensor] = []
    for row in x.unbind(dim=1):
        y, state = recurrence.step(row, state)
        rows.append(y)
    if difference := describe_difference(torch.stack(rows, dim=1), expected, STEPWISE):
        raise BrokenPromise(f"its recurrence differs from forward {difference}")
    for count in (*counts, x.shape[1] - 1):
        prefilled, state = recurrence.prefill(x[:, :count])
        last, _ = recurrence.step(x[:, count], state)
        if isinstance(recurrence, GatedRecurrence):  # whose prefill returns values and gates
            prefilled = expected[:, :count]
        prefilled = torch.cat([prefilled, last[:, None]], dim=1)
        if difference := describe_difference(prefilled, expected[:, : count + 1], STEPWISE):
            raise BrokenPromise(
                f"its prefill of {count} positions, or the step after it, differs from forward "
                f"{difference}"
            )


@torch.no_grad()
def check_determinism(mixer: nn.Module, x: Tensor) -> None:
    """Check that the same input gives bit-identical results in evaluation mode."""
    if difference := describe_difference(check_output(mixer, x), check_output(mixer, x), EXACT):
        raise BrokenPromise(f"the second result differs ({difference})")


@torch.no_grad()
def check_saved_weights(mixer: nn.Module, other: nn.Module, x: Tensor) -> None:
    """Check that saved weights in another mixer of the same options give bit-identical results."""
    other.load_state_dict(mixer.state_dict())
    if difference := describe_difference(check_output(mixer, x), check_output(other, x), EXACT):
        raise BrokenPromise(f"a second one with the same weights differs ({difference})")


@torch.no_grad()
def check_bf16(mixer: nn.Module, x: Tensor, limit: float = math.inf) -> None:
    """Check that under bf16 autocast the result is finite and close to single precision.

    The limit is of the norm of their difference, relative to the norm of the latter.
    """
    exact = check_output(mixer, x)
    with torch.autocast("cpu", torch.bfloat16):
        rough = mixer(x.clone(), None)
    if not isinstance(rough, Tensor) or not rough.isfinite().all():
        raise BrokenPromise("its result holds numbers that are not finite")
    difference, norm = (rough.float() - exact).norm().item(), exact.norm().item()
    if difference >= limit * norm:
        raise BrokenPromise(
            f"its result differs by {difference:.2g} from that of single precision, whose norm is "
            f"{norm:.2g}; expected less than {limit:.0%} of it"
        )
