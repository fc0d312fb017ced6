"""A run's settings: their types, where each value is from, and the classes that they name."""

__all__ = [
    "changes", "component", "compose", "initial_values", "mixers", "plugin", "plugin_code",
    "registry", "request", "schema", "settings_files", "strict_yaml", "tasks",
]  # fmt: skip
