"""The settings of a run: their types, the origin of each value, and the classes that they name."""

__all__ = [
    "changes", "component", "compose", "initial_values", "mixers", "plugin", "plugin_code",
    "registry", "request", "schema", "settings_blocks", "settings_files", "settings_layers",
    "strict_yaml", "tasks",
]  # fmt: skip
