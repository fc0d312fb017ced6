"""Data sets of Hugging Face's library `datasets` by their names: `--task hf:NAME`."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lra.common.errors import DataError, UserError, describe, nearest
from lra.common.progress import is_live
from lra.common.untrusted import explain_errors, read_regular, read_text
from lra.tasks.base import MOST_CLASSES
from lra.tasks.named.dataset import Column, NamedDataset


class HuggingFaceDataset(NamedDataset):
    """A folder, or a data set of the hub: NAME or NAME:CONFIG; options as of `NamedDataset`."""

    def open(self) -> None:
        """See `NamedDataset.open`."""
        try:
            import datasets
        except ImportError:
            raise UserError(f"{self.origin} needs a package: pip install datasets") from None
        name, _, config = self.dataset.partition(":")
        folder = Path(name).expanduser()
        if folder.is_dir() and name:
            self.data_files = sorted(path for path in folder.rglob("*") if path.is_file())
        elif not name or name.startswith((".", "/", "~")):
            near = nearest(folder.name, (path.name for path in folder.parent.glob("*/")))
            hint = f"; did you mean hf:{folder.parent / near}?" if near else ""
            raise DataError(f"{self.origin}: there is no folder {folder}{hint}")
        if not is_live():
            datasets.disable_progress_bars()
        texts = sorted(folder.glob("*/*/*.txt")) if self.data_files else []  # SPLIT/CLASS/FILE
        # A relative path could be the name of a format.
        path = str(folder.resolve()) if self.data_files else name
        self.splits: Any = list_texts(texts) if texts else self._load(path, config or None)
        first = next(iter(self.splits.values()))
        self.columns = {
            name: describe_feature(feature, first[:16][name] if "Image" in str(feature) else ())
            for name, feature in first.features.items()
        }
        for column, content in self.columns.items():
            if "image" in content.kinds:
                self.splits = self.splits.cast_column(column, datasets.Image(decode=False))
        self.sizes = {name: len(split) for name, split in self.splits.items()}
        self.bytes = {name: split.data.nbytes for name, split in self.splits.items()}

    def _load(self, path: str, config: str | None) -> Any:
        """Load a data set, whose own code `datasets` refuses from version 4 on."""
        import datasets
        from datasets.config import HF_DATASETS_CACHE

        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it logs each attempt
        try:
            return datasets.load_dataset(path, config)
        except (KeyboardInterrupt, MemoryError):
            raise
        except ConnectionError:
            raise DataError(
                f"{self.origin}: {path} is no folder here, is not in {HF_DATASETS_CACHE}, and "
                f"huggingface.co cannot be reached; run this command once with a network, or copy "
                f"the Parquet files of the data set into a folder and write hf:FOLDER"
            ) from None
        except Exception as error:
            raise DataError(
                f"{self.origin}: {' '.join(describe(error).split())}; expected a folder of "
                f"Parquet, CSV, JSON or text files, or a name of https://huggingface.co/datasets"
            ) from error

    def read(self, split: str, rows: np.ndarray) -> Iterator[tuple[Any, Any]]:
        """See `NamedDataset.read`."""
        columns = [self.input, self.label]
        with explain_errors(f"{self.origin}: its split {split}"):
            for row in self.splits[split].select_columns(columns).select(rows):
                content = row[self.input]
                if not self.is_text and content:
                    content = content["bytes"] or read_regular(Path(content["path"]))
                yield content, row[self.label]

    def list_classes(self) -> Sequence[Any]:
        """See `NamedDataset.list_classes`."""
        found = {one for split in self.splits.values() for one in split.unique(self.label)} - {None}
        if len(found) > MOST_CLASSES:
            raise DataError(
                f"{self.origin}: {self.label} has {len(found):,} different values, expected at "
                f"most {MOST_CLASSES} classes; choose another column by task.label"
            )
        return sorted(found)


def list_texts(paths: Sequence[Path]) -> Any:
    """Read text files, and take the name of their folder as label and of the next as split."""
    import datasets

    splits: dict[Any, list[dict[str, str]]] = {}
    for path in paths:
        row = {"text": read_text(path), "label": path.parent.name}
        splits.setdefault(path.parent.parent.name, []).append(row)
    rows_of = datasets.Dataset.from_list
    return datasets.DatasetDict({split: rows_of(rows) for split, rows in splits.items()})


def describe_feature(feature: Any, first: Sequence[Any]) -> Column:
    """Say what a column can be read as, given its first images; a nested one is nothing."""
    facts: dict[str, Any] = {}
    inner, length = getattr(feature, "feature", feature), getattr(feature, "length", 1)
    match type(inner).__name__, getattr(inner, "dtype", ""):
        case "Image", _ if first:
            shapes = {(*image.size[::-1], len(image.getbands())) for image in first}
            facts = {"kinds": ("image",), "shape": (None, None, 3)}
            facts |= {"shape": shapes.pop()} if len(shapes) == 1 else {}
        case "ClassLabel", _:
            kind = "class" if inner is feature else "labels"
            facts = {"kinds": (kind,), "size": len(inner.names)}
        case "Value", "string" | "large_string" if inner is feature:
            facts = {"kinds": ("text", "class")}
        case "Value", kind if inner is feature and kind.startswith(("bool", "int", "uint")):
            facts = {"kinds": ("class",)}
        case "Value", kind if kind.startswith("float") and length > 0:
            facts = {"kinds": ("values",), "size": length}
    return Column(str(feature)[:40], **facts)
