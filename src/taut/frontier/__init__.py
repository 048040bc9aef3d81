"""
Step time against the memory limit of a device, with a bound at every limit.

``epsilon_constraint`` is the entry, :func:`taut.pareto`, and searches one limit after another. ``memory_limits`` says
what a limit means, and ``frontier`` holds the result and what it proves between two limits.
"""
