"""What `import lra` offers to Python code: runs as a frame, trained models, models to train."""

__all__ = ["frame", "model"]
