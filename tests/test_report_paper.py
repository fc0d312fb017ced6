"""report.py --paper: what it shows, and that it fits a column of LaTeX's article."""

from __future__ import annotations

import itertools
import re
import shutil
import string
import subprocess
from pathlib import Path

import pytest

import report
from conftest import ROOT
from figure_checks import overlaps
from lra.record.run import RunRecord
from lra.report.boards.board import boards
from lra.report.boards.ranking import ranks, rounded
from lra.report.boards.results import Results
from lra.report.boards.row_names import complete
from lra.report.chapters import ReportData, ReportOptions
from lra.report.figures.bubbles import bubble_figures
from lra.report.paper.choice import choose
from lra.report.paper.table import PaperTable
from lra.report.paper.write import COLUMN, PaperOptions, column_style, draw_for_column, write_paper
from lra.report.tables.latex import escape
from lra.report.tables.table import Column, Entry, Table, text_column
from lra.runtime.errors import UserError
from made_results import MIXERS, TASKS, next_token_run, record, save_all, write_metrics

ALL_ROWS = "mixers,variants,baselines,published"
ODD = r"a_b & c% $1 #2 {x} ~ ^ \ <b> | é ± ł 模 «ð»"


def run(mixer: str, task: str, seed: int = 0, **changes: object) -> RunRecord:
    length, chance = TASKS[task]
    number = MIXERS.index(mixer) if mixer in MIXERS else len(MIXERS)
    # Better by mixer and by seed, in steps of a twentieth of a percent.
    accuracy = chance + 10 + 2 * number + 1.3 * seed
    values: dict[str, object] = {
        "mixer": mixer, "task": task, "seed": seed, "run_id": f"a-s{seed}", "length": length,
        "test_accuracy": round(20 * accuracy) / 20, "baselines": {"majority class": chance},
        "data": {"source": "official", "fingerprint": task, "sizes": {"train": 1}},
        "steps_per_second": 1.0 + number, "config_hash": f"{mixer}{task}",
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
    return {line[0]: line[1:] for line in lines}


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        ([], ["fd-tnn", "tnn", "transformer"]),
        (["--rows", "tnn,FD"], ["tnn", "fd-tnn"]),
        (["--rows", "tra,base"], ["transformer", "majority class"]),
        (["--rows", "fd-tnn,variants"], ["fd-tnn"]),
        (["--rows", "variants"], ["tnn (mixer.decay=0.99, model.norm=layer)"]),
        (["--rows", "tnn (mixer.decay=0.99, model.norm=layer),fd-tnn"],
         ["tnn (mixer.decay=0.99, model.norm=layer)", "fd-tnn"]),
        (["--rows", "tnn,published"], ["tnn", "TNN", "TNN (rerun by SKI authors)"]),
        (["--rows", "tnn", "--published", "S5"], ["tnn", "S5"]),
    ],
)  # fmt: skip
def test_rows_are_chosen(tmp_path: Path, given: list[str], labels: list[str]) -> None:
    runs = [run(mixer, "listops") for mixer in ("tnn", "fd-tnn", "transformer")]
    save_all(tmp_path, [*runs, VARIANT])
    (table,) = paper(tmp_path, *given).values()
    found = [name for name, cells in rows_of(table).items() if cells and name != "mixer"]
    assert found == labels


def test_columns_are_chosen(tmp_path: Path) -> None:
    save_all(tmp_path, every_task(1))

    def headings(*given: str) -> list[str]:
        (table,) = paper(tmp_path, *given).values()
        return rows_of(table)["mixer"]

    assert headings() == [*TASKS, "mean of 6"]
    assert headings("--columns", "pathf,TEXT") == ["pathfinder", "text"]
    assert headings("--columns", "mean of 5,tasks") == ["mean of 5", *TASKS]


