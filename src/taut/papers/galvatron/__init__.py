"""
Galvatron (PKU-DAIR/Hetu-Galvatron, revision cea12ff): a way of splitting and recomputation by layer.

``step`` states what is decided and prices layers, embedding and head and a whole plan, and
``search`` has the exact optimum without a pipeline and the least of all settings: begin there.
"""
