"""Path-X: Pathfinder on 128 x 128 pixels, a sequence of 16,384."""

from __future__ import annotations

from tasks.pathfinder.task import Pathfinder


class PathX(Pathfinder):
    """Pathfinder's options at its own size of 128; the two share their data."""

    name = "pathx"
    usual_size = 128
