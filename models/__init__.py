"""Token mixers, one file each, which the harness finds because they subclass `Mixer`."""

__all__ = ["base", "layers", "ops", "promises"]
