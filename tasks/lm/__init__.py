"""Language modelling: what comes next in a text, byte by byte or word by word."""

from lra.tasks.lm.task import LanguageModelling

__all__ = ["LanguageModelling"]
