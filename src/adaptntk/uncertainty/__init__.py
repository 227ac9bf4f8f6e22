"""Uncertainty methods, their calibration and their files."""