def test_an_average_needs_whole_rows(tmp_path: Path) -> None:
    runs = every_task(1)
    save_all(tmp_path, [one for one in runs if (one.mixer, one.task) != ("tnn", "pathx")
                        and (one.mixer, one.task) != ("s4", "text")])  # fmt: skip
    rows = rows_of(paper(tmp_path)["accuracy-paper-s4"])
    assert rows["mixer"][-1] == "mean of 5", "most rows have it"
    assert rows["s4"][-1] == "--"
    assert rows["tnn"][-1] != "--"
    shutil.rmtree(tmp_path / "runs" / "image")
    assert "mean" not in rows_of(paper(tmp_path)["accuracy-paper-s4"])["mixer"][-1]


def test_seeds_are_said_once_and_exceptions_marked(tmp_path: Path) -> None:
    runs = [run(mixer, "listops", seed) for mixer in ("tnn", "s4") for seed in range(3)]
    save_all(tmp_path, runs)
    (table,) = paper(tmp_path).values()
    assert "deviation over 3 seeds. " in table
    assert "(n=" not in table
    assert rows_of(table)["s4"] == [r"\textbf{36.3}\,{\scriptsize$\pm$1.3}"]
    save_all(tmp_path, [
        run("mean", "listops"),
        run("fd-tnn", "listops", test_accuracy=17.0),
        run("ski-tnn", "listops", status="diverged"),
    ])  # fmt: skip
    (table,) = paper(tmp_path).values()
    assert "over 3 seeds where not marked" in table
    rows = rows_of(table)
    assert rows["fd-tnn"] == [r"17.0\textsuperscript{\scriptsize $\dagger$a}"]
    assert rows["mean"] == [r"\textbf{37.0}\textsuperscript{\scriptsize a}"]
    assert rows["ski-tnn"] == [r"--\textsuperscript{\scriptsize b}"]
    notes = {r"$\dagger$": "at chance", "a": "1 seed", "b": "diverged"}
    assert "; ".join(rf"\textsuperscript{{{s}}}{text}" for s, text in notes.items()) in table


def test_ranks_are_of_what_is_printed(tmp_path: Path) -> None:
    accuracies = {"tnn": 40.02, "s4": 40.04, "mean": 39.0}
    save_all(tmp_path, [run(m, "listops", test_accuracy=a, test_total=10_000)
                        for m, a in accuracies.items()])  # fmt: skip
    rows = rows_of(paper(tmp_path)["accuracy-paper-s4"])
    assert rows["tnn"] == rows["s4"] == [r"\textbf{40.0}"]
    assert rows["mean"] == [r"\underline{39.0}"]
    rows = rows_of(paper(tmp_path, "--precision", "2")["accuracy-paper-s4"])
    assert (rows["s4"], rows["tnn"]) == ([r"\textbf{40.04}"], [r"\underline{40.02}"])


def test_published_rows_stand_apart_from_reduced_presets(tmp_path: Path) -> None:
    save_all(tmp_path, [run("tnn", "listops"), run("tnn", "text", preset="quick")])
    tables = paper(tmp_path, "--rows", "tnn,published")
    assert tables.keys() == {"accuracy-paper-s4", "accuracy-quick-s4", "published"}
    assert "TNN" in rows_of(tables["accuracy-paper-s4"])
    assert "TNN" not in rows_of(tables["accuracy-quick-s4"])
    assert rows_of(tables["published"])["TNN"] == ["61.0", "87.9"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "tnm"], "--rows: unknown row 'tnm'; did you mean tnn?"),
        (["--rows", "t"], "--rows t: 2 names begin with it (tnn; transformer); write more"),
        (["--rows", ""], "unknown row ''"),
        (["--rows", "baselines"], "there are no runs of these"),
        (["--columns", "average"], "--columns average: no result of --rows mixers is there"),
        (["--columns", "lisptops"], "did you mean listops?"),
        (["--columns", "mean"], "--columns mean: 2 names begin with it (mean of 5; mean of 6)"),
        (["--published", "TNM"], "did you mean TNN?"),
        (["--relative-to", "tnm"], "--relative-to: unknown mixer"),
        (["--precision", "9"], "invalid choice: 9"),
        (["--width", "12"], "expected 150 to 1000 points"),
        (["--compare", "tnn", "s4"], "--compare has no effect with --paper"),
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


