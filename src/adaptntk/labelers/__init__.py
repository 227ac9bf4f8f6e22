"""Structures to labels, in processes of their own."""
