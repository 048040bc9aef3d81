"""
How the problem is solved and proven: exact algorithms, bounds, annealing, branch and bound, certificates.

Begin with ``search``, the branch and bound. ``result`` has its records: limits, incumbent, bounds, sources. ``bounds``
proves, ``placement`` places, ``certificate`` writes the proof and checks it, and ``methods`` are other ways to a plan.
"""
