"""The functions on docs/mixers.md equal the suite's mixers, and its pictures show them."""

import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import ROOT
from lra.models.base import MixerContext

DOCS = ROOT / "docs"
PAGE = (DOCS / "mixers.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LONGEST = 64


@pytest.fixture(autouse=True)
def default_dtype() -> Iterator[None]:
    """Undo the page's choice of float64 after each test."""
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


def run_page(compare: Callable[..., None] | None = None) -> None:
    """Run the blocks of the page in order, with another `compare` where one is given."""
    names: dict[str, Any] = {}
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"docs/mixers.md, block {number}", "exec"), names)
        if number == 0 and compare is not None:
            names["compare"] = compare


def test_the_page_runs_as_it_stands() -> None:
    run_page()


def test_functions_equal_the_suites_mixers() -> None:
    """With parameters of a size at which each matters, at all kinds of lengths."""
    compared: list[str] = []

    def compare(
        function: Callable[..., Tensor],
        suite: Any,
        symbols: Callable[[nn.Module], dict[str, Any]],
        causal: tuple[bool, ...] = (False, True),
        **options: Any,
    ) -> None:
        compared.append(suite.name)
        for is_causal in causal:
            mixer = suite(MixerContext.of(dim=8, length=LONGEST, causal=is_causal), **options)
            for parameter in mixer.parameters():
                parameter.data.normal_(std=0.5)
            for length in (1, 2, 31, LONGEST):
                x = torch.randn(3, length, 8)
                assert x.dtype == torch.float64
                found = function(x, **symbols(mixer), causal=is_causal)
                torch.testing.assert_close(found, mixer(x), rtol=1e-10, atol=1e-11)

    run_page(compare)
    assert {*compared} == {"transformer", "tnn", "ski-tnn", "fd-tnn", "s4d", "mamba2"}


def test_pictures_are_drawn_by_one_command(tmp_path: Path) -> None:
    """They are small, and those that are committed have the labels that the code draws."""
    spec = importlib.util.spec_from_file_location("draw_kernels", DOCS / "draw_kernels.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.main(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(re.findall(r"^!\[.+\]\((.+)\)$", PAGE, re.MULTILINE))
    for name in names:
        assert (DOCS / name).stat().st_size < 60_000, name
        is_new = labels(DOCS / name) == labels(tmp_path / name)
        assert is_new, f"{name} is stale: python docs/draw_kernels.py"


def labels(svg: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text())
