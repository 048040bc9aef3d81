"""
How far single terms of the prices may change before another plan is better.

Begin with ``box``: a bound on the regret while links, layers and memory stay within stated shares. ``points`` scales a
problem, and ``break_even`` finds for each term where another plan wins. ``taut.reports.sensitivity`` prints both, and
errors of whole plans, from the certificate only.
"""
