"""
The ladder: all lower bounds on a candidate, the weakest first.

Begin with ``ladder``: the sources in the order of their strength. ``computations`` computes them, ``checks`` derives
them again. ``partition_dominance`` and ``chunk_racks`` let a bound of one candidate serve others, and know the racks of
chunks. What each source computes is in ``bounds``, ``layer_division``, ``placement`` and ``order_priced``.
"""
