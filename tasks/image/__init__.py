"""Image: the files of CIFAR-10, and the task."""

from lra.tasks.image.task import Image

__all__ = ["Image"]
