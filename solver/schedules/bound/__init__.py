"""
Lower bounds on the makespan of a pipeline within memory limits, with witnesses.

``destructive_bound`` is the entry. ``closed_form_bounds`` come first; ``single_device`` is a one-machine relaxation
solved by dynamic programming (``states``, ``sweep``); ``heads_tails`` joins the devices, on the numbers of
``rounded_problem``. ``certificate`` is what is written and checked.
"""
