"""report.py --paper: LaTeX tables and PDF figures that fit the column of a paper."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import report
from conftest import ROOT
from figure_checks import overlaps
from lra.record.run import RunRecord
from lra.report import paper as module
from lra.report.boards.board import boards
from lra.report.boards.ranking import rounded
from lra.report.boards.results import Results
from lra.report.data import ReportData, ReportOptions
from lra.report.figures.bubbles import bubble_figures
from lra.report.paper import column_style, draw_for_column
from lra.report.paper_rows import choose_rows, read_rows
from lra.report.tables.latex import escape, tabular
from made_results import MIXERS, TASKS, next_token_run, record, save_all, write_metrics

HOSTILE = r"""a<b >c|d "e" --f ---g \h {i} j_k & l% $m #n ~o ^p [q] *r ± – ?`s !`t ,,u"""


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


VARIANT = run("tnn", "listops", run_id="v", overrides=["mixer.decay=0.99", "model.norm=layer"],
              config_hash="v")  # fmt: skip


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


def compiled(folder: Path, name: str, program: str = "pdflatex") -> tuple[str, str]:
    """Compile a document; return LaTeX's log, and the text without spaces."""
    if shutil.which(program) is None or shutil.which("pdftotext") is None:
        pytest.skip(f"needs {program} and pdftotext")
    command = [program, "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"]
    wide = {**os.environ, "max_print_line": "1000"}
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False, env=wide)
    log = (folder / f"{name}.log").read_text(errors="replace")
    assert done.returncode == 0, log[-2000:]
    command = ["pdftotext", "-raw", f"{name}.pdf", "-"]
    text = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    return log, "".join(text.split())


def as_printed(text: str) -> str:
    # An underscore is a rule to LaTeX; ticks, tildes and circumflexes have characters of their own.
    return "".join(text.translate(str.maketrans("`~^", "‘˜ˆ", "_")).split())


def test_rows_are_chosen(tmp_path: Path) -> None:
    save_all(tmp_path, [*(run(m, "listops") for m in ("tnn", "fd-tnn", "transformer")), VARIANT])
    variant = "tnn (mixer.decay=0.99, model.norm=layer)"
    for given, labels in {
        "mixers": ["transformer", "fd-tnn", "tnn"],
        "tnn,FD": ["tnn", "fd-tnn"],
        "tra,base": ["transformer", "majority class"],
        "variants": [variant],
        f"{variant},fd-tnn": [variant, "fd-tnn"],
        "tnn,published": ["tnn", "TNN", "TNN (rerun by SKI authors)"],
    }.items():
        (table,) = paper(tmp_path, "--rows", given).values()
        assert [re.sub("% .*\n", "", name) for name in rows_of(table)] == ["mixer", *labels]
    (table,) = paper(tmp_path, "--rows", "tnn", "--published", "S5").values()
    assert "\nS5 & " in table
    found = boards([run("tnn", "listops"), run("s4", "listops", preset="quick")])
    words = read_rows("s4,tnn", found)
    assert [list(choose_rows(board, words).rows) for board in found] == [["tnn"], ["s4"]]


def test_columns_are_chosen(tmp_path: Path) -> None:
    save_all(tmp_path, every_task(1))
    for given, expected in {
        "tasks,average": [*TASKS, "mean of 6"],
        "pathf,TEXT": ["pathfinder", "text"],
        "mean of 5,tasks": ["mean of 5", *TASKS],
    }.items():
        assert rows_of(*paper(tmp_path, "--columns", given).values())["mixer"] == expected
    shutil.rmtree(tmp_path / "runs" / "pathx" / "tnn")
    rows = rows_of(*paper(tmp_path).values())
    assert rows["mixer"][-1] == "mean of 5", "most rows have it"


