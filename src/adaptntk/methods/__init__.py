"""Uncertainty methods, one per file."""
