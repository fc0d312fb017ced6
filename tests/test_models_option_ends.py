"""Real-valued options and numbers of iterations work at both ends of the range that they declare.

Sizes are not tried, as they end where memory does, nor are learning rates, which no mixer computes
with.
"""

import math
from typing import Any

import pytest
import torch

from conftest import EVERY_MIXER, build_mixer
from lra.config.components import options_model
from lra.models.base import begin_step


def find_ends(schema: dict[str, Any]) -> tuple[float, float]:
    """Find the lowest and the highest value of an option, from its JSON schema."""
    step = 1 if schema["type"] == "integer" else None
    lowest, highest = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        least = schema["exclusiveMinimum"]
        lowest = least + step if step else math.nextafter(least, math.inf)
    if "exclusiveMaximum" in schema:
        highest = math.nextafter(schema["exclusiveMaximum"], -math.inf)
    assert lowest is not None and highest is not None, f"{schema} has no end"
    return lowest, highest


def list_ranges() -> list[tuple[str, str, float]]:
    """List mixers, their options and the values to try."""
    found: list[tuple[str, str, float]] = []
    for mixer, cls in sorted(EVERY_MIXER.items()):
        properties = options_model(cls).model_json_schema().get("properties", {})
        for option, schema in properties.items():
            for kind in schema.get("anyOf", [schema]):
                is_real = kind.get("type") == "number" and not option.endswith("_lr")
                if is_real or option == "iterations":
                    found += [(mixer, option, end) for end in find_ends(kind)]
    return found


@pytest.mark.parametrize(("mixer", "option", "value"), list_ranges())
def test_results_and_gradients_are_finite_at_both_ends(
    mixer: str, option: str, value: float
) -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {option: value}
    try:
        built = build_mixer(mixer, randomized=False, **options)
    except ValueError as refusal:  # it contradicts the default of another option
        assert option in str(refusal)
        return
    begin_step(built)
    x = torch.randn(2, 33, 8, requires_grad=True)
    result = built(x)
    result.square().sum().backward()
    found = [result, x.grad, *(p.grad for p in built.parameters())]
    assert all(part is None or part.isfinite().all() for part in found)
