"""
The problem of Aceso (EuroSys 2024): operators in stages, each with its degrees and its set of recomputed operators.

``formula`` prices a plan as the paper's program does, ``rule`` is its rule for what to recompute. ``pieces`` lists what
is worth recomputing in a part of a layer, and ``stage_table`` the least seconds of recomputation of every kind of stage
under the memory limit. ``taut.solver.aceso`` finds the best division and proves it.
"""
