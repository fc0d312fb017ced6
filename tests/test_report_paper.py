"""report.py --paper: LaTeX tables and PDF figures that fit the column of a paper."""

import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lra.goals.regression import RegressionResult
from lra.record.run import RunRecord
from lra.report import __main__ as report
from made_results import MIXERS, TASKS, next_token_run, record, save_all

HOSTILE = r"""a<b >c|d "e" \h {i} j_k & l% $m #n ~o ^p ± –"""
CHANGED = ["mixer.decay=0.99", "model.norm=layer"]


def run(mixer: str, task: str, seed: int = 0, **changes: object) -> RunRecord:
    length, chance = TASKS[task]
    number = MIXERS.index(mixer) if mixer in MIXERS else len(MIXERS)
    values: dict[str, object] = {
        "mixer": mixer, "task": task, "seed": seed, "run_id": f"a-s{seed}", "length": length,
        "test_accuracy": chance + 10 + 2 * number + 1.3 * seed, "test_total": 10_000,
        "data": {"source": "official", "fingerprint": task, "sizes": {"train": 1}},
        "baselines": {"majority class": chance}, "steps_per_second": 1.0 + number,
        "config_hash": f"{mixer}{task}",
    }  # fmt: skip
    return record(**(values | changes))


def every_task(seeds: int) -> list[RunRecord]:
    return [run(m, t, s) for m, t, s in itertools.product(MIXERS, TASKS, range(seeds))]


def paper(folder: Path, *arguments: str) -> dict[str, str]:
    """Write the report for a paper; return its tables by name."""
    assert report.main(["--results-dir", str(folder), "--paper", *arguments]) == 0
    written = folder / "report" / "paper" / "tables"
    return {path.stem: path.read_text() for path in sorted(written.iterdir())}


def rows_of(table: str) -> dict[str, list[str]]:
    """Read the cells of a table by the row's label."""
    body = table.partition("\\toprule")[2].partition("\\bottomrule")[0]
    lines = [line.rpartition(" \\\\")[0].split(" & ") for line in body.splitlines()]
    return {line[0]: line[1:] for line in lines if len(line) > 1}


def compiled(folder: Path, width: int) -> tuple[str, str]:
    """Compile a document of all tables and figures; return LaTeX's log, and the text unspaced."""
    if shutil.which("pdflatex") is None or shutil.which("pdftotext") is None:
        pytest.skip("needs pdflatex and pdftotext")
    lines = [
        "\\documentclass{article}\\usepackage{booktabs,graphicx}",
        f"\\usepackage[textwidth={width}pt]{{geometry}}\\begin{{document}}",
        *(f"\\input{{tables/{path.name}}}" for path in sorted((folder / "tables").iterdir())),
        *(f"\\clearpage\\noindent\\includegraphics[width=\\linewidth]{{figures/{path.name}}}"
          for path in sorted((folder / "figures").iterdir())),
        "\\end{document}",
    ]  # fmt: skip
    (folder / "paper.tex").write_text("\n".join(lines))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    wide = {**os.environ, "max_print_line": "1000"}
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False, env=wide)
    log = (folder / "paper.log").read_text(errors="replace")
    assert done.returncode == 0, log[-2000:]
    command = ["pdftotext", "-raw", "paper.pdf", "-"]
    text = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    return log, "".join(text.split())


def as_printed(text: str) -> str:
    # An underscore is a rule to LaTeX; ticks, tildes and circumflexes have characters of their own.
    return "".join(text.translate(str.maketrans("`~^", "‘˜ˆ", "_")).split())


def test_rows_and_columns_are_chosen(tmp_path: Path) -> None:
    variant = f"tnn ({', '.join(CHANGED)})"
    changed = run("tnn", "listops", run_id="v", overrides=CHANGED, config_hash="v")
    save_all(tmp_path / "a", [*(run(m, "listops") for m in ("tnn", "fd-tnn", "s4")), changed])
    for given, labels in {
        "mixers": ["s4", "fd-tnn", "tnn"],
        "tnn,FD": ["tnn", "fd-tnn"],
        f"s4,base,{variant}": ["s4", variant, "majority class"],
        "tnn,published": ["tnn", "TNN", "TNN (rerun by SKI authors)"],
    }.items():
        (table,) = paper(tmp_path / "a", "--rows", given).values()
        assert [*rows_of(re.sub("(?m)^% .*\n", "", table))] == ["mixer", *labels]
    save_all(tmp_path / "b", every_task(1))
    (table,) = paper(tmp_path / "b", "--columns", "mean of 5,pathf,TEXT,average").values()
    assert rows_of(table)["mixer"] == ["mean of 5", "pathfinder", "text", "mean of 6"]
    shutil.rmtree(tmp_path / "b" / "runs" / "pathx" / "tnn")
    heads = rows_of(*paper(tmp_path / "b").values())["mixer"]
    assert heads[-1] == "mean of 5", "most rows have it"
    save_all(tmp_path / "b", [run("tnn", "text", preset="quick", run_id="q")])
    table, small = paper(tmp_path / "b", "--rows", "tn,published").values()
    assert rows_of(re.sub("(?m)^% .*\n", "", table))["TNN"][1] == "87.9"
    assert "TNN" not in small, "published rows never share a table with smaller tasks"


