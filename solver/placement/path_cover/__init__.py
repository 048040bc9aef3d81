"""
Bounds on placement from covering a cluster's slots by pipelines (paths).

Begin with ``bound``: the bound of one candidate, from its witness; ``candidate`` is the search for it. ``cases``
divides placements by the links of stage 0, ``path_bound`` bounds the longest pipeline in a case by column generation
(``master``, ``pricing``, ``node_patterns``, ``capacity_cuts``), ``certificate`` is the dual certificate and its check,
``witness`` its form in a file.
"""
