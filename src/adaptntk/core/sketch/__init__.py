"""Random projections of gradient rows."""
