"""Reaction paths with GFN2-xTB, and Transition-1X."""
