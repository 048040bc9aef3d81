"""
Exact placement: bounds that are attained by a placement.

Begin with ``joint``, which solves partition and placement together for few tensor groups, or many of few kinds:
``subset`` is its dynamic program, over the multisets of ``multisets`` and the ``slot_kinds`` that can be exchanged.
``enumerate`` is for clusters of few placements, which ``all_placements`` lists and ``pipeline`` divides layers for.
"""
