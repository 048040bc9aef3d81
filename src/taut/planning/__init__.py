"""
From a request to a plan.

``solve`` holds :func:`taut.plan`: begin there. ``request`` is what a user asks for, checked; ``resolve`` turns it into
a planning problem (``choices`` refuses what nothing prices). ``meshes`` searches plans whose stages have degrees by
type of device. ``plan`` is the result, which reads, checks and prints itself: ``summary`` has its words, ``proof`` what
its bound covers, and ``tables`` its records of stages and workers.
"""
