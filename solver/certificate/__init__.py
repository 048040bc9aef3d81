"""
The certificate: written after a search, checked without it.

Begin with ``verify``, the check of a plan. ``figures`` computes each bound again from its witness, ``reference``
prices and enumerates a second time, and ``sampling`` attacks the bounds. ``document`` is the form of the file,
``write`` makes it. The checking side reaches no external solver, no search and no annealing.
"""
