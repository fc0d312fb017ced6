"""The runs of a results folder as a pandas data frame."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from lra.api.arguments import PATH, SWITCH, check_arguments
from lra.record.frame import read_runs, to_frame

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)


@check_arguments("lra.records", results_dir=PATH, with_shipped=SWITCH)
def records(results_dir: Path | str = "results", *, with_shipped: bool = False) -> pd.DataFrame:
    """Load the runs of a results folder into a data frame with one row per run.

    The columns are the fields of a record (nested ones have names like data.source), each setting
    (config.train.lr), and `path`, the folder of the run. Files that cannot be read are named in a
    warning.

    Args:
        results_dir: folder in which runs/ is.
        with_shipped: whether to add the runs that come with the suite.
    Raises: UserError if there is no such folder.
    """
    found, faults = read_runs(Path(results_dir), "results_dir", with_shipped=with_shipped)
    frame, without_settings = to_frame(found)
    for fault in faults:
        logger.warning(f"left out: {fault}")
    for fault in without_settings:
        logger.warning(f"left empty: {fault}")
    return frame
