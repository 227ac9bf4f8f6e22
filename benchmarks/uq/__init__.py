"""Uncertainty methods side by side."""
