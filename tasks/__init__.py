"""Tasks: one file each, found by the harness because they subclass `Task`."""
