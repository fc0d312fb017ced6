"""The runs of a results folder as a pandas data frame."""

import io
import logging
from pathlib import Path

import pandas as pd

from lra.api.arguments import AnyPath, check_arguments
from lra.common.errors import UserError
from lra.common.untrusted import explain_errors
from lra.record.community import read_every_run
from lra.record.packed import has_file, read_file
from lra.record.run import read_runs
from lra.record.run_files import LARGEST_METRICS, to_frame
from lra.report.windows import rows_of_leaderboard

logger = logging.getLogger(__name__)


@check_arguments
def records(results_dir: AnyPath = "results", *, with_shipped: bool = False) -> pd.DataFrame:
    """Load the runs of a results folder into a data frame with one row per run.

    The columns are the fields of a record (nested ones have names like data.source), the 95 %
    interval of the test accuracy (test_low, test_high), each setting under its full name
    (train.lr), `overrides` (the settings that flags changed), `is_own` (false for a run that came
    with the suite), `contribution`, `division` and `marks` (those of the open leaderboard),
    `leaderboard_row` (the row of the leaderboard of these runs that a run counts in, empty if it
    counts in none), and `path`, the folder of the run. Files that cannot be read are named in a
    warning.

    Args:
        results_dir: folder in which runs/ is.
        with_shipped: whether to add the runs that come with the suite, contributed ones included.
    Raises: UserError if there is no such folder.
    """
    folder = Path(results_dir)
    runs, faults = (read_every_run if with_shipped else read_runs)(folder, "results_dir")
    for fault in faults:
        logger.warning(f"left out: {fault}")
    frame = to_frame(runs, folder)
    rows = rows_of_leaderboard([run for _, run in runs])
    frame["leaderboard_row"] = [rows.get(id(run), "") for _, run in runs]
    return frame


@check_arguments
def metrics(run: AnyPath) -> pd.DataFrame:
    """Load the metrics of a run into a data frame with one row per line of metrics.jsonl.

    Training and validation are logged in lines of their own, and share the columns step and
    seconds.

    Args:
        run: folder of the run, as in the column `path` of `lra.records`. It may be packed.
    Raises: UserError if there is no such file.
    """
    path = Path(run) / "metrics.jsonl"
    if not has_file(path):
        raise UserError(f"run: there is no {path}, expected the folder of a run")
    with explain_errors(str(path)):
        return pd.read_json(io.BytesIO(read_file(path, largest=LARGEST_METRICS)), lines=True)
