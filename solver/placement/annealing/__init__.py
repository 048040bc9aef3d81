"""
Simulated annealing of placements, which yields plans and never a bound.

Begin with ``anneal``, which moves single workers of a placement (``moves``) and prices any strategy; ``paths`` moves
pipelines on nodes and is the one for large clusters (``path_starts`` is where it begins, ``path_moves`` are its moves,
``path_reductions`` what their step waits for). ``prices`` and ``path_prices`` are compiled prices in parts that a move
touches, ``gather_prices`` those of gathers, and ``starts`` constructs placements to begin with.
"""
