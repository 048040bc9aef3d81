"""
Simulated annealing of placements, which yields plans and never a bound.

``anneal`` moves all workers of a placement, ``paths`` whole pipelines on nodes; ``prices`` and ``path_prices`` are
their compiled prices, ``starts`` constructs where they begin.
"""
