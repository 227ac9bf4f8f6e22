"""What writers and readers of a run directory must agree on."""

FORMAT = 1
ROLES = ("train", "valid", "holdout")
