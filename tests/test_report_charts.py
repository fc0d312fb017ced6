"""Charts: their points have the numbers of runs, and figures are drawn of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lra.record.scores import wilson_interval
from lra.report.charts import bubbles_of_board
from lra.report.data import Data
from lra.report.drawing import Figure, figures_of_table
from lra.report.styles import assign_styles, styles_of_data
from lra.report.tables.table import Column, Line, Table, number_entry, text_column
from made_results import record, save_all


def texts_in(svg: str) -> set[str]:
    return set(re.findall(r">([^<>]+)</text>", svg))


def test_points_have_the_numbers_of_their_runs_on_each_device(tmp_path: Path) -> None:
    runs = [
        record(test_accuracy=40.0, peak_memory_mib=400.0, train_seconds=120.0),
        record(mixer="s4", test_accuracy=50.0, steps_per_second=3.0),
        record(mixer="s4", test_accuracy=52.0, steps_per_second=5.0, seed=1, run_id="abc-s1"),
        record(mixer="fd-tnn", device="NVIDIA H200", test_accuracy=60.0, steps_per_second=30.0),
        record(mixer="mean", test_accuracy=17.0),
        record(mixer="hgrn", status="diverged"),
    ]
    data = Data(save_all(tmp_path, runs))
    chart = bubbles_of_board(data, data.boards[0])
    by_row = {point["row"]: point for point in chart.points}
    assert by_row.keys() == {"tnn", "s4", "fd-tnn", "mean"}, "not one that diverged"
    tnn, s4, gpu = (by_row[row] for row in ("tnn", "s4", "fd-tnn"))
    assert (tnn["score"], tnn["speed0"], tnn["memory0"], tnn["minutes0"]) == (40, 2.5, 400, 2)
    assert (tnn["low"], tnn["high"]) == wilson_interval(0.4, 2000), "of one seed"
    assert (s4["score"], s4["speed0"], s4["note"]) == (51, 4, "2 seeds")
    assert (s4["low"], s4["high"]) == pytest.approx((51 - 2**0.5, 51 + 2**0.5)), "of two seeds"
    assert ("speed0" in gpu, gpu["speed1"]) == (False, pytest.approx(30))
    assert by_row["mean"]["note"] == "1 seed, at chance"
    figure = Figure("f", "t", "c", chart, styles_of_data(data))
    assert chart.axes["x"] == "parameters", "which all rows have"
    svg = figure.svg()
    assert {*by_row, "test accuracy, %", "parameters"} <= texts_in(svg)
    assert svg == figure.svg(), "equal bytes"

    def digest(factor: float) -> str:
        points = [point | {"score": point["score"] * factor} for point in chart.points]
        return replace(figure, chart=replace(chart, points=points)).digest

    assert digest(1 + 1e-15) == figure.digest != digest(1 + 1e-5), "last digits do not count"


def test_a_figure_of_lines_has_a_legend_and_a_file(tmp_path: Path) -> None:
    line = Line("length", {"1": 1.0, "2": 2.0}, "accuracy, %")
    columns = [text_column("mixer", ["tnn", "s4"])]
    columns += [Column(name, [number_entry(40.0), number_entry(50.0)]) for name in line.places]
    (figure,) = figures_of_table(
        Table("t", "T", "C.", columns, lines=[line]), assign_styles(["tnn", "s4"])
    )
    assert {"tnn", "s4", "length, positions", "accuracy, %", "1", "2"} <= texts_in(figure.svg())
    assert figure.pdf(300).startswith(b"%PDF")