@pytest.mark.parametrize("precision", [1, 2])
def test_numbers_and_ranks_are_the_boards(tmp_path: Path, precision: int) -> None:
    save_all(tmp_path, [*every_task(3), run("Close", "image", test_accuracy=21.32)])
    rows = rows_of(*paper(tmp_path, "--precision", str(precision)).values())
    (board,) = boards(Results(tmp_path).records)
    for j, task in enumerate(TASKS):
        means = {name: cells[task].mean for name, cells in board.rows.items() if task in cells}
        texts = {name: rounded(mean, precision) for name, mean in means.items() if mean is not None}
        best, second = sorted({*texts.values()}, key=float, reverse=True)[:2]
        for name, text in texts.items():
            shown = {best: rf"\textbf{{{text}}}", second: rf"\underline{{{text}}}"}.get(text, text)
            assert rows[name][j].partition(r"\,")[0].partition(r"\textsuperscript")[0] == shown
    assert rows["Close"][-1] == "--"


def test_exceptions_are_marked_and_numbers_align(tmp_path: Path) -> None:
    save_all(tmp_path, [run(m, "image", seed) for m in ("tnn", "s4") for seed in range(3)])
    (table,) = paper(tmp_path).values()
    assert "deviation over 3 seeds. " in table
    assert rows_of(table)["s4"] == [r"\textbf{29.3}\,{\scriptsize$\pm$1.3}"]
    save_all(tmp_path, [
        run("mean", "image", test_non_finite=3),
        run("fd-tnn", "image", test_accuracy=9.0),
        run("ski-tnn", "image", status="diverged"),
    ])  # fmt: skip
    (table,) = paper(tmp_path, "--rows", "mean,fd-tnn,ski-tnn,s4,tnn,baselines").values()
    assert list(rows_of(table).values())[1:] == [
        [r"\textbf{30.0}\textsuperscript{\scriptsize a,b}"],
        [r"\phantom{0}9.0\textsuperscript{\scriptsize $\dagger$,b}"],
        [r"--\textsuperscript{\scriptsize c}"],
        [r"\underline{29.3}\,{\scriptsize$\pm$1.3}"],
        [r"21.3\,{\scriptsize$\pm$1.3}"],
        ["10.0"],
    ]
    notes = {"a": "1 with non-finite logits", "b": "1 seed", "c": "diverged"}
    notes = {r"$\dagger$": "at chance"} | notes
    written = "; ".join(rf"\textsuperscript{{{s}}}{text}" for s, text in notes.items())
    assert written in table.replace(r"\allowbreak ", "")


def test_published_rows_never_share_a_table_with_smaller_tasks(tmp_path: Path) -> None:
    save_all(tmp_path, [run("tnn", "listops"), run("tnn", "text", preset="quick")])
    tables = paper(tmp_path, "--rows", "tnn,published")
    assert tables.keys() == {"accuracy-paper-s4", "accuracy-quick-s4", "published"}
    assert "emph{published}" in tables["accuracy-paper-s4"]
    assert "TNN" not in tables["accuracy-quick-s4"]
    assert "The quick preset uses its own data" in tables["accuracy-quick-s4"]
    rows = {name.rpartition("\n")[2]: cells for name, cells in rows_of(tables["published"]).items()}
    assert rows["TNN"] == ["61.0", "87.9"]


MEASURE = r"""\let\shrink\resizebox
\renewcommand{\resizebox}[3]{\sbox0{#3}\sbox2{\shrink{#1}{#2}{\usebox0}}%
\typeout{SHRUNK \the\wd0\space to \the\wd2}\usebox2}
\pdfcompresslevel=0 \pdfobjcompresslevel=0
\begin{document}"""


