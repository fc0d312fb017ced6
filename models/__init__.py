"""Token mixers: one file each, found by the harness because they subclass `Mixer`."""
