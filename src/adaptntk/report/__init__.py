"""Figures and pages, drawn from what a run left on disk; never needs a model."""
