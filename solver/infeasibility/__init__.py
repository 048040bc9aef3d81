"""
Diagnosis of an infeasible problem: what lacks memory, by how much, and the cheapest ways out.

``diagnosis`` is the entry, ``feasibility`` the exact test of a changed problem, ``changes`` and ``hardware`` the
changes that are tried.
"""
