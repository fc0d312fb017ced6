"""How parameters start, measured, against the laws that released code starts them by."""

from __future__ import annotations

import math
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lra.classifier.classifier import Classifier
from lra.classifier.initialization import compute_fans, match_patterns
from lra.config.initial_values import (
    INITIAL_DISTRIBUTIONS,
    Fan,
    Initialization,
    parse_initial_distribution,
)
from lra.config.request import parse_alternatives
from lra.report.published.audit import FOLDER, StatedStart, names, read_published
from lra.report.published.starting_laws import expected_start, stated_starts
from lra.runtime.errors import UserError
from requested import resolve

MODELS = [name for name in names() if read_published(name).mixer is not None]


def shallow(name: str, task: str, *overrides: str) -> Classifier:
    """Build a model of one block at the settings of a file."""
    published = read_published(name)
    assert published.mixer is not None
    config = resolve(
        task, published.mixer, preset=published.preset, protocol=published.protocol,
        overrides=["model.depth=1", *overrides],
    )  # fmt: skip
    torch.manual_seed(0)
    return Classifier(config, config.build_task().info)


def fault(start: Initialization, values: Tensor) -> str | None:
    """Say how far values are from a law, if they are farther than chance would have it."""
    mean, deviation = values.mean().item(), values.std(correction=0).item()
    if start.mean == 0 and start.measures_size:
        mean, deviation = 0.0, values.square().mean().sqrt().item()
    slack = max(5 / math.sqrt(2 * values.numel()), 0.05) * start.deviation + 2e-3 * abs(start.mean)
    if abs(mean - start.mean) <= slack and abs(deviation - start.deviation) <= slack:
        return None
    found = f"mean {mean:.4g}, deviation {deviation:.4g}"
    return f"{found}; expected {start.mean:.4g}, {start.deviation:.4g}"


def faults(name: str, folder: Path = FOLDER) -> list[str]:
    """Measure all parameters of a file's models; those of a pattern and law together."""
    stated, own = stated_starts(name, folder), read_published(name, folder).starts
    found: list[str] = []
    measured: dict[tuple[str, str], list[Tensor]] = defaultdict(list)
    laws: dict[tuple[str, str], Initialization] = {}
    for task in read_published(name, folder).tasks:
        model = shallow(name, task)
        fan_of = compute_fans(model)
        for parameter, tensor in model.named_parameters():
            pattern = next(reversed(match_patterns(parameter, stated)), None)
            expected = None if pattern is None else expected_start(stated[pattern], task)
            if pattern is None or expected is None:
                found.append(f"{parameter} on {task}: no law is stated, or ours without a word")
                continue
            start = expected(fan_of[parameter])
            key = pattern, f"{start.mean:.6g} {start.deviation:.6g}"
            measured[key].append(tensor.detach().flatten())
            laws[key] = start
    found += [
        f"{pattern}: {what}"
        for (pattern, law), tensors in measured.items()
        if (what := fault(laws[pattern, law], torch.cat(tensors))) is not None
    ]
    used = {pattern for pattern, _ in measured}
    return found + [f"{p}: fits nothing" for p in own if p not in used]


@pytest.mark.parametrize("name", MODELS)
def test_parameters_start_as_released_or_as_a_word_says(name: str) -> None:
    assert faults(name) == []


@pytest.mark.parametrize("name", MODELS)
def test_starts_have_a_known_source_and_words_where_they_differ(name: str) -> None:
    published = read_published(name)
    for pattern, stated in published.starts.items():
        for task, (law, place) in stated.by_task.items():
            source, _, where = place.partition(" ")
            assert source in published.sources, f"{pattern} on {task}: {place}"
            assert ":" in where, f"{pattern} on {task}: {place}"
            assert stated.ours.get(task) != law, f"{pattern} on {task}: a word without need"


def test_another_law_or_none_is_named(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "published")
    path = tmp_path / "published" / "tnn-lm.yaml"
    text = path.read_text()
    path.write_text(text.replace("[fan_out_normal,", '["normal 1",'))
    (found,) = faults("tnn-lm", tmp_path / "published")
    assert found.startswith("embedding.table.weight: mean ")
    assert found.endswith("expected 0, 1")
    path.write_text(text.replace('  "*.unit.*":', '  "*.units.*":'))
    found = faults("tnn-lm", tmp_path / "published")
    unit = "blocks.0.mixer.unit.gate.weight"
    assert f"{unit} on lm: no law is stated, or ours without a word" in found
    assert "*.units.*: fits nothing" in found


def test_a_start_of_ours_needs_a_word() -> None:
    body = {"lm": ("ones", "a b:1"), "ours": "zeros"}
    assert StatedStart.model_validate(body).law("lm") is None
    stated = StatedStart.model_validate({**body, "why": "of our choosing"})
    assert (stated.law("lm"), stated.text("lm")) == ("zeros", "ones → zeros")


@pytest.mark.parametrize("law", INITIAL_DISTRIBUTIONS)
def test_what_a_law_draws_has_its_moments(law: str) -> None:
    numbers = {"uniform": "-1 3", "xavier_uniform_of": "3"}.get(
        law, "0.5" * INITIAL_DISTRIBUTIONS[law].numbers
    )
    start = parse_initial_distribution(f"{law} {numbers}")(Fan(inputs=200, outputs=300))
    torch.manual_seed(0)
    assert fault(start, start.draw(torch.full((300, 200), math.nan))) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("zero", "unknown distribution 'zero'; expected one of zeros, "),
        ('""', "unknown distribution ''"),
        ("normal", "distribution normal: got '', expected 1 numbers"),
        ("normal a", "distribution normal: got 'a', expected 1 numbers"),
        ("normal .inf", "distribution normal: got '.inf', expected 1 numbers"),
        ("normal -3", "distribution 'normal -3': expected a standard deviation"),
        ("uniform 2 1", "expected a number and a larger one"),
        ("xavier_uniform_of 0", "expected the number of maps"),
    ],
)
def test_a_wrong_law_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=r"model\.starts: ") as caught:
        resolve("text", "s5", overrides=[f"model.starts={{output.weight: {text}}}"])
    assert message in str(caught.value)


def test_a_law_must_fit_the_parameter_and_a_pattern_of_a_flag_some_parameter() -> None:
    with pytest.raises(UserError, match=r"lecun_normal needs the size of a linear map, and"):
        shallow("s5", "text", 'model.starts={"*.direct": lecun_normal}')
    with pytest.raises(UserError, match=r"heads matches no parameter; expected patterns of"):
        shallow("s5", "text", "model.starts={output.weight: zeros, heads: ones}")


def test_patterns_have_no_order() -> None:
    with pytest.raises(
        UserError, match=r"output\.\* and \*\.bias both match output\.bias; remove one"
    ):
        shallow("s5", "text", 'model.starts={output.*: ones, "*.bias": zeros}')


def test_what_no_pattern_fits_starts_as_before() -> None:
    before = shallow("s5", "text", "model.starts={}").state_dict()
    text = "{output.bias: constant 2, output.weight: ones}"
    after = shallow("s5", "text", f"model.starts={text}").state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"output.weight", "output.bias"}
    assert (after["output.bias"] == 2).all()
    (only,) = parse_alternatives(f"model.starts={text}", "--grid")
    assert (only.section, only.key) == ("model", "starts")
