"""What it costs and how good it is, side by side with others: run from a clone, ``python -m benchmarks``."""
