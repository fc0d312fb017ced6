"""What `import lra` offers to Python code: training runs, trained models, data, and results."""

__all__ = ["frame", "trained", "training"]
