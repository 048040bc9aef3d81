"""
Aceso (EuroSys 2024): operators in stages, each with its degrees and its set of recomputed operators.

``operators`` reads what the paper measured. ``formula`` prices a plan as the paper's program does, ``stage_table``
lists what is worth recomputing in a part of a layer, and holds the least seconds of recomputation of
every kind of stage under the memory limit, and the paper's rule for what to recompute. ``search`` has the dynamic
program over stages under a threshold of their seconds, and the branch and bound over thresholds and micro-batches:
begin there.
"""
