"""The model around a mixer, and the checks of a configuration that build it."""

__all__ = [
    "axes", "block", "classifier", "decoders", "initialization", "loss", "match_params", "packing",
    "plugin_check", "reference", "resolve",
]  # fmt: skip
