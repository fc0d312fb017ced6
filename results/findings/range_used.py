"""Show what range trained models use: distances that matter, and accuracy on shuffled inputs.

    python -m results.findings.range_used
    python -m results.findings.range_used --data-dir data results/runs/listops/s4d/RUN ...

The second command measures runs first, and replaces the rows of the same task and mixer in
`range-used/distances.csv` and `range-used/order.csv`. The runs are those of the leaderboard, seed
0; their checkpoints are not shipped, so they are trained again before:

    python -m lra.sweep --preset budget --tasks listops,text,image --mixers conv,s4d,transformer
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import lra
from lra.range.__main__ import measure_range
from lra.report.styles import mixer_looks
from lra.results.findings.shared import FOLDER, save_figure
from lra.runtime.cli import Parser, add_flags, run_command

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


def draw() -> Figure:
    """Draw two panels for each task."""
    distances, order = map(pd.read_csv, FILES)
    tasks = [*dict.fromkeys(distances["task"])]
    figure = Figure(figsize=(3.2 * len(tasks) + 1.4, 5), layout="constrained")
    above, below = figure.subplots(2, len(tasks), squeeze=False)
    for column, task in enumerate(tasks):
        of_task = distances[distances["task"] == task]
        draw_lines(above[column], of_task, "distance", 100 * of_task["share"])
        even = of_task[of_task["mixer"] == of_task["mixer"].iloc[0]]
        look = {"color": "0.5", "linestyle": "--", "label": "all changes equal"}
        above[column].plot(even["distance"], 100 * even["even_share"], **look)
        above[column].set(title=task, xlabel="distance of at least, positions")
        of_task = order[order["task"] == task]
        draw_lines(below[column], of_task, "block", of_task["score"])
        below[column].set(xlabel="positions of a shuffled block")
    above[0].set_ylabel("share of all changes, %")
    below[0].set_ylabel("accuracy, %")
    lines = {line.get_label(): line for axes in above for line in axes.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="outside right upper")
    return figure


def draw_lines(axes: Axes, table: pd.DataFrame, x: str, y: pd.Series) -> None:
    """Draw a line for each mixer over powers of 2."""
    for mixer, rows in table.groupby("mixer"):
        _, colour, marker = mixer_looks()[str(mixer)]
        axes.plot(rows[x], y[rows.index], color=colour, marker=marker, label=str(mixer))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.minorticks_off()


def main(arguments: list[str]) -> int:
    """Measure the runs of a command line, and draw all that were measured."""
    about = "Measure runs, if any are given, and draw what range trained models use."
    parser = Parser(prog="python -m results.findings.range_used", description=about)
    parser.add_argument("runs", nargs="*", metavar="RUN", type=Path)
    add_flags(parser, "--data-dir")
    options = parser.parse_args(arguments)
    for folder in options.runs:
        for path, new in zip(FILES, measure(folder, options.data_dir), strict=True):
            old = pd.read_csv(path)
            is_other = (old["task"] != new["task"][0]) | (old["mixer"] != new["mixer"][0])
            table = pd.concat([old[is_other], new]).sort_values(["task", "mixer"], kind="stable")
            table.to_csv(path, index=False, float_format="%.4g")
    save_figure(draw, FOLDER / "range_used.svg")
    return 0


if __name__ == "__main__":
    sys.exit(run_command("range_used", lambda: main(sys.argv[1:])))
