"""
Quadratic assignment: flows between workers, costs between devices.

``assignment`` is the problem, ``cost_grid`` the structure of a cost matrix over racks, nodes and devices, and
``placement_qap`` the flows of a training step.
"""
