"""Whether the text of a figure can be read."""

from __future__ import annotations

import itertools

from matplotlib.figure import Figure
from matplotlib.text import Text


def texts_of(figure: Figure) -> list[Text]:
    """List the texts that are drawn: not the labels of ticks beyond the limits."""
    found: list[Text] = []
    for axes in figure.axes:
        found += [*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
            found += [tick.label1 for tick in ticks if low <= tick.get_loc() <= high]
            found.append(axis.get_offset_text())
    for legend in figure.legends:
        found += [*legend.get_texts(), legend.get_title()]
    shown = [text for text in found if text.get_visible() and text.get_text().strip()]
    assert not [text for text in shown if "mathdefault" in text.get_text()], "shown as it is"
    return shown


def legend_names(figure: Figure) -> list[str]:
    """List the names in the first legend of a figure."""
    return [text.get_text().strip() for text in figure.legends[0].get_texts()]


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """List pairs of texts that overlap, and texts that leave the figure."""
    figure.draw_without_rendering()
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts_of(figure)]
    whole = figure.bbox.padded(1)
    found = [
        (a, b)
        for (a, one), (b, two) in itertools.combinations(boxes, 2)
        if one.padded(-1).overlaps(two.padded(-1))
    ]
    corners = [(text, x, y) for text, box in boxes for x, y in box.corners()]
    return found + [(text, "the edge") for text, x, y in corners if not whole.contains(x, y)]
