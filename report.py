"""Write the results as Markdown: `python report.py --help`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

NOTES = """
Measured: percent of the test set, mean ± standard deviation over n seeds; a run that is not
done is a word. Published: as printed by the source named, on its own hardware and protocol
(results/sources.yaml); FAIL means at chance. Missing is a dash.
"""


def main(arguments: list[str] | None = None) -> int:
    """Print both tables; the exit code is 1 if a record could not be read."""
    parser = argparse.ArgumentParser(description="Tabulate all runs beside published results.")
    parser.add_argument("--results-dir", type=Path, default=Path("results"))
    options = parser.parse_args(arguments)
    from lra.record import all_records
    from lra.tables import accuracy_table, runs_table

    records, faults = all_records(options.results_dir)
    sys.stdout.write(f"## Accuracy\n{NOTES}\n{accuracy_table(records)}")
    if records:
        sys.stdout.write(f"\n## Runs\n\n{runs_table(records)}")
    for fault in faults:
        sys.stderr.write(f"report.py: warning: left out: {fault}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
