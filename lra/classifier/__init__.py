"""The model around a mixer, and all that is checked or matched by building it."""

__all__ = [
    "axes",
    "block",
    "classifier",
    "decoders",
    "initialization",
    "loss",
    "match_params",
    "packing",
    "plugin_check",
    "position_targets",
    "reference",
    "resolve",
]
