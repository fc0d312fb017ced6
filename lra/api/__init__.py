"""What `import lra` offers to Python code: runs as a frame."""

__all__ = ["frame"]
