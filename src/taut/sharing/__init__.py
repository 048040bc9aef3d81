"""
Many jobs that share one cluster: who gets how many GPUs, when, under which plan, with a bound.

``jobs`` is ``taut.jobs``: begin there. ``columns`` plans every job at every number of GPUs, ``instance`` makes the
problem of ``taut.formulations.jobs`` from trace, cluster and columns, ``result`` is what comes out.
"""
