"""
Step time and memory of many configurations at once, one row each, for ``taut predict`` and for fits.

Begin with ``configurations``, the rows. ``step_time`` has their seconds by term, from ``unit_seconds`` (a layer's
passes, a hop, which rings and hops leave a node) and compiled loops that count units. ``memory`` has their bytes by
term. The prices are those of ``taut.formulations.latency`` and ``taut.formulations.tables.memory``, for the even
division or the stated one, and tests hold both to each other.
"""
