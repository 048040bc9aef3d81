"""
Diagnosis of an infeasible problem: what lacks memory, by how much, and the cheapest remedies.

``diagnosis`` is the entry, ``feasibility`` the exact test of a changed problem, ``remedies`` the changes that are
tried.
"""
