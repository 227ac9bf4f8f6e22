"""Structures to blocks of feature rows."""
