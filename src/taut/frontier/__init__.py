"""
Step time against the memory limit of a device, with a bound at every limit.

``frontier`` says what a limit means, holds the result and what it proves between two limits, and has the entry,
:func:`taut.pareto`, which searches one limit after another. ``resources`` adds GPUs and dollars.
"""