def test_flags_of_a_paper_need_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(["--results-dir", str(tmp_path), "--rows", "tnn"]) == 2
    assert "--rows has no effect without --paper" in capsys.readouterr().err


def test_the_longest_name_wins_over_its_beginning() -> None:
    assert complete("TNN", ["tnn", "tnn (x)"], "row", "--rows") == "tnn"
    with pytest.raises(UserError):
        complete("tnn ", ["tnn (x)", "tnn [y]"], "row", "--rows")


def test_what_others_wrote_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_all(tmp_path, [run("tnn", "listops"), run("s4", "listops"), run("s4", "text")])
    out = tmp_path / "paper"
    arguments = ["--results-dir", str(tmp_path), "--paper", "--out", str(out)]
    assert report.main(arguments) == 0
    mine = out / "tables" / "mine.tex"
    mine.write_text("the user's")
    assert report.main([*arguments, "--rows", "tnn"]) == 0
    assert not list((out / "figures").iterdir()), "one mixer makes no figure of these records"
    assert mine.read_text() == "the user's"
    (out / ".lra-paper").unlink()
    assert report.main(arguments) == 2
    assert "is not this command's" in capsys.readouterr().err


def test_where_all_runs_have_changed_settings_the_rows_to_ask_for_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_all(tmp_path, [VARIANT])
    assert report.main(["--results-dir", str(tmp_path), "--paper"]) == 2
    assert "1 rows have changed settings, see --rows variants" in capsys.readouterr().err
    assert rows_of(paper(tmp_path, "--rows", "variants")["accuracy-paper-s4"])


def test_figures_have_the_columns_width_and_truetype_fonts(tmp_path: Path) -> None:
    runs = [run("tnn", "listops"), run("s4", "listops")]
    save_all(tmp_path, runs)
    for one in runs:
        write_metrics(tmp_path, one, [30.0, 40.0])
    paper(tmp_path)
    figures = list((tmp_path / "report" / "paper" / "figures").iterdir())
    assert len(figures) == 4, "a bubble plot, and learning over steps, seconds and FLOPs"
    for path in figures:
        content = path.read_bytes()
        assert b"/Type3" not in content
        assert b"/FontFile2" in content
        (box,) = re.findall(rb"/MediaBox \[ ?0 0 ([\d.]+) ", content)
        assert COLUMN - 1 < float(box) / 72 * 72.27 <= COLUMN
    before = [path.read_bytes() for path in figures]
    paper(tmp_path)
    assert [path.read_bytes() for path in figures] == before


@pytest.mark.slow
def test_figures_of_the_shipped_runs_can_be_read(tmp_path: Path) -> None:
    from lra.report.paper import write as module

    results = Results(ROOT / "results" / "shipped")
    drawn = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "pdf", lambda figure, _: drawn.append(figure) or b"")
        write_paper(results, PaperOptions(), tmp_path)
    assert len(drawn) > 20
    with column_style(COLUMN):
        assert {figure.slug: overlaps(draw_for_column(figure)) for figure in drawn} == {
            figure.slug: [] for figure in drawn
        }


def compiled(folder: Path, name: str) -> str:
    """Compile a document; return LaTeX's log."""
    if shutil.which("pdflatex") is None:
        pytest.skip("needs pdflatex")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    log = (folder / f"{name}.log").read_text(errors="replace")
    assert done.returncode == 0, log[-2000:]
    return log


def tables_alone(folder: Path, width: float) -> tuple[list[float], str]:
    """Compile the tables of a paper; return the widths of those that are shrunk, and the log."""
    inputs = [f"\\input{{{path}}}" for path in sorted((folder / "tables").iterdir())]
    lines = [
        "\\documentclass{article}\\usepackage{booktabs,graphicx}",
        f"\\setlength{{\\textwidth}}{{{width}pt}}\\pdfcompresslevel=0 \\pdfobjcompresslevel=0",
        "\\let\\shrink\\resizebox",
        "\\renewcommand{\\resizebox}[3]{\\typeout{SHRUNK \\the\\wd0}\\shrink{#1}{#2}{#3}}",
        "\\begin{document}",
        *inputs,
        "\\end{document}",
    ]
    (folder / "all.tex").write_text("\n".join(lines))
    log = compiled(folder, "all")
    return [float(text) for text in re.findall(r"SHRUNK ([\d.]+)pt", log)], log


