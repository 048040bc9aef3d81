"""
Improvement of schedules: local search along the critical path, and large-neighbourhood search with CP-SAT.

``critical_path`` is the local search. ``exact`` solves a part of the passes that a neighbourhood frees, or the whole of
a small pipeline, as a constraint program over canonical schedules.
"""
