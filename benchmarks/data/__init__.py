"""Where structures come from, and who sells their labels."""
