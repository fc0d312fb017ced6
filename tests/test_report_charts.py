"""Charts: their points have the numbers of runs, and figures are drawn of them."""

import itertools
import math
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lra.config.registry import MIXERS
from lra.report.charts import bubbles_of_board
from lra.report.data import Data
from lra.report.drawing import Figure, figures_of_table
from lra.report.placing import place_at_ends, place_beside
from lra.report.scores import Entry
from lra.report.styles import FAMILIES, GRAY, assign_styles, mixer_looks, styles_of_data
from lra.report.tables.table import Column, Line, Table, number_entry
from lra.statistics import wilson_interval
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


def test_a_caption_counts_rows_that_are_too_many_to_name() -> None:
    rows = [f"s4 (model.dim={n})" for n in range(14)]
    columns = [Column("mixer", [*map(Entry, rows)])]
    columns += [Column(n, [number_entry(float(i)) for i in range(14)]) for n in "12"]
    line = Line("s4", {"1": 1.0, "2": 2.0}, "accuracy, %")
    (figure,) = figures_of_table(Table("t", "T", "C.", columns, lines=[line]), assign_styles(rows))
    assert figure.caption.endswith(" Gray: 8 other rows.")


def test_a_figure_of_lines_names_the_best_rows_and_ones_own(tmp_path: Path) -> None:
    rows = ["mine", "tnn", "s4", "constructor", "s4d", "s5", "lru", "conv", "hgrn (model.dim=8)"]
    line = Line("constructor", {"1": 1.0, "2": 2.0}, "accuracy, %")
    columns = [Column("mixer", [Entry(row, is_own=row in ("mine", "constructor")) for row in rows])]
    columns += [
        Column(n, [*map(number_entry, [0.0, 10.0, 20.0, 0.0, 30.0, 50.0, 60.0, 60.0, 60.0])])
        for n in "12"
    ]
    table = Table("t", "T", "C.", columns, lines=[line])
    (figure,) = figures_of_table(table, assign_styles(rows))
    texts = texts_in(figure.svg())
    named = {"mine", "constructor", "s4", "s4d", "s5", "lru", "conv", "hgrn (model.dim=8)"}
    assert named | {"other rows", "state space", "length, positions", "accuracy, %"} <= texts
    assert "tnn" not in texts and figure.caption.endswith(" Gray: tnn.")
    assert figure.styles["tnn"]["colour"] == GRAY
    # Lines that end in one place have names that stand below each other.
    drawn = [point | {"y": point["accuracy, %"]} for point in figure.drawn_points]
    place_at_ends(drawn, figure.named, 0.05, is_logarithmic=False)
    places = sorted(point["name_y"] for point in drawn if "name" in point)
    assert all(high - low > 2.99 for low, high in itertools.pairwise(places))
    assert places[0] >= 0 and places[-1] <= 60
    assert figure.pdf(300).startswith(b"%PDF")


def test_every_mixer_has_the_colour_of_its_family_and_ones_own_have_others() -> None:
    rows = [*mixer_looks(), "Mine", "constructor"]
    assert {*mixer_looks()} == {*MIXERS.classes}
    looks = assign_styles(rows)
    assert looks["s4"]["colour"] == looks["lru"]["colour"] == FAMILIES["state space"]
    assert len({(look["colour"], look["shape"]) for look in looks.values()}) == len(rows) + 1
    own = {looks[name]["colour"] for name in ("Mine", "constructor")}
    assert len(own) == 2 and not own & {*FAMILIES.values()}


def test_names_of_bubbles_cover_nothing() -> None:
    place = random.Random(0).uniform
    points: list[dict[str, Any]] = [
        {"row": f"mixer-{k:02}", "size": 1.0, "x": place(1, 9), "y": place(1, 9)} for k in range(30)
    ]
    place_beside(points, (False, True), (400, 400), 200.0)
    assert [point["name"] for point in points] == [point["row"] for point in points]
    low, unit = min(p["x"] for p in points), 340 / (max(p["x"] for p in points) - min(
        p["x"] for p in points))  # fmt: skip
    logs = [math.log(point["y"]) for point in points]
    tall = 340 / (max(logs) - min(logs))
    spots = [(30 + unit * (p["x"] - low), 370 - tall * (y - min(logs)))
             for p, y in zip(points, logs, strict=True)]  # fmt: skip
    names = [(x + p["dx"], y + p["dy"]) for p, (x, y) in zip(points, spots, strict=True)]
    for one, other in itertools.combinations(names, 2):
        assert abs(one[0] - other[0]) > 50 or abs(one[1] - other[1]) >= 12.9
    radius = math.sqrt(200) / 2
    for (x, y), (a, b) in itertools.product(names, spots):
        assert abs(x - a) > 22 + radius or abs(y - b) > 6 + radius


def test_a_bubble_alone_has_its_name() -> None:
    points: list[dict[str, Any]] = [{"row": "tnn", "size": 1.0, "x": 1.0, "y": 1.0}]
    place_beside(points, (False, True), (400, 400), 200.0)
    assert points[0]["name"] == "tnn"


def test_names_without_room_are_left_out() -> None:
    points: list[dict[str, Any]] = [
        {"row": f"long-name-{k}", "size": 1.0, "x": k % 6, "y": k // 6, "own": k == 8}
        for k in range(36)
    ]
    place_beside(points, (False, False), (150, 150), 200.0)
    named = {k for k, point in enumerate(points) if point["name"]}
    assert {8, 35} <= named and len(named) < 20
