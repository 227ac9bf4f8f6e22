"""A whole campaign: explore, select, label, retrain, until a target is reached or a verdict says stop."""
