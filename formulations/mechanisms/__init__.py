"""
Mechanisms: what a step may do or be priced by, each in one module with its equations, data and rules.

Begin with ``latency_models``, which states what a step waits for under each model of the step time.
"""
