"""
Lower bounds on a candidate.

Begin with ``ladder``: the sources in the order of their strength. ``computations`` computes them, ``checks`` derives
them again. ``relaxation`` has closed forms and ``candidate_bounds`` the exact division; both add the least
``communication``, from ``least_hops``, ``least_rings`` and ``link_bounds``. ``margin_free`` bounds without a margin.
"""
