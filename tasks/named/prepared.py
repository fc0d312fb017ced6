"""Data sets of tensorflow-datasets (TFDS) by their names: `--task tfds:NAME`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lra.tasks.named.dataset import Column, NamedDataset
from lra.tasks.sources.prepared import open_prepared, read_prepared


class PreparedDataset(NamedDataset):
    """A data set that TFDS has prepared as array_record; options as of `NamedDataset`."""

    def open(self) -> None:
        """See `NamedDataset.open`."""
        builder = open_prepared(self.dataset)
        features, splits = builder.info.features, builder.info.splits
        self.folder = Path(builder.data_path)
        self.columns = {name: describe_feature(features[name]) for name in sorted(features)}
        self.preferred = builder.info.supervised_keys or ()
        self.sizes = {name: split.num_examples for name, split in splits.items()}
        self.bytes = {name: int(split.num_bytes) for name, split in splits.items()}
        shards = [Path(path) for split in splits.values() for path in split.filepaths]
        self.data_files = [self.folder / "features.json", *shards]

    def read(self, split: str, rows: np.ndarray) -> Iterator[tuple[Any, Any]]:
        """See `NamedDataset.read`."""
        images = "" if self.is_text else self.input
        for example in read_prepared(self.folder, split, rows, images=images):
            yield example[self.input], example[self.label]


def describe_feature(feature: Any) -> Column:
    """Say what a feature of TFDS can be read as; nested and ragged ones are nothing."""
    facts: dict[str, Any] = {}
    match type(feature).__name__:
        case "Text":
            facts = {"kinds": ("text",)}
        case "Image" if feature.np_dtype == np.uint8:
            facts = {"kinds": ("image",), "shape": feature.shape}
        case "ClassLabel":
            facts = {"kinds": ("class",), "size": feature.num_classes}
        case "Sequence" if type(feature.feature).__name__ == "ClassLabel":
            facts = {"kinds": ("labels",), "size": feature.feature.num_classes}
        case "Scalar" | "Tensor":
            kind, shape = np.dtype(feature.np_dtype).kind, feature.shape
            if kind in "biu" and not shape:
                facts = {"kinds": ("class",), "size": 2 if kind == "b" else None}
            elif kind == "f" and len(shape) < 2 and None not in shape:  # noqa: PLR2004
                facts = {"kinds": ("values",), "size": shape[0] if shape else 1}
    return Column(type(feature).__name__, **facts)
