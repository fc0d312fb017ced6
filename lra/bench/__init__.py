"""Speed and memory of mixers, of their parts and of whole models: `python -m lra.bench --help`."""
