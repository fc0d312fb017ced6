"""What range of its inputs a trained model uses: `python -m lra.range --help`."""
