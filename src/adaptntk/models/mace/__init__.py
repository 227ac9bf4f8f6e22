"""MACE networks."""
