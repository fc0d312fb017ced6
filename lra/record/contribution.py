"""What a contribution to the open leaderboard says of itself, and the marks that it has."""

import re
from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from lra.schema import FileName, Percent, PositiveCount, PrintableText, Record, ShortText

PROTOCOL_VERSION = 1
"""Version of the leaderboard's protocol; docs/open_board.md lists what changed in each."""
RANKED_SEEDS = 3
"""Number of seeds, from 0 on, that a contributed number needs for a rank."""
PRESET = "budget"
"""Preset of the shipped runs that have marks."""
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
"""The form of the name of a contribution."""
MarkName = Literal["files", "code", "fresh", "repeated"]
Division = Literal["closed", "open"]
Address = Annotated[str, Field(max_length=300, pattern=r"^https://[\w.-]+(/[\w.~/%#?=&+@-]*)?$")]


class Submission(Record):
    """The content of submission.yaml. Fields with a description are asked of the submitter."""

    title: ShortText = Field(description="title of the work")
    authors: list[ShortText] = Field(min_length=1, max_length=50, description="names of authors")
    paper: Address | Literal["none"] = Field(description="https address of the paper, or none")
    code: Address = Field(description="https address of the repository with the code")
    commit: str = Field(pattern=r"^[0-9a-f]{7,64}$", description="commit of that repository")
    settings_tried: PositiveCount = Field(
        description="number of settings that were tried on each task, submitted or not"
    )
    chosen_on: Literal["val", "test"] = Field(description="split that settings were chosen on")
    code_license: FileName = Field(description="SPDX name of the code's license, like Apache-2.0")
    results_license: Literal["CC0-1.0"] = "CC0-1.0"
    weights_license: Literal["CC0-1.0"] = "CC0-1.0"
    hardware: list[ShortText]
    """Devices of the runs, from their records."""
    protocol_version: int
    division: Division
    differences: list[PrintableText]
    """Why the division is open; empty if it is closed."""
    left_out: dict[ShortText, PrintableText]
    """Runs with the settings of submitted ones that are not submitted, with the reason."""


class Mark(Record):
    """What a maintainer found out about runs, or the withdrawal of a contribution."""

    mark: MarkName | Literal["withdrawn"]
    date: date
    digest: str
    """Digest of the files that it is about, see `lra.record.community.digest_of`."""
    evidence: list[PrintableText]
    fresh: dict[ShortText, Percent] = {}  # noqa: RUF012 (pydantic copies it)
    """Accuracy in percent on new examples, by the name of the run."""


class Contribution(Submission):
    """The contribution that a run came with, as the report shows it."""

    name: str = Field(pattern=f"^{NAME.pattern}$")
    withdrawn: Mark | None

    @property
    def shown_name(self) -> str:
        """The end of the names of its rows."""
        return f"{self.name} (withdrawn {self.withdrawn.date})" if self.withdrawn else self.name
