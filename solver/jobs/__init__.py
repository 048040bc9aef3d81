"""
Schedules of many jobs on one cluster, and bounds that no schedule beats.

``bounds`` derives the bounds: begin there. ``cp_sat`` and ``cbc`` solve the integer program of schedules on a grid.
"""
