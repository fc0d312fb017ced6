"""Speed and memory tables, and the exponents of time."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from figure_checks import legend_names, overlaps
from lra.report.boards.benchmarks import bench_boards
from lra.report.boards.results import Results
from lra.report.boards.speeds import speed_boards
from lra.report.data import ReportData, ReportOptions
from lra.report.figures.drawing import style
from lra.report.figures.scaling import fit_power_law, scaling_figures
from lra.report.figures.styles import assign_styles
from lra.report.tables.speed import memory_table, speed_table
from made_results import bench_record, record, save_all


def test_exponents_are_recovered() -> None:
    lengths = [1024, 2048, 4096, 16384]
    exact = fit_power_law(lengths, [100 * length**-1.25 for length in lengths])
    assert exact.exponent == pytest.approx(1.25)
    assert exact.error == pytest.approx(0, abs=1e-6)
    assert str(fit_power_law([1, 2, 4], [1.0, 0.5, 0.25])) == "time ~ n^1.00 ± 0.00"
    with pytest.raises(ValueError, match="3 or more"):
        fit_power_law([5, 5, 5], [1.0, 1.0, 1.0])


def test_speed_over_length_per_device() -> None:
    found = [
        bench_record(mixer=mixer, length=length, device=device, steps_per_second=1e4 / length)
        for mixer in ("tnn", "ski-tnn")
        for length in (1024, 2048, 4096)
        for device in ("CPU", "GPU")
    ]
    made = bench_boards(found)
    assert [board.device for board in made] == ["CPU", "GPU"]
    (drawn,) = scaling_figures(made[0], assign_styles(["tnn", "ski-tnn"]))
    with style():
        figure = drawn.draw()
        assert overlaps(figure) == []
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert set(legend_names(figure)) == {
        "tnn\ntime ~ n^1.00 ± 0.00", "ski-tnn\ntime ~ n^1.00 ± 0.00"
    }  # fmt: skip


def test_no_exponent_is_fitted_to_two_lengths() -> None:
    found = [bench_record(length=length, steps_per_second=1e4 / length) for length in (512, 1024)]
    (drawn,) = scaling_figures(bench_boards(found)[0], assign_styles(["tnn"]))
    with style():
        assert legend_names(drawn.draw()) == ["tnn"]
    with pytest.raises(ValueError, match="expected 3 or more"):
        fit_power_law([1, 2], [1.0, 0.5])


def test_two_devices_are_two_tables() -> None:
    runs = [record(), record(seed=1, device="GPU"), record(mixer="s4", steps_per_second=5.0)]
    made = speed_boards(runs)
    assert [board.device for board in made] == ["CPU", "GPU"]
    table = speed_table(made[0], "tnn", "t")
    assert [row[1] for row in table.rows] == ["5.00 (2.00 x)", "2.50 (1.00 x)"]
    assert all("(" not in row[1] for row in speed_table(made[0], "absent", "t").rows)


def test_speeds_of_other_settings_are_rows_of_their_own() -> None:
    (board,) = speed_boards([record(), record(seed=1, config_hash="b", steps_per_second=9.0)])
    assert list(board.rows) == ["tnn [settings abc]", "tnn [settings b]"]


def test_out_of_memory_is_a_word_in_the_speed_table() -> None:
    (board,) = speed_boards([record(status="oom")])
    assert speed_table(board, "tnn", "t").rows[0][1] == "oom"
    (board,) = speed_boards([record(), record(seed=1, status="oom", steps_per_second=9.0)])
    assert speed_table(board, "tnn", "t").rows[0][1] == "2.50 (1.00 x), 1 oom"


def test_memory_is_the_largest_and_speed_the_median() -> None:
    runs = [
        record(seed=seed, steps_per_second=speed, peak_memory_mib=100.0 * speed)
        for seed, speed in enumerate((1.0, 2.0, 9.0))
    ]
    (board,) = speed_boards(runs)
    assert speed_table(board, "absent", "t").rows[0][1] == "2.00"
    assert memory_table(board, "absent", "t").rows[0][1] == "900"


def test_two_lengths_of_other_settings_are_drawn(tmp_path: Path) -> None:
    runs = [
        record(run_id=f"{code}-s{length}", config_hash=code, length=length)
        for code in ("a", "b")
        for length in (1024, 2048)
    ]
    save_all(tmp_path, runs)
    data = ReportData(Results(tmp_path), ReportOptions())
    (drawn,) = [f for board in data.speed_boards for f in scaling_figures(board, data.styles)]
    assert drawn.svg()


def test_exponents_are_those_of_the_normal_equations() -> None:
    x, y = np.log([1, 2, 4, 8]), np.array([0.0, 1.0, 1.0, 3.0])
    found = fit_power_law([1, 2, 4, 8], list(np.exp(-y)))
    design = np.stack([x, np.ones(4)], axis=1)
    (slope, intercept), (squares,), *_ = np.linalg.lstsq(design, y)
    variance = squares / 2 * np.linalg.inv(design.T @ design)[0, 0]
    assert (found.exponent, found.intercept) == (pytest.approx(slope), pytest.approx(intercept))
    assert found.error == pytest.approx(math.sqrt(variance))
