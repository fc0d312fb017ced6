"""Trained models, loaded from their checkpoints and evaluated out of distribution."""

__all__ = ["trained"]
