"""Images of one size as splits: a position is a pixel."""

import numpy as np
import torch
from torch import Tensor

from lra.tasks.base import Split, TaskInfo
from lra.tasks.batch import Batch
from lra.tasks.random_words import permutation
from lra.tasks.splits import as_tensor, send_together

PIXEL_STREAM = 2**63
"""Stream of random words that orders pixels; other streams of a seed choose and order examples."""


class Pixels(Split):
    """Images of one size, read in raster order or in one random order.

    Args:
        images: (images, positions, channels) uint8, the images of this split, or of all splits.
        labels: (examples,) unsigned integers.
        which: (examples,) index of each example's image.
        scale: (256, channels) float32, the real number that each level becomes; None to take the
            levels as tokens.
        permutation_seed: seed of the random order of pixels, the same for every image; None for
            raster order.
    """

    stored = ("images", "scale", "order")
    order: Tensor | None = None
    """(positions,) int64, the pixel that each position reads; None for raster order."""

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        which: np.ndarray,
        scale: np.ndarray | None,
        permutation_seed: int | None = None,
    ) -> None:
        self.images = as_tensor(images)
        self.labels = labels
        self.which = which
        self.scale = None if scale is None else as_tensor(scale)
        self.lengths = np.full(len(labels), images.shape[1], dtype=np.int64)
        if permutation_seed is not None:
            order = permutation(permutation_seed, PIXEL_STREAM, images.shape[1])
            self.order = as_tensor(order.astype(np.int64))

    def check(self, info: TaskInfo) -> None:
        """See `Split.check`."""
        super().check(info)
        images = self.images
        shape = (info.max_length, 1 if info.channels is None else info.channels)
        if images.dtype != torch.uint8 or images.shape[1:] != shape:
            raise ValueError(f"images are {images.dtype} {tuple(images.shape)}")
        if self.which.min() < 0 or self.which.max() >= len(images):
            raise ValueError("an image is listed that is not there")

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        which, labels = send_together(self.images.device, self.which[indices], self.labels[indices])
        levels = self.images[which]
        if self.order is not None:
            levels = levels[:, self.order]
        levels = levels.flatten(0, 1).long()
        if self.scale is None:
            inputs = levels[:, 0]
        else:
            inputs = torch.take_along_dim(self.scale, levels, dim=0)
        return Batch.of_examples(inputs, torch.from_numpy(self.lengths[indices][:, None]), labels)


def scale(moments: list[tuple[float, float]]) -> np.ndarray:
    """Tabulate what each level from 0 to 255 becomes when it is standardised.

    Args:
        moments: mean and standard deviation of the levels of each channel.
    Returns: (256, channels) float32.
    """
    mean, deviation = np.array(moments).T
    return ((np.arange(256)[:, None] - mean) / deviation).astype(np.float32)


def random_split_order(count: int) -> np.ndarray:
    """Order examples as torch's random_split with seed 42 does: (count,) int64."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(42)).numpy()
