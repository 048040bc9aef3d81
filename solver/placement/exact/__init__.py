"""
Exact placement: bounds that are attained.

``joint`` solves partition and placement together and is the entry, with ``enumerate`` for clusters of few placements.
``subset`` is the dynamic program over sets of tensor groups, ``multisets`` the one over kinds of slots.
"""
