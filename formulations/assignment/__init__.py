"""
Quadratic assignment: flows between items, distances between locations.

``assignment`` is the problem, ``cost_grid`` the structure of a cost matrix over racks, nodes and devices, and
``placement_qap`` the flows of a training step between tensor groups.
"""
