"""Modules that several mixers are made of."""

__all__: list[str] = []
