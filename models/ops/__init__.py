"""Pure functions of tensors that several mixers use."""

__all__: list[str] = []
