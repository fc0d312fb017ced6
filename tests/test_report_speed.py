"""Tables of measured speeds and memory, and the exponents of time over length."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from figure_checks import legend_names, overlaps
from lra.record.benchmark import BenchRecord
from lra.report.figures.drawing import style
from lra.report.figures.lines import fit_power_law, line_figures
from lra.report.names import RowNames
from lra.report.styles import assign_styles
from lra.report.tables.speeds import against_reference, speed_tables
from lra.report.tables.table import Table
from made_results import bench_record


def tables_of(*records: BenchRecord, relative_to: str = "tnn") -> list[Table]:
    return speed_tables(records, RowNames([], records), relative_to)


def over_lengths(*lengths: int, **changes: object) -> list[BenchRecord]:
    """Measure a time that is proportional to the length."""
    return [bench_record(length=n, steps_per_second=1e4 / n, **changes) for n in lengths]


@pytest.mark.parametrize("changes", [{"device": "GPU"}, {"measured_with": ("s4",)},
                                     {"precision": "bf16"}, {"mode": "forward"},
                                     {"overrides": ("model.dim=8",)}])  # fmt: skip
def test_only_what_was_measured_together_shares_a_table(changes: dict[str, object]) -> None:
    made = tables_of(bench_record(), bench_record(mixer="s4", **changes))
    assert sorted(table.columns[0].texts for table in made) == [["s4"], ["tnn"]]


def test_speeds_and_memory_are_relative_to_a_mixer_of_the_table() -> None:
    records = [
        bench_record(),
        bench_record(mixer="s4", steps_per_second=5.0, peak_memory_mib=250.0),
        bench_record(mixer="lru", status="oom", steps_per_second=None, peak_memory_mib=None),
    ]
    (table,) = tables_of(*records)
    assert table.rows == [
        ["lru", "oom", "oom"],
        ["s4", "5.00 (2.50 x)", "250 (0.50 x)"],
        ["tnn", "2.00 (1.00 x)", "500 (1.00 x)"],
    ]
    assert table.columns[1].entries[2].interval == (1.9, 2.1), "the quartiles"
    (alone,) = tables_of(*records, relative_to="mega")
    assert "(" not in "".join(text for row in alone.rows for text in row)


def test_pretraining_has_a_column_for_each_number_of_layers() -> None:
    speeds = {("tnn", 3): 3.0, ("tnn", 6): 2.0, ("fd-tnn", 3): 4.8, ("fd-tnn", 6): 4.0}
    records = [
        bench_record(
            mode="pretraining", task="lm", length=512, batch_size=1, mixer=mixer,
            objective=objective, rpe_layers=layers, rounds_rpe_layers=(3, 6),
            measured_with=("tnn", "fd-tnn"), steps_per_second=speed,
        )
        for objective, ((mixer, layers), speed) in itertools.product(
            ("next", "masked"), speeds.items()
        )
    ]  # fmt: skip
    causal, bidirectional = tables_of(*records)
    assert "causal, next tokens" in causal.title
    assert "bidirectional, masked tokens" in bidirectional.title
    found = {column.name: column.texts for column in causal.columns[:3]}
    assert found == {
        "mixer": ["fd-tnn", "tnn"],
        "lm 512 (batch 1), 3 encoder layers": ["4.80 (1.60 x)", "3.00 (1.00 x)"],
        "lm 512 (batch 1), 6 encoder layers": ["4.00 (2.00 x)", "2.00 (1.00 x)"],
    }


def test_all_that_was_compared_with_the_reference_is_in_one_table() -> None:
    ratio = {"ratio_to_reference": 2.0, "ratio_low_quartile": 1.9, "ratio_high_quartile": 2.1}
    memory = {"base_memory_mib": 300.0, "reference_peak_memory_mib": 900.0,
              "reference_base_memory_mib": 300.0}  # fmt: skip
    alone = {"task": None, "preset": None, "protocol": None, "channels": 4}
    records = [
        bench_record(**ratio, **memory),
        bench_record(mode="op", part="mixing", **alone, **ratio, **memory),
        bench_record(length=7),
    ]
    (table,) = against_reference(records, RowNames([], records))
    assert table.rows == [
        ["step, listops", "tnn", "8 x 1,024", "full", "fp32", "2.00 (1.90 to 2.10)", "56%"],
        ["mixing alone", "tnn", "8 x 1,024 x 4", "full", "fp32", "2.00 (1.90 to 2.10)", "33%"],
    ]
    assert against_reference(records[2:], RowNames([], records)) == []


def test_a_figure_of_speed_over_length_names_the_exponents() -> None:
    records = [
        *over_lengths(1024, 2048, 4096), *over_lengths(1024, 2048, 4096, mixer="s4"),
        *over_lengths(1024, 2048, mixer="lru"),
    ]  # fmt: skip
    (table,) = tables_of(*records)
    speed, memory = line_figures(table, assign_styles(table.methods))
    with style():
        for drawn in (speed, memory):
            figure = drawn.draw()
            assert overlaps(figure) == []
            assert (figure.axes[0].get_xscale(), figure.axes[0].get_yscale()) == ("log", "log")
        assert legend_names(memory.draw()) == ["lru", "s4", "tnn"]
        law = "time ~ n^1.00 ± 0.00"
        assert legend_names(speed.draw()) == ["lru", f"s4\n{law}", f"tnn\n{law}"]


def test_exponents_are_those_of_the_normal_equations() -> None:
    x, y = np.log([1, 2, 4, 8]), np.array([0.0, 1.0, 1.0, 3.0])
    found = fit_power_law([1, 2, 4, 8], list(np.exp(-y)))
    design = np.stack([x, np.ones(4)], axis=1)
    (slope, intercept), (squares,), *_ = np.linalg.lstsq(design, y)
    variance = squares / 2 * np.linalg.inv(design.T @ design)[0, 0]
    assert (found.exponent, found.intercept) == pytest.approx((slope, intercept))
    assert found.error == pytest.approx(math.sqrt(variance))
    with pytest.raises(ValueError, match="3 or more"):
        fit_power_law([5, 5, 5], [1.0, 1.0, 1.0])
