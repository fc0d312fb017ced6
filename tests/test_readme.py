"""What the README and the pages of docs/ show works as it stands there."""

import re
from pathlib import Path

import pytest

from conftest import ROOT, python_example
from lra import run_task
from lra.check import __main__ as check
from lra.config.registry import MIXERS, TASKS
from lra.models.base import MixerContext, RecurrentMixer

README = (ROOT / "README.md").read_text()


def test_the_task_of_ones_own_runs(own_folder: None, capsys: pytest.CaptureFixture[str]) -> None:
    Path("parity.py").write_text(python_example("docs/your_task.md"))
    settings = ["model.dim=8", "model.depth=1", "train.steps=2", "task.train=100"]
    changes = [part for text in settings for part in ("--set", text)]
    start = ["--task", "parity.py:Parity", "--mixer", "tnn", "--preset", "quick", "--device", "cpu"]
    assert run_task.main([*start, *changes]) == 0
    assert check.main(["parity.py:Parity"]) == 0
    assert "checks passed" in capsys.readouterr().out


def test_the_table_of_mixers_is_complete_and_true() -> None:
    lines = [line for line in README.splitlines() if line.startswith("| `") and "--" not in line]
    rows = [line.split("|")[1:-1] for line in lines]
    table = {cells[0].strip(" `"): [c.strip() for c in cells] for cells in rows if len(cells) == 7}
    assert table.keys() == MIXERS.classes.keys()
    for name, (_, _, _, step, causal, grid, _) in table.items():
        context = MixerContext(dim=8, max_length=128, layer=0, depth=1, causal=True)
        cls = MIXERS.classes[name]
        try:
            mixer = cls(context)
        except ValueError:
            mixer = None
        assert (mixer is not None) == (causal == "yes"), name
        assert isinstance(mixer, RecurrentMixer) == bool(step), name
        assert cls.has_native_grid == (grid == "native"), name


def _anchors(page: Path) -> set[str]:
    """List the names that GitHub gives to the headings of a page."""
    headings = re.findall(r"(?m)^#+ (.*)$", page.read_text())
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def test_the_tables_of_tasks_are_complete() -> None:
    """A task's name is in a row of each table, and its file or folder in that of tasks/README."""
    for page in ("README.md", "docs/data.md"):
        rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("| `")]
        for name in TASKS.classes:
            assert any(f"`{name}`" in row.split("|")[1] for row in rows), f"{page}: {name}"
    listed = (ROOT / "tasks" / "README.md").read_text()
    for cls in TASKS.classes.values():
        place = cls.__module__.split(".")[2]
        assert f"`{place}.py`" in listed or f"`{place}/`" in listed, place


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/*.md"), *ROOT.glob("lra/*/*.md")]
    broken = []
    for page in pages:
        text = re.sub(r"(?s)```.*?```", "", page.read_text())
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert len(pages) > 20
    assert not broken
