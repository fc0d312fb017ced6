"""The test data of shipped runs: results/known_data.csv, by which contributions are checked."""

import csv
import hashlib
import json
from collections.abc import Mapping

from lra.common.strict_yaml import parse_yaml
from lra.common.untrusted import read_text
from lra.goals.result import Predictions
from lra.record.schema import SHIPPED_RESULTS
from lra.schema import Count, Record, ShortText

KNOWN_DATA = SHIPPED_RESULTS.with_name("known_data.csv")


class KnownData(Record):
    """A data set that shipped runs were tested on, as a row of the file."""

    task: ShortText
    fingerprint: ShortText
    source: ShortText
    test_examples: Count
    labels: ShortText
    """Digest of labels and metadata of all test examples, see `digest_labels`."""
    baselines: dict[str, float]
    """Test accuracy in percent of trivial baselines, by name."""
    most_parameters: Count | None
    """Parameters of the largest shipped mixer at the settings of a preset; None without one."""


Known = Mapping[tuple[str, str], KnownData]
"""Known data sets by task and fingerprint."""


def digest_labels(predictions: Predictions) -> str:
    """Hash the labels and the metadata of all test examples in their order."""
    metadata = {name: column.tolist() for name, column in sorted(predictions.metadata.items())}
    text = json.dumps([predictions.labels.tolist(), metadata])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def read_known_data() -> Known:
    """Read the data sets that contributions can be of."""
    path, parsed = KNOWN_DATA, ("baselines", "most_parameters")
    rows = [
        KnownData.model_validate({**row, **{n: parse_yaml(row[n], path.name) for n in parsed}})
        for row in csv.DictReader(read_text(path).splitlines())
    ]
    return {(row.task, row.fingerprint): row for row in rows}
