"""
Simulation of one training step, event by event.

Begin with ``simulate``, which takes a plan or a request; ``result`` holds what it returns, ``configuration`` says which
strategy a request stands for, ``trace`` writes what ran when for Chrome's and Perfetto's viewers.
"""
