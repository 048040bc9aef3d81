"""
Best-first branch and bound, whatever is searched.

``best_first`` is the loop: refine what waits with the least bound until nothing below the incumbent waits. ``stop``
says when it ends early, ``progress`` what it tells of itself. Begin with ``best_first``.
"""
