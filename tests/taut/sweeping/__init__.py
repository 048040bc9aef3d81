"""Sweeps: expansion, the journal, executors, and a kill at any time."""
