"""Measure what range trained models use, for the figure of `range_used`.

    python -m results.findings.train_range --data-dir data results/runs/listops/s4d/RUN ...

The command writes `range-used/distances.csv` and `range-used/order.csv` next to this script. What
it measures replaces the rows of the same task and mixer. The runs are those of the leaderboard,
seed 0; their checkpoints are not shipped, so they are trained again first:

    python -m lra.sweep --preset budget --tasks listops,text,image --mixers conv,s4d,transformer
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import lra
from lra.range.__main__ import measure_range
from lra.results.findings.shared import FOLDER
from lra.runtime.cli import run_command

FILES = [FOLDER / "range-used" / f"{name}.csv" for name in ("distances", "order")]


def measure(folder: Path, data_dir: Path) -> list[pd.DataFrame]:
    """Measure a run: shares of all changes by distance, and accuracies by block."""
    run = lra.load(folder, data_dir=data_dir)
    influence, scores = measure_range(run)
    rows = pd.DataFrame(influence.by_octave(), columns=["distance", "change", "share"])
    octaves = np.log2(influence.distances).astype(int)
    rows["even_share"] = np.bincount(octaves, influence.weights) / influence.weights.sum()
    low, high = influence.interval
    rows = rows.assign(mean=influence.mean_distance, low=low, high=high)
    order = pd.DataFrame({"block": [*scores], "score": [*scores.values()]})
    names = {"task": run.record.task, "mixer": run.record.mixer, "run_id": run.record.run_id}
    return [table.assign(**names) for table in (rows, order)]


def main(arguments: list[str]) -> int:
    """Measure the runs of a command line."""
    _, data_dir, *folders = arguments
    for folder in folders:
        for path, new in zip(FILES, measure(Path(folder), Path(data_dir)), strict=True):
            path.parent.mkdir(exist_ok=True)
            old = pd.read_csv(path) if path.exists() else new[:0]
            is_other = (old["task"] != new["task"][0]) | (old["mixer"] != new["mixer"][0])
            table = pd.concat([old[is_other], new]).sort_values(["task", "mixer"], kind="stable")
            table.to_csv(path, index=False, float_format="%.4g")
    return 0


if __name__ == "__main__":
    sys.exit(run_command("train_range", lambda: main(sys.argv[1:])))
