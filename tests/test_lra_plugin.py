"""Mixers of a user's own file or module: what works, and one line for every mistake."""

import hashlib
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest
import torch

from conftest import tiny_arguments
from lra import run_task
from lra.common.errors import UserError
from lra.config.registry import find_mixer
from lra.config.schema import RunConfig
from lra.models.base import MixerContext
from lra.record.run import load_record
from requested import resolve

pytestmark = pytest.mark.usefixtures("own_folder")

START = """from __future__ import annotations
import torch
from torch import nn
from dataclasses import dataclass
from lra.models.base import MixerContext
"""

SCALE = """
class Scale(nn.Module):
    def __init__(self, context: MixerContext, by: float = 1.0, *, start=None, bias: bool = True):
        super().__init__()
        if by == 0:
            raise ValueError("by must not be 0")
        self.by = by
        self.linear = nn.Linear(context.dim, context.dim, bias=bias)

    def forward(self, x, mask):
        return self.linear(x) * self.by
"""


def write(source: str = SCALE, name: str = "own.py") -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(START + source)


def resolved(spec: str = "own.py:Scale", *overrides: str) -> RunConfig:
    return resolve("listops", spec, preset="quick", overrides=overrides)


def message(spec: str, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        resolved(spec, *overrides)
    return str(caught.value)


def module_with(forward: str = "return x", options: str = "", before: str = "pass") -> str:
    return (
        f"class Own(nn.Module):\n    def __init__(self, context{options}):\n"
        f"        super().__init__()\n        {before}\n"
        f"    def forward(self, x, mask):\n        {forward}\n"
    )


def test_options_are_read_off_the_constructor() -> None:
    write()
    config = resolved("own.py:Scale", "mixer.by=2", "mixer.start=[1, a]", "mixer.bias=false")
    assert dict(config.mixer) == {"by": 2.0, "start": [1, "a"], "bias": False}
    assert config.changes == {"mixer.by": 2.0, "mixer.start": [1, "a"], "mixer.bias": False}
    assert "did you mean bias?" in message("own.py:Scale", "mixer.bais=false")
    assert "got 'much', expected a valid number" in message("own.py:Scale", "mixer.by=much")
    assert message("own.py:Scale", "mixer.by=0.0").startswith("mixer Scale: by must not be 0")


def test_name_code_and_origin_are_on_record(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    code = hashlib.sha256(Path("own.py").read_bytes()).hexdigest()[:16]
    config = resolved()
    assert (config.mixer_name, config.mixer_component.code) == ("Scale", code)
    shown = config.show()
    assert "# mixer from: own.py:Scale\n" in shown
    assert f"# mixer_code: {code}\n" in shown
    assert run_task.main(tiny_arguments(Path.cwd(), mixer="own.py:Scale")) == 0
    assert "listops / Scale " in capsys.readouterr().out
    (path,) = Path("results/runs/listops/Scale").glob("*/result.json")
    assert load_record(path).mixer_code == code


def test_an_edited_plug_in_is_another_run() -> None:
    write()
    before = resolved()
    write(name="deep/other.py")
    assert resolved().hash == resolved("deep/other.py:Scale").hash == before.hash
    write(SCALE.replace("self.linear(x) *", "1 + self.linear(x) *"))  # within a second
    assert resolved().hash != before.hash
    x, context = torch.zeros(1, 2, 64), MixerContext(dim=64, max_length=9, layer=0, depth=1)
    own = [config.mixer_component.cls(context) for config in (before, resolved())]
    own[1].load_state_dict(own[0].state_dict())
    torch.testing.assert_close(own[0](x, None) + 1, own[1](x, None))


def test_siblings_modules_and_type_hints() -> None:
    write("SIZE = 3\n", "pack/sibling_of_own.py")
    settings = "@dataclass\nclass Settings:\n    size: int = 1\n"
    write(settings + "from sibling_of_own import SIZE\n" + SCALE, "pack/own.py")
    source = find_mixer("pack/own.py:Scale", "--mixer")
    module = sys.modules[source.cls.__module__]
    assert vars(module)["SIZE"] == 3
    assert is_dataclass(vars(module)["Settings"])
    assert get_type_hints(source.cls.__init__)["by"] is float
    assert "own" not in sys.modules
    assert sys.path[-1].endswith("pack")


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("tn", "unknown mixer 'tn'; did you mean tnn?"),
        ("folder/own:Scale", "expected path/to/file.py:ClassName"),
        ("nowhere.py:Scale", "--mixer nowhere.py:Scale: there is no file nowhere.py"),
        ("nowhere_at_all:Scale", "No module named 'nowhere_at_all'"),
        ("own.py:Scal", "unknown class 'Scal'; did you mean Scale? (valid: Abstract, NoCon"),
        (
            "own.py:START",
            "unknown class 'START'; did you mean Abstract? (valid: Abstract, NoContext",
        ),
        ("builtins:int", "builtins is not a file of Python code, expected path/to/file.py:Cla"),
        ("own.py:TNN", "the suite has a mixer of that name; rename your class, or use tnn"),
        ("own.py:NoContext", "expected a constructor __init__(self, context, ...)"),
    ],
)
def test_mistakes_in_naming_it(spec: str, part: str) -> None:
    write(
        SCALE + "START = 3\nfrom lra.models.base import Mixer\n"
        "class Abstract(Mixer):\n    pass\n"
        "class TNN(nn.Module):\n    pass\n"
        "class NoContext(nn.Module):\n    def __init__(self, *, size: int = 3):\n        pass\n"
    )
    assert part in message(spec)


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("x = = 3", "SyntaxError: invalid syntax (own.py, line 6)"),
        ("import sys\nsys.exit(3)", "SystemExit: 3 ("),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module' ("),
    ],
)
@pytest.mark.parametrize("spec", ["own.py:Scale", "own:Scale"])
def test_mistakes_in_importing_it(source: str, part: str, spec: str) -> None:
    write(source)
    assert part in message(spec)
    assert part in message(spec), "a module half made must not be left behind"
    write()
    if ".py" in spec:
        resolved(spec)


