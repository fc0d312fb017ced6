"""The runs of a results folder as a data frame."""

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
    """Return a row for each run of a results folder; what cannot be read is named in a warning.

    Columns are the fields of records, nested ones by names such as data.source, `path`, the run's
    folder, and every setting, config.train.lr for instance.

    Args:
        results_dir: folder with runs/.
        with_shipped: whether the runs in its folder shipped/ have rows, too.
    Raises: UserError if there is no such folder.
    """
    found, faults = read_runs(Path(results_dir), "results_dir", with_shipped=with_shipped)
    frame, without_settings = to_frame(found)
    for fault in faults:
        logger.warning(f"left out: {fault}")
    for fault in without_settings:
        logger.warning(f"left empty: {fault}")
    return frame
