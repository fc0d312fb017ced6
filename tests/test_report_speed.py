"""Tables of measured speeds and memory, and the exponents of time over length."""

from __future__ import annotations

import pytest

from figure_checks import legend_names, overlaps
from lra.record.benchmark import BenchRecord
from lra.report.figures.drawing import style
from lra.report.figures.lines import line_figures
from lra.report.names import RowNames
from lra.report.styles import assign_styles
from lra.report.tables.speeds import speed_tables
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
