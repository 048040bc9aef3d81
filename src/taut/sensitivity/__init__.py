"""
How far single terms of the prices may change before another plan is better.

Begin with ``box``: a bound on the regret while links, layers and memory lie in a box. ``terms`` scales a problem,
``break_even`` asks term by term where another plan wins, and ``words`` prints both. Errors of whole predictions, from
the certificate alone, are in ``taut.reports.sensitivity``.
"""
