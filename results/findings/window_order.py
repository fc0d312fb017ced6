"""Print how far the order of mixers by effective window agrees with those by accuracy.

    python -m results.findings.window_order

Kendall's tau-b with its 95 % interval (bootstrap over mixers), and the pairs of mixers that are
tied in their windows. The runs are those of leaderboard.csv.
"""

import numpy as np
import pandas as pd

from lra.report.leaderboard import OPEN
from lra.results.findings.shared import FOLDER
from lra.statistics import bootstrap_interval

RESAMPLES = 2000


def load_windows() -> pd.DataFrame:
    """Load the effective window and the accuracies of each mixer, in the mean over seeds."""
    runs = pd.read_csv(FOLDER.parent / "leaderboard.csv")
    means = runs[runs["contribution"].isna()].groupby(["mixer", "task"])
    windows = means["effective_window"].mean().dropna().droplevel("task")
    return means["test_accuracy"].mean().unstack("task").assign(window=windows).dropna()


def main() -> None:
    """Print a line for each task."""
    frame = load_windows()
    counts = frame["window"].value_counts()
    tied, pairs = (int((n * (n - 1)).sum()) // 2 for n in (counts, np.array([len(frame)])))
    print(f"{len(frame)} mixers, {tied} of {pairs} pairs tied")
    for task in OPEN:

        def correlate(rows: np.ndarray, task: str = task) -> float:
            chosen = frame.iloc[rows]
            return float(chosen["window"].corr(chosen[task], method="kendall"))

        low, high = bootstrap_interval(correlate, len(frame), RESAMPLES)
        tau = correlate(np.arange(len(frame)))
        print(f"{task}: tau-b {tau:.2f} ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
