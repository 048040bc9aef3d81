"""
The strategy choice as an integer program.

``program`` states sets, variables and constraints; ``rows`` builds its rows from a planning problem. ``learned_memory``
adds a learned memory model as a tabulated constraint, ``relu`` and ``relu_rows`` as an embedded network.
"""
