"""
From a request to a plan.

``solve`` holds :func:`taut.plan`: begin there. ``request`` is what a user asks for, checked; ``resolve`` turns it into
a planning problem (``choices`` refuses what nothing prices). ``meshes`` searches plans whose stages have degrees by
type of device. ``plan`` is the result and reads, checks and prints it; ``tables`` has its records of stages and
workers.
"""
