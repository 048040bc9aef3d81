"""
One training step as a graph of operators on streams, and when each of them runs.

Begin with ``graph`` (what is simulated, and the mathematics), ``operator_graph`` (its tasks as flat arrays) and
``events`` (the sweep over it); ``operators`` prices an operator with the evaluator's own figures, ``passes`` makes the
passes of a chunk out of them, ``replicas`` leaves out copies, ``tail`` adds what follows the passes, ``exposure`` says
what streams wait for;
``cards`` and ``contention`` slow flows that share network cards, where that is asked for.
"""
