"""
Many jobs that share one cluster: who gets how many GPUs, when, under which plan, with a bound.

``jobs`` is ``taut.jobs`` with its result: begin there. ``instance`` plans every job at every number of GPUs, and makes
the problem of ``taut.formulations.jobs`` from trace, cluster and these columns.
"""
