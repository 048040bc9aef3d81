"""
One training step as a graph of operators on streams, and the time at which each operator runs.

Begin with ``graph`` (what is simulated, and the mathematics) and ``operator_graph`` (its tasks as flat arrays, equal
replicas left out, the sweep over them, and what streams wait for). ``passes`` prices operators, joins them to passes of
a chunk and adds what follows the passes. ``cards`` slows flows that share network cards.
"""
