"""The notebook docs/tour.ipynb runs as it stands, and its saved outputs are clean."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from conftest import ROOT
from lra.api.mixers import list_mixers

TOUR = ROOT / "docs" / "tour.ipynb"
MOST_BYTES = 150_000
"""Size of the notebook with its outputs, so that a clone stays small."""


@pytest.mark.thorough
def test_the_notebook_runs(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It starts in docs/ and leaves nothing there; the suite is importable, as once installed.

    `pytest --write-golden` saves the outputs in the notebook.
    """
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("TMPDIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("CONFIG", "DATA", "RUNTIME"):  # not the user's own kernels
        monkeypatch.setenv(f"JUPYTER_{name}_DIR", str(tmp_path))
    monkeypatch.delenv("MPLBACKEND", raising=False)
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # other tests may use the other cores
    files = sorted(TOUR.parent.iterdir())
    notebook = nbformat.read(TOUR, as_version=4)
    place = {"metadata": {"path": str(TOUR.parent)}}
    NotebookClient(notebook, timeout=300, resources=place, record_timing=False).execute()
    check_outputs(notebook)
    assert list(tmp_path.glob("lra-tour-*/results/runs/listops/*/*/result.json"))
    assert sorted(TOUR.parent.iterdir()) == files
    if request.config.getoption("--write-golden"):
        notebook.metadata["language_info"] = {"name": "python"}  # without the version used here
        nbformat.write(notebook, TOUR)


def test_saved_outputs_are_those_of_one_clean_run() -> None:
    saved = nbformat.read(TOUR, as_version=4)
    check_outputs(saved)
    assert ", ".join(list_mixers()) in str(saved), (
        "pytest --thorough --write-golden saves them again"
    )
    assert TOUR.stat().st_size < MOST_BYTES


def check_outputs(notebook: Any) -> None:
    """Check that all cells ran in order, without warnings or errors, and name no folder."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        for output in cell.outputs:
            assert output.output_type in ("stream", "execute_result", "display_data"), output
            assert output.get("name", "stdout") == "stdout", output
            shown = {"text": output.get("text", ""), **output.get("data", {})}
            for kind, text in shown.items():
                is_image = kind.startswith("image/")
                assert is_image or not re.search(r"(?<![\w.<])/\w+/", text), text
