"""
Lower bounds on the makespan of a pipeline within memory limits, with witnesses.

``destructive_bound`` is the entry. ``closed_form_bounds`` come first; ``single_device`` is a one-machine relaxation
in whole numbers, solved by dynamic programming (``sweep``); ``heads_tails`` joins the devices. ``certificate`` is what
is written and checked.
"""
