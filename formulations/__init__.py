"""
The problem, as mathematics on arrays: the space of candidates, the price of a plan, and what fits.

Begin with ``space`` (candidates), ``strategy`` (a candidate with its division) and ``latency`` (the step time).
``mechanisms`` has a module for each way to split, price or store a step, and ``terms`` the records that they make.
``problem`` joins the inputs of a plan, ``tables`` prices ranges of layers, ``partition`` divides the layers, and
``placement`` gives every worker a device. ``batch`` prices many rows at once, ``simulation`` runs one step.
"""
