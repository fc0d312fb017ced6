"""What a chapter of the report is, and how its tables and figures are made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Flag, auto
from functools import cached_property
from typing import Any, Generic, TypeVar

from lra.record.run import RunRecord
from lra.report.boards.benchmarks import bench_boards
from lra.report.boards.board import Board, boards, leading_board, position_boards
from lra.report.boards.comparison import Comparisons, compare_all, find_method
from lra.report.boards.preset_speeds import PresetSpeeds, preset_speeds
from lra.report.boards.probes import Probe, probes
from lra.report.boards.results import Results
from lra.report.boards.row_names import RowNames
from lra.report.boards.slugs import slugify
from lra.report.boards.speeds import SpeedBoard, speed_boards
from lra.report.figures.drawing import ReportFigure
from lra.report.figures.styles import MethodStyles, assign_styles
from lra.report.published.rows import choose_published
from lra.report.tables.table import Table
from tasks.base import PROBES

DEFAULT_RELATIVE_TO = "tnn"


class Output(Flag):
    """Where a table or a figure appears."""

    PAGE = auto()
    """The page and the files of a report."""
    README = auto()
    """The blocks of README files, see `lra.report.page.readme`."""


PAGE, README = Output.PAGE, Output.README


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What a report is to show."""

    relative_to: str | None = None
    """Mixer that speeds are relative to; None: tnn, if it has run."""
    compare: Sequence[str] = ()
    published: str | None = None


class ReportData:
    """What the tables and figures of one report are made from.

    Raises: UserError for a mixer or a method that is not there.
    """

    def __init__(self, results: Results, options: ReportOptions) -> None:
        self.results = results
        self.options = options
        self.names = RowNames(results.records, results.bench)
        self.published = choose_published(options.published)
        self._subjects: dict[ChapterKind[Any], Sequence[Any]] = {}

    @cached_property
    def _others(self) -> list[RunRecord]:
        """The runs on other tasks than probes."""
        return [record for record in self.results.records if record.task not in PROBES]

    @cached_property
    def boards(self) -> list[Board]:
        """Results whose targets are examples."""
        return boards(self._others, self.names, self.results.is_own)

    @cached_property
    def position_boards(self) -> list[Board]:
        """Results whose targets are positions."""
        return position_boards(self._others, self.names, self.results.is_own)

    @cached_property
    def speed_boards(self) -> list[SpeedBoard]:
        """Speeds of runs."""
        return speed_boards(self._others, self.names, self.results.is_own)

    @cached_property
    def bench_boards(self) -> list[SpeedBoard]:
        """Speeds that were measured in interleaved rounds."""
        return bench_boards(self.results.bench, self.names, self.results.is_own)

    @cached_property
    def probes(self) -> list[Probe]:
        """Results on probes."""
        return probes(self.results)

    @property
    def _shown(self) -> list[Board | SpeedBoard]:
        return [*self.boards, *self.position_boards, *self.speed_boards, *self.bench_boards]

    @cached_property
    def styles(self) -> MethodStyles:
        """The style of each row in figures."""
        rows = [row for board in self._shown for row in board.rows]
        of_probes = [
            row for probe in self.probes for row in {*probe.rows, *probe.families.values()}
        ]
        return assign_styles([*rows, *of_probes])

    @cached_property
    def relative_to(self) -> str:
        """The mixer that speeds are divided by.

        Raises: UserError if no mixer has the name that was asked for.
        """
        given = self.options.relative_to
        if given is None:
            return DEFAULT_RELATIVE_TO
        return find_method(self._shown, given, "--relative-to")

    def subjects_of(self, kind: ChapterKind[Subject]) -> Sequence[Subject]:
        """Find the subjects of a kind of chapters, once: a README file asks for them many times."""
        if kind not in self._subjects:
            self._subjects[kind] = kind.subjects(self)
        return self._subjects[kind]

    @cached_property
    def comparisons(self) -> Comparisons | None:
        """What `--compare` asked for; None if it was not given."""
        given = self.options.compare
        return compare_all(self.results, self.boards, given) if given else None

    @cached_property
    def leading_board(self) -> Board | None:
        """The board that the leaderboard is of."""
        return leading_board(self.boards)

    def speeds_at_preset(self, board: Board) -> PresetSpeeds:
        """Return the measured training speeds at the preset of a board."""
        return preset_speeds(self.results.bench, board.preset, board.protocol, self.relative_to)

    @property
    def mixing_board(self) -> SpeedBoard | None:
        """The measurements of mixing alone that reach over most lengths."""
        found = [b for b in self.bench_boards if any(p.task == "mixing" for p in b.workloads)]
        return max(found, key=lambda board: len(board.workloads), default=None)


