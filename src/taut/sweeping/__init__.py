"""
Sweeps: many points, each a plan, a prediction or a simulation, on all cores or many machines, resumable after a kill.

Begin with ``sweep``, which holds :func:`taut.sweep`, its table and its journal. ``point`` expands a file into points
and names each by its content, ``executors`` solves them and says where.
"""
