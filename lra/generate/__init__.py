"""Text and other tokens by trained models, one after the other: `python -m lra.generate --help`."""

__all__: list[str] = []
