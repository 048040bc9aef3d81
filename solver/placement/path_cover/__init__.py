"""
Bounds on placement from covering a cluster's slots by paths, for any number of nodes.

Begin with ``bound``, the bound of one candidate from its witness in a file, and ``proving``, the search for it.
``cases`` is a case distinction over where stage 0 lies (``build`` searches, ``cliques`` checks); ``path_bound`` bounds
the longest pipeline of a case by column generation (``pricing``), and ``certificate`` has its proofs and their checks.
``racks`` finds racks and tells which stages span them.
"""
