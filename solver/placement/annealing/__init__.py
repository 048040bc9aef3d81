"""
Simulated annealing of placements, which yields plans and never a bound.

Begin with ``anneal``, which moves single workers of a placement and prices any strategy; ``paths`` moves pipelines on
nodes and is the one for large clusters. ``prices`` are compiled prices in parts that a move touches, and ``starts``
constructs placements to begin with.
"""
