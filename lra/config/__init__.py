"""A run's settings: their types, where each value is from, and the classes that they name."""

__all__ = ["compose", "plugin", "plugin_code", "registry", "schema", "yaml_layers"]
