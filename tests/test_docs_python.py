"""The page on the Python API: each example runs, and prints what the page shows."""

import contextlib
import inspect
import io
import re
from pathlib import Path

import pandas as pd
import pytest

import lra
from conftest import ROOT
from lra.record import schema
from notebook import Notebook

PAGE = (ROOT / "docs" / "python.md").read_text()
BLOCK = re.compile(r"^## ([^\n]*)$|```(python|text)\n(.*?)```", re.M | re.S)


def examples() -> list[tuple[str, str, str]]:
    """List the examples of the page: heading, code, and the output that is shown beneath."""
    found: list[tuple[str, str, str]] = []
    heading = ""
    for title, language, body in BLOCK.findall(PAGE):
        if title:
            heading = title
        elif language == "python":
            found.append((heading, body, ""))
        else:
            found[-1] = (*found[-1][:2], body)
    return found


def test_every_example_prints_what_the_page_shows(
    own_folder: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They build on each other, in a folder in which nothing has run yet."""
    monkeypatch.setattr(schema, "SHIPPED_RESULTS", ROOT / "results" / "shipped")
    notebook = Notebook(monkeypatch)
    variables = vars(notebook.module)
    for heading, code, expected in examples():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            notebook.run(code)
        assert printed.getvalue() == expected, heading
    assert len(list(Path("results/runs/listops/tnn").iterdir())) == 2
    assert variables["by_operator"].between(0, 1).all()
    leaderboard = pd.read_csv(ROOT / "results" / "leaderboard.csv")
    expected = leaderboard.pivot_table("test_accuracy", index="mixer", columns="task")
    pd.testing.assert_frame_equal(variables["board"], expected, check_names=False)


def test_every_function_has_an_example_and_a_line_in_the_table() -> None:
    code = "\n".join(body for _, body, _ in examples())
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("| "))
    functions = {name for name in lra.__all__ if not inspect.isclass(getattr(lra, name))}
    assert functions >= {
        "build",
        "check",
        "data",
        "list_mixers",
        "list_tasks",
        "load",
        "mixer",
        "records",
        "run",
    }
    for name in functions:
        assert f"lra.{name}(" in code, name
        assert f"lra.{name}(" in table, name
