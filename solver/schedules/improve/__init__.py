"""
Improvement of schedules: local search along the critical path, and large-neighbourhood search with CP-SAT.

``critical_path`` is the local search. ``large_neighbourhood`` frees a part of the passes, ``exact`` solves the part, or
the whole of a small pipeline, as a constraint program.
"""
