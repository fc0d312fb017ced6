"""Tables of measured speeds and memory."""

import pytest

from lra.record.benchmark import BenchRecord
from lra.report.charts import lines_of_table
from lra.report.names import RowNames
from lra.report.tables.speeds import speed_tables
from lra.report.tables.table import Table
from made_results import bench_record


def tables_of(*records: BenchRecord, relative_to: str = "tnn") -> list[Table]:
    return speed_tables(records, RowNames([], records), relative_to)


@pytest.mark.parametrize("changes", [{"device": "GPU"}, {"measured_with": ("s4",)},
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


def test_a_chart_joins_speeds_and_memory_over_lengths() -> None:
    (table,) = tables_of(*(bench_record(length=n, steps_per_second=1e4 / n) for n in (1024, 2048)))
    (chart,) = lines_of_table(table)
    assert [field.name for field in chart.fields if field.is_logarithmic] == [
        "length, positions", "training speed, steps/s", "memory, MiB"
    ]  # fmt: skip
    speeds = [p["training speed, steps/s"] for p in chart.points if "memory, MiB" not in p]
    assert speeds == [1e4 / 1024, 1e4 / 2048]
