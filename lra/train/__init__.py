"""One run from its first step to its record, and what it leaves in its folder."""

__all__: list[str] = []
