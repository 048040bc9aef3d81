"""
Exact placement: bounds that are attained by a placement.

Begin with ``joint``, which solves partition and placement together for few tensor groups, or many of few kinds, by a
dynamic program over ``multisets`` of slots. ``enumerate`` is for clusters of few placements; ``node_sets`` and
``node_slots`` divide the layers with the nodes that every stage takes, and ``memory_assignment`` asks for memory alone.
"""
