"""The mathematics, on plain tensors: no atoms, no models, no files."""
