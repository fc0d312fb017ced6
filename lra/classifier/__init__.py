"""The model around a mixer, and the checks of a configuration that build it."""
