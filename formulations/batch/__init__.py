"""
The evaluator of step time and memory over many configurations, as arrays with one row each.

``configurations`` holds the rows, ``step_time`` their seconds by term, ``memory`` their bytes by term. It prices the
same model as ``taut.formulations.latency`` and ``taut.formulations.tables.memory``, with even stages.
"""
