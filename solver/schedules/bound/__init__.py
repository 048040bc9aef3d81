"""
Lower bounds on the makespan of a pipeline within memory limits, with witnesses.

``destructive_bound`` is the entry. ``closed_form_bounds`` come first; ``single_device`` is a one-machine relaxation
solved by dynamic programming (``states``, ``labels``, ``sweep``), ``propagation`` joins those of all devices, on the
numbers of ``rounded_problem`` and ``heads_tails``. ``certificate`` and ``witness`` are what is written and checked.
"""