@pytest.mark.parametrize(
    ("width", "program"),
    [(345, "pdflatex"), (397, "pdflatex"), (234, "pdflatex"), (234, "xelatex"), (345, "lualatex")],
)
def test_the_document_fits_with_letters_of_6_points(
    tmp_path: Path, width: int, program: str
) -> None:
    odd = run("tnn", "text", run_id="o", label=HOSTILE[:30], config_hash="o",
              overrides=["mixer.decay=0.5"])  # fmt: skip
    save_all(tmp_path, [*every_task(3), VARIANT, odd, run("s4", "image", 9, preset="quick")])
    rows = "mixers,variants,baselines,published"
    paper(tmp_path, "--rows", rows, "--width", str(width), "--precision", "2")
    folder = tmp_path / "report" / "paper"
    source = (folder / "paper.tex").read_text()
    if program == "pdflatex":
        (folder / "paper.tex").write_text(source.replace(r"\begin{document}", MEASURE))
    log, text = compiled(folder, "paper", program)
    assert not re.search(r"Overfull|6 pt|Float too large", log)
    assert all(name in text for name in [*MIXERS, "mixer.decay=0.99", "S4-LegS"])
    if program == "pdflatex":
        assert as_printed(HOSTILE[:30]) in text
        shrunk = re.findall(r"SHRUNK ([\d.]+)pt ?to ([\d.]+)pt", log)
        assert shrunk, "this test is of tables that are too wide"
        fonts = re.findall(rb"/FontName /\w+\+CM[A-Z]+(\d+)", (folder / "paper.pdf").read_bytes())
        for before, after in shrunk:
            assert min(map(int, fonts)) * float(after) / float(before) >= 6


def test_latex_says_which_table_is_too_wide(tmp_path: Path) -> None:
    save_all(tmp_path, [run("m" * 99, task) for task in TASKS])
    paper(tmp_path)
    log, _ = compiled(tmp_path / "report" / "paper", "paper")
    assert "accuracy-paper-s4: letters are smaller than 6 pt" in log
    assert "Overfull" not in log


def test_text_is_set_as_it_stands(tmp_path: Path) -> None:
    """In the encoding OT1, in which < > | " and pairs of hyphens are other characters, too."""
    rows = [[escape("[v]"), "1"], [escape(HOSTILE), "1"]]
    text = escape(HOSTILE) + tabular("lr", [escape(HOSTILE), "x"], [rows])
    document = f"\\documentclass{{article}}\\usepackage{{booktabs}}\\begin{{document}}{text}"
    (tmp_path / "t.tex").write_text(f"{document}{escape(HOSTILE)}\\end{{document}}")
    _, shown = compiled(tmp_path, "t")
    assert shown.count(as_printed(HOSTILE)) == 4


def test_figures_have_the_columns_width_and_truetype_fonts(tmp_path: Path) -> None:
    runs = [run("tnn", "listops"), run("s4", "listops")]
    save_all(tmp_path, runs)
    for one in runs:
        write_metrics(tmp_path, one, [30.0, 40.0])
    paper(tmp_path)
    figures = list((tmp_path / "report" / "paper" / "figures").iterdir())
    assert len(figures) == 4, "a bubble plot, and learning over steps, seconds and FLOPs"
    before = [path.read_bytes() for path in figures]
    for content in before:
        assert b"/Type3" not in content
        assert b"/FontFile2" in content
        (box,) = re.findall(rb"/MediaBox \[ ?0 0 ([\d.]+) ", content)
        assert 344 < float(box) / 72 * 72.27 <= 345
    paper(tmp_path)
    assert [path.read_bytes() for path in figures] == before


@pytest.mark.parametrize("width", [345, 234])
def test_a_bubble_plot_has_at_most_eight_labels(tmp_path: Path, width: int) -> None:
    names = [f"mixer-{k:02}" for k in range(12)]
    runs = [
        record(mixer=name, test_accuracy=40.0 + k, steps_per_second=2.0 + k % 5, config_hash=name)
        for k, name in enumerate(names)
    ]
    data = ReportData(Results(save_all(tmp_path, runs)), ReportOptions(relative_to=names[0]))
    (figure,) = bubble_figures(data.boards[0], names[0], data.styles, "x")
    with column_style(width):
        drawn = draw_for_column(figure)
        texts = [[text.get_text() for text in legend.get_texts()] for legend in drawn.legends]
        (legend,) = [names for names in texts if "MiB" not in names[0]]
        labels = [text.get_text() for text in drawn.axes[0].texts if text.get_text()]
        assert sorted(labels) == [names[0], *names[-7:]], "the ring, and the best"
        assert sorted([*labels, *legend]) == names
        assert not overlaps(drawn)