@pytest.mark.parametrize(
    ("source", "part"),
    [
        (module_with(options=", **more"), "takes **more, which would accept misspelt options"),
        (module_with(options=", size: int"), "use --set mixer.size=VALUE"),
        (module_with(options=", act=nn.GELU"), "a record cannot hold a type; use a number, text"),
        (module_with(options=", size: Unknown = 3"), "name 'Unknown' is not defined"),
        (module_with(before="raise ValueError('no such size')"), "mixer Own: no such size"),
        (module_with(before="1 / 0"), "its constructor failed: ZeroDivisionError: division by"),
        (module_with("return x[:, :1]"), "forward returned (2, 1, 64) float32 for x (2, 5, 64)"),
        (module_with("return x * mask[..., None]"), "backward pass without a mask): TypeError:"),
        (module_with(before="self.p = nn.Parameter(torch.zeros(3, dtype=torch.complex64))"),
         "parameter p is torch.complex64, expected real numbers"),
        (module_with("return x + x.mean(1, keepdim=True)"), "padded positions (mask False) change"),
        (module_with("x.data.mul_(2); return x"), "forward writes to its input x (2, 5, 64)"),
        (module_with("self.p = nn.Parameter(x[0, 0]); return x"), "adds or changes weights (p)"),
    ],
)  # fmt: skip
def test_faults_of_its_code_are_one_line(source: str, part: str) -> None:
    write(source)
    text = message("own.py:Own")
    assert part in text
    assert "own.py:Own" in text or text.startswith("mixer Own")
    assert "\n" not in text


def test_causality_is_tried() -> None:
    real = "x if mask is None else x.masked_fill(~mask[..., None], 0)"
    write(module_with(f"return x + ({real}).sum(1, keepdim=True)"))
    resolved("own.py:Own")
    assert "the last position changes earlier" in message("own.py:Own", "model.causal=true")
    write(module_with("return x.cumsum(1)"))
    resolved("own.py:Own", "model.causal=true")


def test_the_amount_of_padding_is_tried() -> None:
    real = "x if mask is None else x.masked_fill(~mask[..., None], 0)"
    start = "self.zero = nn.Parameter(torch.zeros(context.dim))"
    for factor in ("1", "self.zero"):
        write(module_with(f"return x + {factor} * ({real}).mean(1, keepdim=True)", before=start))
        assert "the results of a batch differ by up to" in message("own.py:Own")
    norm = module_with("return NORM", before="self.norm = nn.BatchNorm1d(context.dim)")
    write(norm.replace("NORM", f"self.norm(({real}).transpose(1, 2)).transpose(1, 2)"))
    assert "differ by up to" in message("own.py:Own")
    flat = "self.norm(x[torch.ones(x.shape[:2], dtype=bool) if mask is None else mask])"
    put = "torch.zeros_like(x).masked_scatter(torch.ones_like(x, dtype=bool) if mask is None else"
    write(norm.replace("NORM", f"{put} mask[..., None].expand_as(x), {flat})"))
    resolved("own.py:Own")
    write(module_with("return x + torch.rand_like(x)"))  # nothing can be compared
    resolved("own.py:Own")


@pytest.mark.parametrize(
    ("before", "result"),
    [
        ("self.linear = nn.utils.spectral_norm(nn.Linear(context.dim, context.dim))",
         "return self.linear(x)"),
        ("self.count = 0", "self.count += 1; return x / self.count"),
        ("self.register_buffer('mean', torch.zeros(context.dim))",
         "self.mean += (x if mask is None else x[mask]).detach().mean(); return x - self.mean"),
        ("self.own = torch.Generator()", "return x + torch.rand(x.shape, generator=self.own)"),
    ],
)  # fmt: skip
def test_a_state_that_changes_is_no_fault(before: str, result: str) -> None:
    write(module_with(result, before=before))
    resolved("own.py:Own")


def test_results_that_cannot_be_repeated_are_named() -> None:
    write(module_with("import random; return x + random.random()"))
    assert "two passes over the same input differ by up to" in message("own.py:Own")
