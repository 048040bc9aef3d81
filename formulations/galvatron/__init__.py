"""
The problem of Galvatron (PKU-DAIR/Hetu-Galvatron, revision cea12ff): a way of splitting and recomputation by layer.

``problem`` states what is decided, ``layers`` prices a layer, ``vocabulary`` embedding and head, ``step`` a whole plan.
``taut.solver.galvatron`` finds the best plan and proves it.
"""
