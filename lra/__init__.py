"""The harness around mixers and tasks; its rooms import only from those beneath them."""

__all__ = [
    "bench",
    "classifier",
    "config",
    "evaluate",
    "prepare",
    "record",
    "report",
    "runtime",
    "sweep",
    "train",
]
