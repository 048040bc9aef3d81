"""
Quadratic assignment: permutations found, bounded and proven.

``quadratic`` is the entry. ``local_search`` anneals and runs a robust tabu search on the ``swap_neighbourhood``.
``bound_portfolio`` interleaves the bounds: ``gilmore_lawler``, ``convex_bound``, the dual ascent of ``hahn_grant`` on
the ``lawler_form``, ``forest_bound`` with ``constraint_model`` for sparse flow, and ``branch_and_bound``.
"""
