"""Test error against time of training: recipes of ours, and the race with ``mace_run_train``."""
