"""
One training step as a graph of operators on streams, and when each of them runs.

Begin with ``graph`` (what is simulated, as flat arrays, and the mathematics) and ``events`` (the sweep over it);
``operators`` prices an operator with the evaluator's own figures, ``passes`` makes the passes of a chunk out of them,
``replicas`` leaves out copies, ``tail`` adds what follows the passes, ``exposure`` says what streams wait for;
``cards`` and ``contention`` slow flows that share network cards, where that is asked for.
"""
