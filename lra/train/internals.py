"""What happens inside a model in a training step, for the diagnosis of unstable training."""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from lra.classifier.block import Block, Residual
from lra.classifier.classifier import Classifier
from lra.classifier.norms import BatchNorm
from lra.models.layers.long_convolution import LongConvolution
from lra.models.ops.toeplitz import LagKernel


class Internals:
    """The numbers of the last step that was watched.

    Names are those of the model's modules with one of these words:
        activation: the largest absolute value that a block returns.
        gradient: norm of the gradient of a block's parameters, after clipping.
        parameters: norm of the parameters of a block's mixer.
        kernel: norm of a generated kernel over all lags and channels.
        variance_min, variance_max: of the input of a norm. For batch norm, extremes over channels
            of the variance over a batch's positions; for other norms, extremes over positions of
            the variance over channels.
        running_variance_min, running_variance_max: extremes over channels after the step.
        ratio_min, ratio_max: extremes over channels of the batch's variance over the running one
            before the step. Evaluation uses the running one, so it is accurate for ratios near 1.
        outlier_max: the largest share of a single position in the variance of a channel.
    """

    def __init__(self) -> None:
        self._measured: dict[str, list[Tensor]] = {}

    @contextmanager
    def watch(self, model: Classifier) -> Iterator[None]:
        """Measure the step that is made in this context; it computes the same numbers."""
        self._measured = {}
        with ExitStack() as hooks:
            for name, block in named_blocks(model):
                hook = block.register_forward_hook(functools.partial(self._see_output, name))
                hooks.callback(hook.remove)
            for name, norm in named_norms(model):
                hook = norm.register_forward_pre_hook(functools.partial(self._see_input, name))
                hooks.callback(hook.remove)
            for name, module in model.named_modules():
                if isinstance(module, LongConvolution):
                    module.generate = functools.partial(self._generate, name, module.generate)
                    hooks.callback(delattr, module, "generate")
            yield
        for name, block in named_blocks(model):
            groups = {
                f"{name}.gradient": [p.grad for p in block.parameters() if p.grad is not None],
                f"{name}.mixer.parameters": [*block.mixer.parameters()],
            }
            for group, tensors in groups.items():
                if tensors:  # some mixers have no parameters
                    self._take(group, norm_of(tensors))
        for name, norm in named_norms(model):
            if isinstance(norm, BatchNorm) and norm.running_var is not None:
                self._take_extremes(f"{name}.running_variance", norm.running_var)

    def read(self) -> dict[str, float]:
        """Return the numbers by name, to four digits, which waits for a GPU."""
        values = {name: torch.stack(tensors) for name, tensors in self._measured.items()}
        kept = [v.min() if name.endswith("_min") else v.max() for name, v in values.items()]
        numbers = torch.stack(kept).tolist()
        return {name: float(f"{n:.4g}") for name, n in zip(values, numbers, strict=True)}

    def _take(self, name: str, number: Tensor) -> None:
        self._measured.setdefault(name, []).append(number.detach().clone())

    def _take_extremes(self, name: str, values: Tensor) -> None:
        self._take(f"{name}_min", values.min())
        self._take(f"{name}_max", values.max())

    def _see_output(self, name: str, block: nn.Module, inputs: object, output: Tensor) -> None:
        self._take(f"{name}.activation", output.detach().abs().max().float())

    def _see_input(self, name: str, norm: nn.Module, inputs: tuple[Tensor]) -> None:
        x = inputs[0].detach().float()
        if not isinstance(norm, BatchNorm):
            self._take_extremes(f"{name}.variance", x.var(dim=-1, correction=0))
            return
        squares, running = (x - x.mean(dim=0)).square(), norm.running_var
        variance = squares.mean(dim=0)
        self._take_extremes(f"{name}.variance", variance)
        share = squares.amax(dim=0) / (len(x) * variance).clamp_min(1e-30)
        self._take(f"{name}.outlier_max", share.max())
        if running is not None:
            self._take_extremes(f"{name}.ratio", (variance + norm.eps) / (running + norm.eps))

    def _generate(self, name: str, generate: Callable[[int], LagKernel], length: int) -> LagKernel:
        kernel = generate(length)
        self._take(f"{name}.kernel", norm_of([kernel.coefficients]))
        return kernel


def named_blocks(model: Classifier) -> list[tuple[str, Block]]:
    """List the blocks of a model with their names."""
    return [(f"blocks.{number}", block) for number, block in enumerate(model.blocks)]


def named_norms(model: Classifier) -> list[tuple[str, nn.Module]]:
    """List the norms around sublayers, and the last one, with their names."""
    owners = [
        (f"{name}.norm", m.norm) for name, m in model.named_modules() if isinstance(m, Residual)
    ]
    return owners if model.norm is None else [*owners, ("norm", model.norm)]


def norm_of(tensors: Iterable[Tensor]) -> Tensor:
    """Return the Euclidean norm of all entries of some tensors together: ()."""
    norms = [torch.linalg.vector_norm(tensor.detach()).float() for tensor in tensors]
    return torch.linalg.vector_norm(torch.stack(norms))
