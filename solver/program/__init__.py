"""
The integer program of ``taut.formulations.program`` in CP-SAT and CBC.

``cp_sat`` and ``cbc`` solve it, ``checked`` checks a solution against the evaluator.
"""
