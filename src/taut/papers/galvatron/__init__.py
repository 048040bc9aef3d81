"""
Galvatron (PKU-DAIR/Hetu-Galvatron, revision cea12ff): a way of splitting and recomputation by layer.

``step`` states what is decided and prices layers, embedding and head and a whole plan, ``one_stage`` is the
exact optimum without a pipeline, and ``search`` the least of all settings: begin there.
"""
