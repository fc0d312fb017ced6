"""Token mixers, one per file. The harness finds every subclass of `Mixer` in this folder."""

__all__ = ["base", "initial_values", "layers", "ops", "promises", "suite_promises"]
