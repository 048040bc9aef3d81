"""
Best-first branch and bound over any kind of item.

Begin with ``best_first``, the loop: refine the item with the least bound, until no bound is below the incumbent.
``stop`` ends the loop early, on its clock or at Ctrl-C, and has the records that tell of it.
"""
