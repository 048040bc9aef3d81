"""
Exact placement: bounds that are attained by a placement.

Begin with ``joint``, which solves partition and placement together for few tensor groups, or many of few kinds:
``subset`` is its dynamic program, over the multisets of ``multisets`` and the kinds of slots of ``subset_cache``.
``enumerate`` is for clusters of few placements; ``node_sets`` and ``node_slots`` divide the layers with the nodes that
every stage takes.
"""
