"""Fail unless the quick run of TNN on ListOps learned what its preset promises."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lra.record import all_records

PROMISED_POINTS = 25.0


def main() -> None:
    """Check the newest record of the README's main job."""
    records, faults = all_records(Path("results"))
    quick = [r for r in records if (r.task, r.mixer, r.preset) == ("listops", "tnn", "quick")]
    if faults or not quick:
        sys.exit(f"no readable record of the main job: {faults}")
    record = quick[-1]
    accuracy = record.test_accuracy
    majority, root = record.baselines["majority class"], record.baselines["root operator"]
    wanted = max(majority + PROMISED_POINTS, root)
    shown = f"test accuracy {accuracy} %, promised above {wanted:.2f} % ({record.baselines})"
    if record.status != "done" or accuracy is None or accuracy <= wanted:
        sys.exit(f"the quick preset breaks its promise: {record.status}, {shown}")
    sys.stdout.write(f"the quick preset keeps its promise: {shown}, {record.wall_seconds:.0f} s\n")


if __name__ == "__main__":
    main()
