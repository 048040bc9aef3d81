"""
Quadratic assignment: permutations found, bounded and proven.

``quadratic`` is the entry. It interleaves annealing and a robust tabu search on the ``swap_neighbourhood`` with the
bounds: ``lawler_form`` (Gilmore and Lawler), ``convex_bound``, the dual ascent of ``hahn_grant``, ``forest_bound`` for
sparse flow, and ``branch_and_bound``.
"""
