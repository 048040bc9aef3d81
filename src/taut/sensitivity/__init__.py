"""
How far single terms of the prices may change before another plan is better.

Begin with ``box``: a bound on the regret while links, layers and memory stay within stated shares. ``terms`` scales a
problem, ``break_even`` finds for each term where another plan wins, and ``words`` prints both. Errors of whole plans,
from the certificate only, are in ``taut.reports.sensitivity``.
"""
