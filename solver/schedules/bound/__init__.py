"""
Lower bounds on the makespan of a pipeline within memory limits, with witnesses.

``bounds`` is the entry. ``cheap_bounds`` are closed forms, ``single_device`` a relaxation to one device solved by
labels,
``propagation`` the time windows of all devices; ``certificate`` and ``witness`` are what is written and checked.
"""
