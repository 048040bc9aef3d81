"""
Many jobs on one cluster, as mathematics on arrays.

``problem`` states what is given and what a schedule is, and judges one without any solver: begin there. ``relaxation``
is the linear program whose optimum bounds every schedule, ``program`` the time-expanded integer program of schedules on
a grid of intervals.
"""
