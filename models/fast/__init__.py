"""Fast forms of functions in `lra.models.ops` and `lra.models.layers`, which import none of them.

docs/speed.md says how much time each of them saves.
"""

__all__: list[str] = []