def test_other_measures_have_a_table_for_each_task(tmp_path: Path) -> None:
    """The best row first; baselines where --rows asks, and a table only where --columns does."""
    found = {"mean": 0.4, "tnn": 0.8, "s4": 0.6}
    measured = [
        run(mixer, "listops").model_copy(
            update={
                "task": "level", "run_id": f"{mixer}-l",
                "result": RegressionResult(
                    test_total=50, test_non_finite=0, scores={"r2": r2, "rmse": 0.2 / r2},
                    low=r2 - 0.1, high=r2 + 0.1, baseline={"r2": -0.01, "rmse": 0.9},
                    val_r2=r2, means=[3.0], deviations=[0.9],
                ),
            }
        )
        for mixer, r2 in found.items()
    ]  # fmt: skip
    bits = [next_token_run(2 - r2, preset="paper", mixer=m) for m, r2 in found.items()]
    save_all(tmp_path, [*(run(mixer, "listops") for mixer in found), *measured, *bits])
    tables = paper(tmp_path)
    assert {*tables} == {"accuracy-paper-s4", "results-level-paper-s4", "results-lm-paper-s4"}
    assert [*rows_of(tables["results-lm-paper-s4"])] == ["mixer", "tnn", "s4", "mean"]
    assert rows_of(tables["results-level-paper-s4"]) == {
        "mixer": ["R2", "root mean squared error"],
        "tnn": [r"\textbf{0.800}", "0.2500"],
        "s4": ["0.600", "0.3333"],
        "mean": ["0.400", "0.5000"],
    }
    log, _ = compiled(tmp_path / "report" / "paper", 345)
    assert "Overfull" not in log
    shutil.rmtree(tmp_path / "report")
    tables = paper(tmp_path, "--rows", "s4,baselines", "--columns", "level")
    assert [*tables] == ["results-level-paper-s4"]
    row = rows_of(tables["results-level-paper-s4"])["trivial baseline: mean of the training labels"]
    assert row == ["-0.010", "0.9000"]


def test_results_on_other_data_have_tables_and_what_is_left_out_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, theirs = (
        {
            "overrides": [f"task.train={n}"], "run_id": f"s{n}",
            "data": {"source": "official", "fingerprint": f"{n}", "sizes": {}},
        }
        for n in (9, 8)
    )  # fmt: skip
    others = [
        run("s4", "text", preset="quick", overrides=CHANGED, run_id="c"),
        record(task="recall", run_id="r"),
    ]
    save_all(tmp_path, [*every_task(1), *others, run("mean", "image", **mine)])
    save_all(tmp_path / "shipped", [run("s4", "image", **theirs)])
    assert {*paper(tmp_path)} == {"accuracy-paper-s4", "accuracy-paper-s4-task.train-9"}
    printed = capsys.readouterr().out
    for left_out in (
        "(task.train=8): s4 (not your own)",
        "Preset quick, protocol s4: 1 with changed settings",
        "Probes: recall",
    ):
        assert left_out in " ".join(printed.split())


def test_exceptions_are_marked_and_numbers_align(tmp_path: Path) -> None:
    save_all(tmp_path, [run(m, "image", seed) for m in ("tnn", "s4") for seed in range(3)])
    save_all(tmp_path, [
        run("mean", "image", test_non_finite=3), run("fd-tnn", "image", test_accuracy=9.0),
        run("ski-tnn", "image", status="diverged"),
    ])  # fmt: skip
    (table,) = paper(tmp_path, "--rows", "mean,fd-tnn,ski-tnn,s4,tnn,baselines").values()
    assert list(rows_of(table).values())[1:] == [
        [r"\underline{30.0}\textsuperscript{\scriptsize a,b}"],
        [r"\phantom{0}9.0\textsuperscript{\scriptsize $\dagger$,b}"],
        ["diverged"],
        [r"\underline{29.3}\,{\scriptsize$\pm$1.3}"],
        [r"21.3\,{\scriptsize$\pm$1.3}"],
        ["10.0"],
    ]
    notes = {r"$\dagger$": "at chance", "a": "1 with non-finite logits", "b": "1 seed"}
    written = "; ".join(rf"\textsuperscript{{{s}}}{text}" for s, text in notes.items())
    assert f"{written}." in table.replace(r"\allowbreak ", "")


def test_tables_and_figures_fit_a_column(tmp_path: Path) -> None:
    changes = {"label": HOSTILE, "overrides": CHANGED, "config_hash": "o", "run_id": "o"}
    save_all(tmp_path, [*every_task(3), run("tnn", "text", **changes),
                        run("s4", "image", 9, preset="quick")])  # fmt: skip
    paper(tmp_path, "--rows", "mixers,variants,baselines,published", "--width", "397")
    log, text = compiled(tmp_path / "report" / "paper", 397)
    assert not re.search(r"Overfull|Float too large", log)
    assert all(name in text for name in [*MIXERS, as_printed(HOSTILE), "S4-LegS"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--rows tnm", "--rows: unknown row 'tnm'; did you mean tnn?"),
        ("--rows t", "--rows t: 2 names begin with it (tnn; transformer); write more"),
        ("--columns average", "--columns average: no result of --rows mixers is there"),
        ("--relative-to tnm", "--relative-to: unknown mixer"),
        ("--check", "--check has no effect with --paper"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, message: str
) -> None:
    save_all(tmp_path, [run("tnn", "listops"), run("transformer", "listops")])
    assert report.main(["--results-dir", str(tmp_path), "--paper", *arguments.split()]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
