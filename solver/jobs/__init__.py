"""
Schedules of many jobs on one cluster, and bounds that no schedule beats.

``solve`` finds schedules and ``bounds`` derives the bounds: begin there. ``simulate`` runs policies over a trace,
``anneal`` plans ahead, and ``program`` solves the integer program of schedules on a grid.
"""
