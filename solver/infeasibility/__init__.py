"""
Diagnosis of an infeasible problem: what lacks memory, by how much, and the cheapest remedies.

``diagnosis`` is the entry and has the changes that are tried, ``feasibility`` is the exact test of a changed problem.
"""
