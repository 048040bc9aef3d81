"""
Mechanisms: ways to split, price or store a step, each in one module with its equations, data and rules.

A module brings a record of each of its fields of a candidate (``taut.formulations.fields``), and a function that yields
a candidate's variants (``taut.formulations.candidates`` lists these). ``latency_models`` states what a step waits for
under each model of the step time. Begin with ``unequal_replicas``, the shortest. ``shards`` has ZeRO from its fields to
its terms of time and memory (``taut.formulations.terms``), ``offload`` what lies in the memory of hosts.
"""
