"""
Placement of every worker on a device: exact on few slots, annealed on many, bounded on all.

Begin with ``slots``: nodes with slots, which the pipelines cover as paths. ``exact`` proves optima, ``annealing`` finds
plans, and ``path_cover`` bounds any number of nodes.
"""
