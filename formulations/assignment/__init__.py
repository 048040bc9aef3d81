"""
Quadratic assignment: flows between items, distances between locations.

``assignment`` is the problem, ``placement_qap`` the flows of a training step between tensor groups.
"""
