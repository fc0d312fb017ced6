"""Initialization of parameters by the distributions in `model.starts`."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import torch
from torch import nn

from lra.config.schema import RunConfig
from lra.runtime.errors import UserError
from models.initial_values import Fan, parse_initial_distribution


def compute_fans(model: nn.Module) -> dict[str, Fan]:
    """Return the fan of each parameter by its name. A bias has the fan of its module's weight.

    A parameter that does not belong to a linear map or an embedding has the fan (0, 0).
    """
    found: dict[str, Fan] = {}
    for path, module in model.named_modules():
        weight = module.weight if isinstance(module, (nn.Linear, nn.Embedding)) else None
        fan = Fan(0, 0) if weight is None else Fan(*reversed(weight.shape))
        if isinstance(module, nn.Embedding):
            fan = Fan(fan.outputs, fan.inputs)
        for name, _ in module.named_parameters(prefix=path, recurse=False):
            found[name] = fan
    return found


def match_patterns(name: str, patterns: Iterable[str]) -> list[str]:
    """Return the patterns that match a name, by the rules of a shell."""
    return [pattern for pattern in patterns if fnmatchcase(name, pattern)]


@torch.no_grad()
def initialize_parameters(model: nn.Module, config: RunConfig) -> None:
    """Draw the parameters that `model.starts` names.

    Patterns of a settings file may match nothing: a model may lack the hidden layer of a head.

    Raises: UserError for two patterns that match one parameter, because settings have no order;
        for a pattern of a flag that matches none; and for a distribution that needs the size of a
        linear map, if the parameter belongs to none.
    """
    starts = config.model.starts
    fan_of = compute_fans(model) if starts else {}
    idle = dict.fromkeys(starts)
    for name, parameter in model.named_parameters() if starts else ():
        patterns = match_patterns(name, starts)
        if len(patterns) > 1:
            both = " and ".join(patterns[:2])
            raise UserError(f"model.starts: {both} both match {name}; remove one")
        for pattern in patterns:
            idle.pop(pattern, None)
            try:
                start = parse_initial_distribution(starts[pattern])(fan_of[name])
            except ZeroDivisionError:
                raise UserError(
                    f"model.starts: distribution {starts[pattern]} needs the size of a linear map, "
                    f"and {name} belongs to none; use normal with a deviation"
                ) from None
            start.draw(parameter)
    if idle and "model.starts" in config.changed:
        names = ", ".join([*fan_of][:3])
        raise UserError(
            f"model.starts: {next(iter(idle))} matches no parameter; expected patterns of names "
            f"like {names}"
        )
