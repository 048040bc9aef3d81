"""Quadratic assignment: permutations found, bounded and proven."""
