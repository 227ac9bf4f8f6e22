"""Rules that choose a batch, one per file."""
