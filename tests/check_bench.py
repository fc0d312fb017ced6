"""Check that the benchmark left whole records of every command: `check_bench.py RESULTS_DIR`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from lra.record.benchmark import all_bench_records

records, faults = all_bench_records(Path(sys.argv[1]))
assert not faults, faults
found = {(record.mode, record.mixer) for record in records}
expected = {(mode, name) for mode in ("step", "forward", "op", "decode") for name in ("tnn", "s4")}
assert found == expected, found
values = [record.varied_changes for record in records if record.task == "lm"]
assert values == [{"mixer.rpe_layers": 1}, {"mixer.rpe_layers": 2}], values
for record in records:
    assert record.status == "done", record
    assert record.low_quartile and record.steps_per_second and record.high_quartile, record
    assert record.low_quartile <= record.steps_per_second <= record.high_quartile, record
    if record.mode == "decode":
        continue
    low, ratio, high = (
        record.ratio_low_quartile, record.ratio_to_reference, record.ratio_high_quartile
    )  # fmt: skip
    assert low and ratio and high and low <= ratio <= high, record
    assert record.peak_memory_mib and record.reference_peak_memory_mib, record
sys.stdout.write(f"{len(records)} measurements are whole\n")
