"""
Fits to measured runs.

Begin with ``latency``, which fits the coefficients of the step time and the factors of layer shapes. ``memory`` weighs
the terms of a memory model and finds its margin. ``memory_network`` trains Pipette's network.
"""
