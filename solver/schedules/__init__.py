"""
How pipeline schedules are built, improved and proven.

``optimize`` is the entry. It starts from ``kinds``: orders by formula, from ``building_blocks``, or adapted by
``priority_rules``. It bounds with ``lower_bound``, ``one_machine`` and ``sweep``, and improves in the
``disjunctive_graph`` and with CP-SAT.
"""
