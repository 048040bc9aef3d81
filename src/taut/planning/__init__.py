"""
From a request to a plan.

``solve`` holds :func:`taut.plan`: begin there. ``options`` states each option of a request, and ``request`` checks the
values. ``resolve`` turns a request into a planning problem; ``choices`` refuses what nothing prices. ``meshes``
searches plans whose stages have degrees by type of device. ``plan`` is the result, which reads, checks and prints
itself: ``summary`` has its words, ``proof`` what its bound covers, and ``tables`` its records of stages and workers.
"""