@pytest.mark.parametrize("width", [345, 397, 234])
@pytest.mark.parametrize(("seeds", "precision"), [(1, 1), (3, 2)])
def test_tables_fit_the_column_with_letters_of_6_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, seeds: int, precision: int
) -> None:
    """Six tasks, an average, variants, baselines and published rows."""
    monkeypatch.setattr("lra.report.paper.write.pdf", lambda *_: b"")
    save_all(tmp_path, [*every_task(seeds), VARIANT])
    options = PaperOptions(rows=ALL_ROWS, width=width, precision=precision)
    write_paper(Results(tmp_path), options, tmp_path / "paper")
    widths, log = tables_alone(tmp_path / "paper", width)
    assert "Overfull" not in log
    fonts = (tmp_path / "paper" / "all.pdf").read_bytes()
    smallest = min(map(int, re.findall(rb"/FontName /\w+\+CM[A-Z]+(\d+)", fonts)))
    assert smallest * width / max([width, *widths]) >= 6


def test_wide_letters_are_no_smaller(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    labels = string.ascii_uppercase, "mmmm=mmmm mmmm", "%&+= %&+= %&+=", "模型 模型"
    for i, label in enumerate(labels):
        columns = [text_column("MIXER", [label]), *[Column("WMQAT", [Entry("", 100.0)])] * 7]
        text = PaperTable(f"t{i}", "", columns, {"": 1}, {}).latex(234)
        (tmp_path / "tables" / f"t{i}.tex").write_text(text)
    widths, _ = tables_alone(tmp_path, 234)
    assert max([234, *widths]) <= 234 * 7 / 6


def test_columns_are_split_where_letters_would_be_too_small() -> None:
    entry = Entry("", 60.4, deviation=0.9, remarks=["diverged"], seeds=3, is_ranked=True)
    columns = [Column(name, [entry, entry], 1) for name in [*TASKS, "mean"]]
    label = "tnn (mixer.decay=0.99, model.norm=layer)"
    table = PaperTable("t", "", [text_column("mixer", [label, "s4"]), *columns], {"": 2}, {}, 3)
    parts = [rows_of(part) for part in table.latex(234).split("\\begin{table}")[1:]]
    assert [name for part in parts for name in part["mixer"]] == [*TASKS, "mean"]
    assert len({len(part["mixer"]) for part in parts[:-1]}) == 1 < len(parts)
    for part in parts:
        assert part[r"\quad model.norm=layer)"] == [], "long labels go on in a further line"
    assert label in table.latex(1000)
    assert "Further columns of Table~\\ref{tab:t}." in table.latex(234)
    assert "Further columns" not in table.latex(1000)


def test_numbers_stand_below_each_other() -> None:
    column = Column("x", [Entry("", value) for value in (9.5, 45.0, 100.0)] + [Entry()], 1)
    table = PaperTable("t", "", [text_column("m", list("abcd")), column], {"": 4}, {})
    rows = rows_of(table.latex(COLUMN))
    assert rows["a"] == [r"\phantom{00}9.5"]
    assert rows["b"] == [r"\phantom{0}45.0"]
    assert (rows["c"], rows["d"]) == (["100.0"], ["--"])


def test_the_document_compiles_without_an_overfull_box(tmp_path: Path) -> None:
    odd = run("tnn", "text", run_id="o", overrides=[f"mixer.odd='{ODD}'"], config_hash="o")
    save_all(tmp_path, [*every_task(3), VARIANT, odd])
    paper(tmp_path, "--rows", ALL_ROWS)
    log = compiled(tmp_path / "report" / "paper", "paper")
    assert "Output written on paper.pdf" in log.replace("\n", "")
    assert "Overfull" not in log


def test_text_is_set_as_it_stands(tmp_path: Path) -> None:
    """In LaTeX's usual encoding, in which < > | " and pairs of hyphens are other characters."""
    if shutil.which("pdftotext") is None:
        pytest.skip("needs pdftotext")
    odd = r"""a<b >c|d "e" --f ---g \h {i} j_k & l% $m #n ~o ^p [q] *r ± – ?`s !`t ,,u"""
    text = Table("t", odd, odd, [text_column(odd, ["[v]", odd]), text_column("x", "11")]).latex()
    document = f"\\documentclass{{article}}\\usepackage{{booktabs}}\\begin{{document}}{text}"
    (tmp_path / "t.tex").write_text(f"{document}{escape(odd)}\\end{{document}}")
    compiled(tmp_path, "t")
    command = ["pdftotext", "-raw", "t.pdf", "-"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    # An underscore is a rule to LaTeX; ticks, tildes and circumflexes have characters of their own.
    expected = "".join(odd.translate(str.maketrans("`~^", "‘˜ˆ", "_")).split())
    assert "".join(shown.split()).count(expected) == 5


def test_choices_name_boards_of_all_presets() -> None:
    found = boards([run("tnn", "listops"), run("s4", "listops", preset="quick")])
    choice = choose(found, "s4,tnn", "tasks", None)
    assert [list(choice.board(board).rows) for board in found] == [["tnn"], ["s4"]]


def test_halves_are_rounded_as_they_are_written() -> None:
    assert [rounded(value, 1) for value in (54.55, 46.45, 0.05, 99.95)] == [
        "54.6", "46.5", "0.1", "100.0"
    ]  # fmt: skip
    assert ranks([54.55, 54.64, 50.0], 1) == {0: "best", 1: "best", 2: "second"}


def test_what_a_paper_leaves_out_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lra.report.paper.write.pdf", lambda *_: b"")
    unofficial = {"source": "unofficial", "fingerprint": "u", "sizes": {"train": 1}}
    runs = [one for one in every_task(1) if (one.mixer, one.task) != ("tnn", "pathx")]
    save_all(tmp_path, [*runs, VARIANT, run("Gated", "listops", preset="quick"),
                        run("Other", "listops", data=unofficial), next_token_run(2.0),
                        run("Failed", "listops", status="diverged")])  # fmt: skip
    paper(tmp_path)
    text = " ".join(capsys.readouterr().out.split())
    setting = "Preset paper, protocol s4"
    for line in (
        f"{setting}, changed settings (shown by --rows mixers,variants): tnn (mixer.decay=0.99, "
        f"model.norm=layer) {setting}",
        f"{setting}, results on other data only (unofficial data instead of official): Other ",
        f"{setting}, no results at this preset: Gated ",
        f"{setting}, no mean of 5, as there is no result, or a failed seed, on listops, text, "
        "retrieval, image, pathfinder: Failed ",
        f"{setting}, not in the bubble plots, as no task has both a result better than chance and "
        "a speed: Failed ",
        "Results in bits instead of accuracies: lm ",
    ):
        assert line in text
    document = (tmp_path / "report" / "paper" / "paper.tex").read_text()
    assert f"% Left out: {setting}, no results at this preset: Gated\n" in document
    paper(tmp_path, "--rows", "tnn,mixers,variants", "--preset", "paper")
    text = capsys.readouterr().out
    assert "Gated" not in text, "nothing is known of it there"
    assert "changed settings" not in text
    paper(tmp_path, "--rows", "tnn,gated")
    text = " ".join(capsys.readouterr().out.split())
    assert f"{setting}, no results at this preset: gated " in text
    assert "s4 " not in text.replace("protocol s4", ""), "nobody asked for it"


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


def test_few_bubbles_need_no_legend(tmp_path: Path) -> None:
    runs = [run(name, "listops") for name in ("tnn", "s4")]
    data = ReportData(Results(save_all(tmp_path, runs)), ReportOptions())
    (figure,) = bubble_figures(data.boards[0], "tnn", data.styles, "x")
    with column_style(COLUMN):
        drawn = draw_for_column(figure)
    assert {text.get_text() for text in drawn.axes[0].texts} - {""} == {"tnn", "s4"}
    assert [legend.get_texts()[0].get_text()[:4] for legend in drawn.legends] == ["peak"]
