"""Simulations that are watched: a calculator with uncertainty, rules that stop a run, and where to look next."""
