"""
The ladder: all lower bounds on a candidate, the weakest first.

Begin with ``ladder``: the sources in the order of their strength. ``computations`` computes them, ``checks`` derives
them again. ``dominance`` lets a bound of one candidate serve others, and ``chunk_racks`` knows the racks of chunks.
What each source computes is in ``bounds``, ``layer_division``, ``placement`` and ``order_priced``.
"""