Subject = TypeVar("Subject")
Item = Table | ReportFigure


@dataclass(frozen=True)
class Content(Generic[Subject]):
    """A kind of table or figure in a chapter."""

    slug: str
    """The name by which blocks of README files list it."""
    outputs: Output
    make: Callable[[ReportData, Subject, str], Sequence[Item]]
    """Makes the tables or figures from the data, the chapter's subject and the end of their slugs;
    figures are still to be drawn."""


@dataclass(frozen=True, eq=False)
class ChapterKind(Generic[Subject]):
    """Chapters of one kind: one for each subject, a board of results for instance."""

    subjects: Callable[[ReportData], Sequence[Subject]]
    title: Callable[[Subject], str]
    slug: Callable[[Subject], str]
    """End of the slugs of a chapter's tables and figures."""
    contents: Sequence[Content[Subject]]
    prefix: str = ""
    """Start of the chapter's own slug."""
    folded_under: str = ""
    tab: Callable[[Subject], str] = lambda _: ""
    """Tab of the page that the chapter is in; empty for one of its own, or of `folded_under`."""
    is_main: Callable[[Subject], bool] = lambda _: True
    """Whether README files show the subject, too."""


@dataclass(frozen=True)
class Chapter:
    """Tables and figures of the report under one title."""

    slug: str
    title: str
    tables: Sequence[Table]
    figures: Sequence[ReportFigure]
    folded_under: str = ""
    """Tab in which the page folds the chapter, with others; empty for a chapter that is open."""
    tab: str = ""
    """Tab of the page that the chapter is in."""


def make_chapters(kinds: Sequence[ChapterKind[Any]], data: ReportData) -> list[Chapter]:
    """Make all tables and figures of the page; figures are still to be drawn."""
    made: list[Chapter] = []
    for kind in kinds:
        contents = [content for content in kind.contents if PAGE in content.outputs]
        for subject in data.subjects_of(kind) if contents else ():
            slug = kind.slug(subject)
            items = [item for c in contents for item in c.make(data, subject, slug)]
            made.append(
                Chapter(
                    slugify(kind.prefix, slug),
                    kind.title(subject),
                    [item for item in items if isinstance(item, Table)],
                    [item for item in items if isinstance(item, ReportFigure)],
                    kind.folded_under,
                    kind.tab(subject) or kind.folded_under or kind.title(subject),
                )
            )
    return _with_distinct_slugs(made)


def readme_items(
    kinds: Sequence[ChapterKind[Any]], data: ReportData, slugs: Collection[str]
) -> Iterator[Item]:
    """Make the tables and figures of a block of a README file.

    Args:
        kinds: all chapters.
        data: what they are made from.
        slugs: of contents, which stand for those of all main boards.
    """
    for kind in kinds:
        contents = [
            content
            for content in kind.contents
            if README in content.outputs and content.slug in slugs
        ]
        for subject in filter(kind.is_main, data.subjects_of(kind) if contents else ()):
            for content in contents:
                yield from content.make(data, subject, kind.slug(subject))


def readme_slugs(kinds: Sequence[ChapterKind[Any]]) -> list[str]:
    """List the slugs that a block of a README file may name."""
    return [
        content.slug for kind in kinds for content in kind.contents if README in content.outputs
    ]


def _with_distinct_slugs(made: Sequence[Chapter]) -> list[Chapter]:
    """Number the slugs that several chapters, tables or figures share: files and links need one.

    A folder may not distinguish upper from lower case.
    """
    taken: set[str] = set()

    def take(slug: str) -> str:
        found, number = slug, 1
        while found.casefold() in taken:
            number += 1
            found = f"{slug}-{number}"
        taken.add(found.casefold())
        return found

    return [
        replace(
            chapter,
            slug=take(chapter.slug),
            tables=[replace(table, slug=take(table.slug)) for table in chapter.tables],
            figures=[replace(figure, slug=take(figure.slug)) for figure in chapter.figures],
        )
        for chapter in made
    ]
