"""
Exact division of layers into stages, under memory and recompute, with what later stages wait for.

``divide`` solves the problem of ``taut.formulations.partition``; begin there. ``labels`` is the one kernel, over graphs
of states (``states``); ``pipelines`` and ``pairs`` bound two classes of device by single pipelines; ``best_divisions``
lists divisions by their bounds, ``known_devices`` divides where each stage's devices are known, and ``memory_excess``
says what lacks where nothing fits.
"""
