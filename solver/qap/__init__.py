"""
Quadratic assignment: permutations found, bounded and proven.

``quadratic`` is the entry. It interleaves annealing and a robust tabu search on the ``swap_neighbourhood`` with the
bounds: a convex program, Gilmore and Lawler's and the dual ascent in ``hahn_grant``, ``forest_bound`` for sparse flow,
and ``branch_and_bound``.
"""
