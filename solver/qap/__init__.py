"""
Quadratic assignment: permutations found, bounded and proven.

``quadratic`` is the entry. Annealing and a robust tabu search run on the ``swap_neighbourhood``. ``bound_portfolio``
interleaves the bounds: ``lawler_form`` (Gilmore and Lawler), ``convex_bound``, the dual ascent of ``hahn_grant``,
``forest_bound`` with ``constraint_model`` for sparse flow, and ``branch_and_bound``.
"""
