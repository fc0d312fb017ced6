"""Fail unless the quick run of TNN on ListOps learned what its preset promises."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lra.record.run import read_runs

PROMISED_POINTS = 25.0


def main(results_dir: Path) -> None:
    """Check the one record that the README's main job left in a fresh folder."""
    runs, faults = read_runs(results_dir)
    if faults or len(runs) != 1:
        sys.exit(f"expected one readable record, got {len(runs)}; {faults}")
    ((_, record),) = runs
    if (record.task, record.mixer, record.preset) != ("listops", "tnn", "quick"):
        sys.exit(f"the record is of {record.task}, {record.mixer}, {record.preset}")
    accuracy = record.test_accuracy
    baselines = record.result.trivial_scores
    majority, root = baselines["majority class"], baselines["root operator"]
    least = max(majority + PROMISED_POINTS, root)
    shown = f"test accuracy {accuracy} %, promised above {least:.2f} % ({baselines})"
    if record.status != "done" or accuracy is None or accuracy <= least:
        sys.exit(f"the quick preset breaks its promise: {record.status}, {shown}")
    sys.stdout.write(f"the quick preset keeps its promise: {shown}, {record.wall_seconds:.0f} s\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
