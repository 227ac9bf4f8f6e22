"""A campaign that is killed at random moments, beside one that nobody disturbs."""
