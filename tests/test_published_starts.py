"""How parameters start, measured, against the laws that released code starts them by."""

import fnmatch
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lra.classifier.classifier import Classifier, compute_fans
from lra.common.errors import UserError
from lra.config.settings_files import CONFIGS, STARTS, list_files
from lra.models.initial_values import (
    INITIAL_DISTRIBUTIONS,
    Distribution,
    Fan,
    parse_initial_distribution,
)
from requested import LRA_ALONE, resolve

MEASURES: Mapping[str, Distribution] = {
    **INITIAL_DISTRIBUTIONS,
    "moments": lambda x, fan, mean, spread: x.normal_(mean, spread),  # of what is drawn
    "values": lambda x, fan, mean, spread: x.normal_(mean, spread),  # of given values
    # Of given values, in a basis that a library chooses.
    "root_mean_square": lambda x, fan, size: x.normal_(0, size),
}
"""The laws of settings files: those that settings know, and the moments of others."""
Laws = dict[str, dict[str, str]]
"""Laws by pattern, and by task or "all"."""
OF_NORMS: Laws = {
    "*norm*.weight": {"all": "ones"},
    "*norm*.bias": {"all": "zeros"},
    "*norm*.scale": {"all": "ones"},
}
"""Every library starts norms so, and no source states it."""
Place = tuple[str | None, str | None]
"""A preset and a protocol, whose settings are in one place of a file."""


def stated_laws(mixer: str, configs: Path = CONFIGS) -> dict[Place, Laws]:
    """Read how released parameters start, by the place in the file of a mixer."""
    found: dict[Place, Laws] = {}
    for entry in list_files("mixers", configs)[mixer].entries:
        if entry.section == STARTS:
            laws = found.setdefault((entry.preset, entry.protocol), {})
            laws.setdefault(entry.key, {})[entry.task] = str(entry.value)
    return found


MODELS = [(mixer, place) for mixer in list_files("mixers") for place in stated_laws(mixer)]
"""Mixers, and the places of their files that state how released parameters start."""


def shallow(mixer: str, task: str, *overrides: str, place: Place = (None, None)) -> Classifier:
    """Build a model of one block, with the settings of a place of its file."""
    preset, protocol = place[0] or "paper", place[1] or ("lra" if mixer in LRA_ALONE else "s4")
    config = resolve(
        task, mixer, preset=preset, protocol=protocol, overrides=["model.depth=1", *overrides]
    )
    torch.manual_seed(0)
    return Classifier(config, config.build_task().info)


def moments(values: Tensor, law: str) -> tuple[float, float]:
    """Measure mean and deviation, or the root mean square of a law that states no mean."""
    if law.startswith("root_mean_square"):
        return 0.0, values.square().mean().sqrt().item()
    return values.mean().item(), values.std(correction=0).item()


def fault(law: str, fan: Fan, values: Tensor) -> str | None:
    """Say how far values are from a law, if they are farther than chance would have it."""
    drawn = parse_initial_distribution(law, MEASURES)(torch.empty(2**16), fan)
    (mean, deviation), expected = moments(values, law), moments(drawn, law)
    slack = max(5 / math.sqrt(2 * values.numel()), 0.05) * expected[1] + 2e-3 * abs(expected[0])
    if abs(mean - expected[0]) <= slack and abs(deviation - expected[1]) <= slack:
        return None
    return f"mean {mean:.4g}, deviation {deviation:.4g}; expected {expected}"


def faults(mixer: str, place: Place, own: Laws) -> list[str]:
    """Measure all parameters of a mixer's models; those of a pattern and law together."""
    stated = {**own, **OF_NORMS}
    found: list[str] = []
    measured: dict[tuple[str, str, Fan], list[Tensor]] = defaultdict(list)
    for task in sorted({task for by in own.values() for task in by}):
        model = shallow(mixer, task, place=place)
        fan_of = compute_fans(model)
        names = [name for name, _ in model.named_parameters()]
        # Of patterns that match a parameter, the one that matches fewest others is meant.
        of_pattern = {p: len(fnmatch.filter(names, p)) for p in own}
        order = [*sorted(own, key=of_pattern.__getitem__, reverse=True), *OF_NORMS]
        for parameter, tensor in model.named_parameters():
            pattern = next((p for p in reversed(order) if fnmatchcase(parameter, p)), None)
            law = None if pattern is None else stated[pattern].get(task, stated[pattern].get("all"))
            if pattern is None or law is None:
                found.append(f"{parameter} on {task}: no law is stated")
                continue
            measured[pattern, law, fan_of[parameter]].append(tensor.detach().flatten())
    found += [
        f"{pattern}: {what}"
        for (pattern, law, fan), tensors in measured.items()
        if (what := fault(law, fan, torch.cat(tensors))) is not None
    ]
    used = {pattern for pattern, *_ in measured}
    return found + [f"{pattern}: fits nothing" for pattern in own if pattern not in used]


@pytest.mark.thorough
@pytest.mark.parametrize(("mixer", "place"), MODELS)
def test_parameters_start_as_released_or_as_a_word_says(mixer: str, place: Place) -> None:
    assert faults(mixer, place, stated_laws(mixer)[place]) == []


def test_what_a_law_draws_has_its_moments() -> None:
    third = 3**-0.5  # the deviation of a uniform distribution from -1 to 1
    expected = {
        "zeros": (0, 0), "ones": (1, 0), "constant 0.5": (0.5, 0), "normal 0.5": (0, 0.5),
        "truncated_normal 0.5": (0, 0.5), "uniform -1 3": (1, 2 * third),
        "linear": (0, third * 200**-0.5), "lecun_normal": (0, 200**-0.5),
        "fan_out_normal": (0, 300**-0.5), "xavier_uniform": (0, third * (6 / 500) ** 0.5),
        "xavier_uniform_of 3": (0, third * (6 / 300) ** 0.5),
    }  # fmt: skip
    assert [law.split()[0] for law in expected] == list(INITIAL_DISTRIBUTIONS)
    for law, found in expected.items():
        drawn = parse_initial_distribution(law)(torch.full((2**20,), math.nan), Fan(200, 300))
        assert moments(drawn, law) == pytest.approx(found, rel=0.01, abs=2e-3), law
    cut = parse_initial_distribution("truncated_normal 1")(torch.empty(2**16), Fan(0, 0))
    assert cut.abs().max() < 2.3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("zero", "unknown distribution 'zero'; expected one of zeros, "),
        ("normal -3", "distribution 'normal -3': expected a deviation"),
    ],
)
def test_a_wrong_law_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=r"model\.starts: ") as caught:
        resolve("text", "s5", overrides=[f"model.starts={{output.weight: {text}}}"])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ('{"*.direct": lecun_normal}', "lecun_normal needs the size of a linear map, and"),
        ("{output.weight: zeros, heads: ones}", "heads matches no parameter; expected patterns of"),
        ('{output.*: ones, "*.bias": zeros}', "output.* and *.bias both match output.bias"),
    ],
)
def test_patterns_fit_parameters_and_have_no_order(starts: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        shallow("s5", "text", f"model.starts={starts}")
