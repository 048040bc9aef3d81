"""
From a request to a plan.

``solve`` holds :func:`taut.plan`: begin there. ``request`` is what a user asks for, checked; ``resolve`` turns it into
a planning problem (``choices`` refuses what nothing prices), and ``method`` names what searches it. ``plan`` is the
result, ``tables`` its records of stages and workers, ``verification`` the check of what was written.
"""
