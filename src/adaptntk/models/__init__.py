"""Trained potentials behind one small protocol; the only room that knows MACE."""
