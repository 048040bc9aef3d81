"""
How pipeline schedules are built, improved and proven.

``optimize`` is the entry: it starts from ``construct``, bounds with ``bound`` and improves with ``improve``. A schedule
is an order in a disjunctive graph, its makespan a ``longest_path`` there.
"""
