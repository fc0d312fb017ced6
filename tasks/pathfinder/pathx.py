"""Path-X: Pathfinder on 128 x 128 pixels, a sequence of 16,384."""

from __future__ import annotations

from tasks.pathfinder.task import Pathfinder


class PathX(Pathfinder):
    """Pathfinder at a size of 128 pixels; images of one size serve both tasks."""

    name = "pathx"
    usual_size = 128
