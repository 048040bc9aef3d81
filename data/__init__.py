"""
Inputs: models, clusters, devices, costs, memory models and calibrations, and readers of other tools' files.

Begin with ``load``, which turns a name or a file of a user into a spec. ``model``, ``cluster``, ``device``, ``costs``,
``memory``, ``calibration`` and ``stack`` are the specs; ``spec`` is what they share. ``catalog`` has the built-in ones,
``analytic`` prices layers without a profile, and ``samples`` are measured runs.
"""
