"""How it is solved and proven: exact algorithms, bounds, annealing, branch and bound, certificates."""
