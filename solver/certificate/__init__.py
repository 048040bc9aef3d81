"""
The certificate: written after a search, checked without it.

``write`` makes the document and ``document`` is its form. ``verify`` checks a plan; ``rederive`` computes each bound
again from its witness. The checking side reaches no external solver, no search and no annealing.
"""
