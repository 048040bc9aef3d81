"""
Galvatron (PKU-DAIR/Hetu-Galvatron, revision cea12ff): a way of splitting and recomputation by layer.

``problem`` states what is decided, ``layers`` prices a layer, ``vocabulary`` embedding and head, ``step`` a whole plan.
``one_stage`` is the exact optimum without a pipeline, ``stages`` the bound with one, and ``search`` the least of all
settings: begin there.
"""
