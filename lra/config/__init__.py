"""The settings of a run: their types, the origin of each value, and the classes that they name."""

__all__ = [
    "components", "compose", "options", "registry", "request", "schema", "settings_files",
]  # fmt: skip
