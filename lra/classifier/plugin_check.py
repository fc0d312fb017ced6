"""Trying a user's mixer on a few numbers before anything is trained with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from lra.config.mixers import MixerSource
from lra.runtime.errors import UserError
from models.base import Mixer, begin_step

LENGTHS = (5, 83)
"""Positions of the sequences that a plug-in is tried on, if it is for sequences as long."""


def check_plug_in(
    source: MixerSource,
    mixer: nn.Module,
    dim: int,
    max_length: int,
    *,
    causal: bool,
    grid: tuple[int, int] | None,
) -> None:
    """Hold a plug-in to what registered mixers are tested for; of those, say nothing.

    Args:
        mixer: a fresh one; it is left in evaluation.
        dim: its channels.
        max_length: positions of the longest sequence that it is for.
        grid: (height, width) of its input, which then has no padding.
    Raises: UserError for weights or learning rates that cannot be trained, anything that it raises
        in training or evaluation, a result of another shape or type than x or that is not finite,
        a write to x or the mask, padding that reaches real positions, a causal context that is not
        met, and weights that change their shapes.
    """
    if source.code is None:
        return
    with source.faults_named("it failed on a trial"):
        for _, attempt in Trial(source, mixer).attempts(dim, max_length, causal=causal, grid=grid):
            attempt()


@dataclass(frozen=True)
class Trial:
    """A plug-in's mixer, and where it is from."""

    source: MixerSource
    mixer: nn.Module

    def attempts(
        self, dim: int, max_length: int, *, causal: bool, grid: tuple[int, int] | None
    ) -> Iterator[tuple[str, Callable[[], None]]]:
        """List what is tried, each by its name; arguments as for `check_plug_in`.

        One is to be carried out before the next is asked for.
        """
        yield "its weights can be trained and saved", self.check_weights
        shapes = self.shapes()
        lengths = [min(n, max_length) for n in LENGTHS] if grid is None else [grid[0] * grid[1]]
        for length in dict.fromkeys(lengths):
            x = torch.randn(2, length, dim)
            mask = torch.ones(2, length, dtype=torch.bool)
            mask[1, length // 2 + 1 :] = False
            at = f"{length} positions"
            for given in (None,) if grid is not None else (mask, None):
                how = "without a mask" if given is None else "with a mask"
                yield f"forward and back, {at}, {how}", partial(self.train, x, given)
            for training in (True, False):
                mode = "training" if training else "evaluation"
                self.mixer.train(training)
                if grid is None:
                    name = f"padding reaches no real position in {mode}, {at}"
                    yield name, partial(self.check_padding, x, mask)
                if causal:
                    name = f"no position sees a later one in {mode}, {at}"
                    yield name, partial(self.check_causality, x)
        yield "its weights keep their shapes", partial(self.check_shapes, shapes)

    def fault(self, text: str) -> UserError:
        """Describe a fault of the plug-in."""
        return UserError(f"{self.source.origin}: {text}")

    def check_weights(self) -> None:
        """Refuse weights that cannot be trained or saved."""
        if "_parameters" not in vars(self.mixer):
            raise self.fault("its constructor does not call super().__init__()")
        for name, parameter in self.mixer.named_parameters():
            if isinstance(parameter, UninitializedParameter):
                raise self.fault(f"parameter {name} has no size yet; give it one when it is made")
            if not parameter.is_floating_point():
                raise self.fault(
                    f"parameter {name} is {parameter.dtype}, expected real numbers; complex ones "
                    f"can be kept as pairs (torch.view_as_real)"
                )
        for name, weight in self.mixer.state_dict().items():
            if not isinstance(weight, Tensor) or weight.layout is not torch.strided:
                raise self.fault(f"its state_dict holds {_kind(weight)}, {name}, expected a tensor")
        if not isinstance(self.mixer, Mixer) and "learning_rates" in dir(type(self.mixer)):
            raise self.fault("learning_rates is read from subclasses of models.base.Mixer alone")

    def shapes(self) -> dict[str, torch.Size]:
        """Return the shapes of all weights by their names."""
        weights = [*self.mixer.named_parameters(), *self.mixer.state_dict().items()]
        return {name: weight.shape for name, weight in weights}

    def check_shapes(self, before: dict[str, torch.Size]) -> None:
        """Refuse weights that were made, removed or replaced by others since."""
        if changed := before.items() ^ self.shapes().items():
            names = ", ".join(sorted({name for name, _ in changed}))
            raise self.fault(f"forward adds or changes weights ({names}); make them at the start")

    def train(self, x: Tensor, mask: Tensor | None) -> None:
        """Go forward and back as a block does, x being a view that must not be overwritten."""
        try:
            inspect.signature(self.mixer.forward).bind(x, mask)
        except TypeError as error:
            raise self.fault(f"forward(x, mask) is not possible: {error}") from None
        with self.source.faults_named(f"forward with mask {_mask(mask)}"):
            begin_step(self.mixer)
            (view,) = (1 * x.clone().requires_grad_()).split([len(x)])
            y = self.apply(view, mask)
            if y.requires_grad:
                y.sum().backward()
                self.mixer.zero_grad(set_to_none=True)

    def call(self, x: Tensor, mask: Tensor | None) -> object:
        """Call the mixer, which must leave x and a copy of the mask as they are."""
        before, given = x.detach().clone(), None if mask is None else mask.clone()
        y = self.mixer(x, given)
        if not torch.equal(x, before):
            raise self.fault(
                f"forward writes to its input x {_kind(x)}, which other parts of the model read; "
                f"change a copy instead, x = x.masked_fill(~mask[..., None], 0) for instance"
            )
        if mask is not None and given is not None and not torch.equal(given, mask):
            raise self.fault(
                f"forward writes to its mask {_mask(mask)}, by which the model tells padding from "
                f"real positions; change a copy instead, mask.clone()"
            )
        return y

    def apply(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Apply the mixer and check that its result is like x, and finite."""
        y = self.call(x, mask)
        like = (x.shape, x.dtype, x.layout)
        if not isinstance(y, Tensor) or (y.shape, y.dtype, y.layout) != like:
            raise self.fault(
                f"forward returned {_kind(y)} for x {_kind(x)} and mask {_mask(mask)}; expected "
                f"the shape and type of x"
            )
        if not y.isfinite().all():
            raise self.fault(
                f"forward returned numbers that are not finite for x {_kind(x)} of mean 0 and "
                f"deviation 1, and mask {_mask(mask)}"
            )
        return y

    def check_padding(self, x: Tensor, mask: Tensor) -> None:
        """Compare results before and after a change at padded positions."""
        changed = torch.where(mask[..., None], x, 10 * torch.randn_like(x))
        if self._differ((x, changed), mask, mask):
            mode = "training" if self.mixer.training else "evaluation"
            raise self.fault(
                f"what stands at padded positions (mask False) changes real ones in {mode}; set it "
                f"to 0 at the input of whatever joins positions"
            )

    def check_causality(self, x: Tensor) -> None:
        """Compare results before and after a change at the last position."""
        changed = x.clone()
        changed[:, -1] += 1
        earlier = torch.ones(x.shape[:2], dtype=torch.bool)
        earlier[:, -1] = False
        if self._differ((x, changed), None, earlier):
            raise self.fault(
                "model.causal is true, and the last position changes earlier ones; heed "
                "context.causal, or raise ValueError where it is true"
            )

    @torch.no_grad()
    def _differ(self, inputs: tuple[Tensor, Tensor], mask: Tensor | None, where: Tensor) -> bool:
        """Whether two inputs give different results somewhere, with the same random numbers."""
        results: list[Tensor] = []
        for x in inputs:
            with torch.random.fork_rng(devices=[]):
                results.append(self.apply(x.clone(), mask)[where])
        return not torch.allclose(results[0], results[1], 1e-3, 1e-4)


def _mask(mask: Tensor | None) -> str:
    return "None" if mask is None else f"{tuple(mask.shape)} bool"


def _kind(value: object) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    kind = f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return kind if value.layout is torch.strided else f"{kind} {value.layout}"