@pytest.mark.slow
def test_figures_of_the_shipped_runs_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr(module, "pdf", lambda figure, _: drawn.append(figure) or b"")
    module.write_paper(Results(ROOT / "results" / "shipped"), module.PaperOptions(), tmp_path)
    assert len(drawn) > 20
    with column_style(345):
        faults = {figure.slug: overlaps(draw_for_column(figure)) for figure in drawn}
    assert not {slug: found for slug, found in faults.items() if found}


def test_what_a_paper_leaves_out_is_named_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unofficial = {"source": "unofficial", "fingerprint": "u", "sizes": {"train": 1}}
    save_all(tmp_path, [
        run("tnn", "listops"), run("s4", "listops"), VARIANT, next_token_run(2.0),
        run("Gated", "listops", preset="quick"), run("Other", "listops", data=unofficial),
        run("Failed", "listops", status="diverged"), run("Slow", "listops", test_accuracy=17.0),
        run("Elsewhere", "listops", device="NVIDIA H200"),
        run("Unclocked", "listops", steps_per_second=None),
    ])  # fmt: skip
    paper(tmp_path)
    text = " ".join(capsys.readouterr().out.split())
    setting = "Preset paper, protocol s4"
    for line in (
        f"{setting}: 1 with changed settings (--rows mixers,variants)",
        f"{setting}, results on other data only (unofficial data instead of official): Other",
        f"{setting}, no results at this preset and protocol: Gated",
        f"{setting}, not in the bubble plots, because no result is better than chance: "
        "Slow; Failed",
        f"{setting}, not in the bubble plots, because they ran on NVIDIA H200, and tnn has no "
        "result to compare with there: Elsewhere",
        f"{setting}, not in the bubble plots, because no training speed is known where the result "
        "is better than chance: Unclocked",
        "Results in bits instead of accuracies: lm",
    ):
        assert line in text
    document = (tmp_path / "report" / "paper" / "paper.tex").read_text()
    assert f"% Left out: {setting}, no results at this preset and protocol: Gated\n" in document
    paper(tmp_path, "--rows", "tnn,gated")
    text = " ".join(capsys.readouterr().out.split())
    assert "protocol: gated " in text
    assert "Other" not in text, "nobody asked for it"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "tnm"], "--rows: unknown row 'tnm'; did you mean tnn?"),
        (["--rows", "t"], "--rows t: 2 names begin with it (tnn; transformer); write more"),
        (["--rows", "variants"], "there are no runs of these"),
        (["--columns", "average"], "--columns average: no result of --rows mixers is there"),
        (["--columns", "lisptops"], "did you mean listops?"),
        (["--published", "TNM"], "did you mean TNN?"),
        (["--relative-to", "tnm"], "--relative-to: unknown mixer"),
        (["--precision", "9"], "invalid choice: 9"),
        (["--width", "12"], "expected 150 to 1000 points"),
        (["--check"], "--check has no effect with --paper"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    save_all(tmp_path, [run("tnn", "listops"), run("transformer", "listops")])
    try:
        assert report.main(["--results-dir", str(tmp_path), "--paper", *arguments]) == 2
    except SystemExit as end:
        assert end.code == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]


def test_what_others_wrote_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_all(tmp_path, [run("tnn", "listops"), run("s4", "listops"), run("s4", "text")])
    out = tmp_path / "paper"
    arguments = ["--results-dir", str(tmp_path), "--paper", "--out", str(out)]
    assert report.main(arguments) == 0
    (out / "tables" / "mine.tex").write_text("the user's")
    assert report.main([*arguments, "--rows", "tnn"]) == 0
    assert not list((out / "figures").iterdir()), "one mixer makes no figure of these records"
    assert (out / "tables" / "mine.tex").read_text() == "the user's"
    (out / ".lra-paper").unlink()
    assert report.main(arguments) == 2
    assert "is not this command's" in capsys.readouterr().err
