"""The file of the test data of shipped runs, by which contributions are checked."""

from itertools import islice

import pandas as pd

from lra.common.spreadsheets import write_csv
from lra.common.strict_yaml import plain
from lra.record.known_data import KnownData, digest_labels
from lra.report.data import Data
from lra.report.scores import group_by
from lra.report.windows import without_longer


def known_data_csv(data: Data) -> str:
    """Write a row for each data set that runs with predictions were tested on, as `KnownData`."""
    runs = [run for run in data.records if run.contribution is None and run.status == "done"]
    rows: list[list[object]] = []
    for key, same in sorted(group_by(runs, lambda run: (run.task, run.data.fingerprint)).items()):
        at_preset = (r for r in same if not without_longer(r).row_changes and r.label is None)
        sizes = [run.params for run in at_preset]
        tested = ((run, found) for run in same if (found := data.predictions(run)) is not None)
        for run, found in islice(tested, 1):
            row = [run.data.source, len(found.merits), digest_labels(found)]
            baselines = plain(dict(run.result.trivial_scores))
            rows.append([*key, *row, baselines, max(sizes, default=None)])
    frame = pd.DataFrame(rows, columns=[*KnownData.model_fields])
    return write_csv(frame.astype({"most_parameters": "Int64"}))
