"""The settings of a run: their types, the origin of each value, and the classes that they name."""
