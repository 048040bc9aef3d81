"""
One training step as a graph of operators on streams, and the time at which each operator runs.

Begin with ``graph`` (what is simulated, and the mathematics) and ``operator_graph`` (its tasks as flat arrays, equal
replicas left out, and the sweep over them). ``operators`` prices an operator, ``passes`` joins operators to passes of a
chunk and adds what follows the passes, and ``exposure`` says what streams wait for. ``cards`` slows flows that share
network cards.
"""
