"""
Measurements with PyTorch on the machines at hand: costs of layers, and links between devices.

Begin with ``layers``, which measures a model's layers, and ``network``, which measures all pairs of processes.
``slices`` has the modules that run and their passes, ``layers`` the figures and kernels of many slices.
"""
