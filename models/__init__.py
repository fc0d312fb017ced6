"""Token mixers, a file or a folder each. The harness finds every subclass of `Mixer` here."""

__all__ = ["base", "initial_values", "layers", "ops", "run_promises", "suite_promises"]
