"""
Packed sequences of different lengths: what a step of a plan takes whose micro-batches are packed, and bounds on it.

``step_graph`` prices a step of unequal micro-batches and bounds every packing of its sequences; begin there. ``rules``
draws sequences and packs them as frameworks do.
"""
