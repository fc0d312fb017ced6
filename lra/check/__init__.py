"""Checks of a mixer or a task of the user's own, before it is trained."""
