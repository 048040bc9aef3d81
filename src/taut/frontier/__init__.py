"""
Step time against the memory limit of a device, with a bound at every limit.

``epsilon_constraint`` is the entry, :func:`taut.pareto`, and searches one limit after another. ``frontier`` says what a
limit means, and holds the result and what it proves between two limits. ``resources`` adds GPUs and dollars.
"""
