"""
How the problem is solved and proven: exact algorithms, bounds, annealing, branch and bound, certificates.

Begin with ``search``, the branch and bound. ``result`` has its records: limits, incumbent, bounds, sources. A room
imports those before it alone: ``layer_division``, ``bounds`` (closed forms and best links), ``placement``,
``schedules``, ``order_priced`` (bounds of chunks by their order), ``ladder`` (all bounds of a candidate, the weakest
first), ``search``, ``certificate``, which writes the proof and checks it, and ``methods``, other ways to a plan.
"""
