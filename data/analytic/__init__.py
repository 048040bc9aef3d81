"""
An analytic cost model: layer times from the work of their operators and from public operator tables.

``layer_costs`` is the entry. ``layer_work`` counts FLOP and bytes, ``operator_times`` turns them into seconds,
``operator_costs`` reads measured operators and prices a model with them, and ``micro_batch_scaling`` extends a profile
to other micro-batches.
"""
