"""Methods to compare with, one per file."""
