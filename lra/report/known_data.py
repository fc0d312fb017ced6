"""The file of the test data of shipped runs, by which contributions are checked."""

from __future__ import annotations

import pandas as pd

from lra.common.spreadsheets import write_csv
from lra.common.strict_yaml import plain
from lra.record.known_data import KnownData, digest_labels
from lra.report.data import Data
from lra.report.scores import group_by


def known_data_csv(data: Data) -> str:
    """Write a row for each data set that runs with predictions were tested on, as `KnownData`."""
    runs = [run for run in data.records if run.contribution is None and run.status == "done"]
    groups = group_by(runs, lambda run: (run.task, run.data.fingerprint))
    rows: list[dict[str, object]] = []
    for (task, fingerprint), same in sorted(groups.items()):
        tested = ((run, found) for run in same if (found := data.predictions(run)) is not None)
        run, predictions = next(tested, (None, None))
        if run is not None and predictions is not None:
            at_preset = [r.params for r in same if not r.row_changes and r.label is None]
            row = KnownData(
                task=task,
                fingerprint=fingerprint,
                source=run.data.source,
                test_examples=len(predictions.merits),
                labels=digest_labels(predictions),
                baselines=dict(run.result.trivial_scores),
                most_parameters=max(at_preset, default=None),
            )
            rows.append({**row.model_dump(), "baselines": plain(row.baselines)})
    frame = pd.DataFrame(rows, columns=[*KnownData.model_fields])
    return write_csv(frame.astype({"most_parameters": "Int64"}))
