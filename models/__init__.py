"""Token mixers, a file or a folder each. The harness finds every subclass of `Mixer` here."""

__all__ = ["base", "initial_values", "layers", "ops", "run_promises", "suite_promises"]

if __name__ != "lra.models":
    raise ImportError("the suite's models are lra.models now: from lra.models.base import Mixer")
