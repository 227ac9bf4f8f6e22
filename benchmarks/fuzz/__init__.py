"""Malformed inputs by the thousand, each with what must come of it."""
