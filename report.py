"""Write the results as Markdown: `python report.py --help`."""

from __future__ import annotations

import sys
from pathlib import Path

from lra.cli import Parser, carry_out, write_out

NOTES = """
Measured: percent of the test set, mean ± standard deviation over n seeds; a run that is not
done is a word. Published: as printed by the source named, on its own hardware and protocol
(results/sources.yaml); FAIL means at chance. Missing is a dash.
"""


def report(results_dir: Path) -> int:
    """Print both tables; return 1 if a record could not be read."""
    from lra.errors import UserError
    from lra.record import all_records
    from lra.tables import accuracy_table, runs_table
    from tasks.progress import say

    if not results_dir.is_dir():
        raise UserError(f"--results-dir: there is no folder {results_dir}")
    records, faults = all_records(results_dir)
    runs = runs_table(records) if records else "None yet.\n"
    write_out(f"## Accuracy\n{NOTES}\n{accuracy_table(records)}\n## Runs\n\n{runs}")
    for fault in faults:
        say(f"report.py: warning: left out: {fault}")
    return 1 if faults else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = Parser(description="Tabulate all runs beside published results.")
    parser.add_argument("--results-dir", type=Path, default=Path("results"))
    options = parser.parse_args(arguments)
    return carry_out("report.py", lambda: report(options.results_dir))


if __name__ == "__main__":
    sys.exit(main())
