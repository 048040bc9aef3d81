"""
The best plan by Aceso's formula, and a lower bound on every plan of its space.

``division`` is the dynamic program over stages under a threshold of their seconds, ``recompute`` the operators that a
given stage recomputes at best, ``search`` the branch and bound over thresholds and micro-batches.
"""
