"""
Exact division of layers into stages, under memory and recompute, with what later stages wait for.

Begin with ``divide``, which solves the problem of ``taut.formulations.partition``. ``labels`` is the one kernel, over
graphs of states; ``divide`` bounds two classes of device by single pipelines and by pairs. ``known_devices`` divides if
each stage's devices are known, and ``memory_excess`` says how many bytes are missing if nothing fits.
"""
