"""
The certificate: written after a search, checked without it.

Begin with ``verify``, the check of a plan. ``reference`` prices and enumerates a second time, ``examined`` compares,
and ``sampling`` attacks the bounds. ``document`` is the form of the file, ``write`` makes it. The checking side reaches
no external solver, no search and no annealing.
"""
