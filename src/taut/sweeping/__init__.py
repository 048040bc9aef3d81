"""
Sweeps: many points, each a plan, a prediction or a simulation, on all cores or many machines, resumable after a kill.

Begin with ``sweep``, which holds :func:`taut.sweep`. ``spec`` expands a file into points, ``point`` completes a point
and names it by its content, ``row`` solves it, ``journal`` keeps finished points, ``executors`` says where points run.
"""
