"""Measurements on the machines at hand, with PyTorch: what layers cost, and what the links between devices carry."""
