"""
Simulation of one training step, event by event.

Begin with ``simulate``, which takes a plan or a request. ``result`` is what it returns, in words and with the events
for Chrome's and Perfetto's viewers.
"""
