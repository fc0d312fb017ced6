"""Settings that differ from the published ones."""

from __future__ import annotations

from common.strict_yaml import plain
from lra.report.published.settings import list_differences
from lra.report.tables.table import Table, text_columns


def differences_table() -> Table:
    """Tabulate each setting that is not what its source states, with the reason."""
    rows = [
        [
            difference.owner,
            difference.setting,
            ", ".join(filter(None, [*difference.tasks, difference.condition])),
            plain(difference.entry.theirs),
            plain(difference.entry.value),
            difference.entry.why,
        ]
        for difference in list_differences()
    ]
    return Table(
        slug="settings",
        title="Settings that differ from the published ones",
        caption="Each row has the value that the source states, the value that this suite uses, "
        "and the reason. Rows that begin with `initial` are about the distribution that parameters "
        "are initialized from. The sources are in the settings files. All other published settings "
        "are used as published.",
        columns=text_columns(
            ["mixer or task", "setting", "where", "published", "ours", "reason"], rows
        ),
    )
