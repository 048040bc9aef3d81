"""
Fits to measured runs.

Begin with ``latency``, which fits the coefficients of the step time. ``memory`` weighs the terms of a memory model,
``margin`` finds its margin, ``layer_factors`` the factors of layer shapes. ``memory_network`` trains Pipette's network.
"""
