"""Published settings and initial distributions next to ours, with where the sources state them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from lra.config.request import PAPER
from lra.report.published.audit import Published, audit, read_published
from lra.report.published.starting_laws import stated_starts
from lra.report.tables.notes import letters
from lra.report.tables.table import Table, text_columns
from tasks.base import BENCHMARK


def audit_table(name: str) -> Table:
    """Make the table of one file, a row for each setting: the published value, ours, the source."""
    published = read_published(name)
    notes: dict[str, str] = {}
    rows: list[list[str]] = []
    for key, cells in audit(name).items():
        row = [key]
        for task in published.tasks:
            text = cells[task].text() if task in cells else ""
            if task in cells and (why := cells[task].why) is not None:
                text = f"{text} {notes.setdefault(why, letters(len(notes)))}"
            row.append(text)
        rows.append([*row, places([cell.place for cell in cells.values()])])
    sources = "; ".join(f"{word}: {source}" for word, source in published.sources.items())
    return Table(
        slug=f"settings-{name}",
        title=f"{published.mixer or 'The data'}, {conditions(published)}",
        caption=f"Sources: {sources}. {_list_notes(notes)}",
        columns=text_columns(["setting", *published.tasks, "source"], rows),
    )


def _list_notes(notes: Mapping[str, str]) -> str:
    """Write the notes of a table, which are sentences, each behind its letter."""
    return f"Notes: {' '.join(f'({letter}) {note}' for note, letter in notes.items())}"


def conditions(published: Published) -> str:
    """Name the protocol of settings for the benchmark, or the tasks that they are for."""
    if published.preset != PAPER:
        return f"preset {published.preset}"
    if published.tasks == [*BENCHMARK]:
        return f"protocol {published.protocol}"
    return f"task {', '.join(published.tasks)}"


def places(places: Sequence[str]) -> str:
    """Shorten the places of a row: what they have in common stands once, the rest in braces."""
    found = list(dict.fromkeys(place for place in places if place))
    if len(found) < 2:  # noqa: PLR2004
        return "".join(found)
    alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*found, strict=False))
    start = "".join(letters[0] for letters in alike)
    ends = [place.removeprefix(start) for place in found]
    # A number is not cut in two.
    while start and start[-1].isdigit():
        ends = [start[-1] + end for end in ends]
        start = start[:-1]
    return f"{start}{{{', '.join(ends)}}}"


def starts_table(name: str) -> Table:
    """Make the table of one file, a row for each pattern: released and our distributions."""
    published = read_published(name)
    notes: dict[str, str] = {}
    rows: list[list[str]] = []
    for pattern, stated in stated_starts(name).items():
        tasks = [task for task in published.tasks if stated.concerns(task)]
        texts = {task: stated.text(task) for task in tasks}
        whys = dict.fromkeys(why for task in tasks if (why := stated.explains(task)) is not None)
        marks = "".join(f" {notes.setdefault(why, letters(len(notes)))}" for why in whys)
        cited = places([stated.by_task[task][1] for task in tasks if task in stated.by_task])
        rows.append([f"`{pattern}`", _joined(texts) + marks, cited])
    return Table(
        slug=f"starts-{name}",
        title=f"{published.mixer}, {conditions(published)}: initial values of parameters",
        caption="Each row has a pattern of parameter names and the distribution that their initial "
        "values come from. The last pattern that matches a name applies. An arrow leads from the "
        "distribution of the released code to ours. "
        f"A distribution in parentheses is stated by no source. {_list_notes(notes)}",
        columns=text_columns(["parameters", "distribution", "source"], rows),
    )


def _joined(texts: Mapping[str, str]) -> str:
    """Write the distributions of all tasks, or one alone if they are equal."""
    by_text: dict[str, list[str]] = {}
    for task, text in texts.items():
        by_text.setdefault(text, []).append(task)
    if len(by_text) == 1:
        return next(iter(by_text))
    return "; ".join(f"{', '.join(tasks)}: {text}" for text, tasks in by_text.items())
