"""
Lower bounds on a candidate that need no placement: closed forms and the exact division.

``relaxation`` has closed forms and ``candidate_bounds`` the exact division; both add the least ``communication``, from
``least_hops``, ``least_rings`` and ``link_bounds``. The ladder (``taut.solver.ladder``) says where each applies.
"""
