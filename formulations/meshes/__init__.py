"""
Meshes of devices: pipelines whose stages have other tensor and data-parallel degrees on each type of device.

Begin with ``choice`` (what is chosen), then ``step_time`` (what it costs, and how activations go from one mesh to the
next).
"""
