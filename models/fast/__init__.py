"""Fast forms of functions in `models.ops` and `models.layers`, which name them and import none.

docs/speed.md says how much time each of them saves.
"""

__all__: list[str] = []
