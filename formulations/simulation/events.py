r"""
When every task of a graph runs: a sweep from a queue of tasks that are ready, compiled.

Sets: tasks u with :math:`\tau_u` seconds on a stream :math:`s(u)`; :math:`P(v)` tasks that v waits for, among them the
one before it on its stream.

(1) Every task starts as early as it may: :math:`start_v = \max_{u \in P(v)} start_u + \tau_u`, 0 without any.
(2) A task enters the queue when the last that it waits for has run (Algorithm 1 of vTrain). As every stream has one
    order, which is part of P, the times are those of the longest paths of the graph, whichever of the tasks in the
    queue comes first: by induction over the queue all starts on the right of (1) are final when v is taken.
(3) A set of tasks that wait for each other in a circle never runs.

References
----------
Bang et al. (2024), vTrain: A simulation framework for evaluating cost-effective and compute-optimal large language
model training, Algorithm 1.
"""

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.simulation.layout import Narrow


@jit
def run(seconds: Floats, first_dependency: Ints, first_child: Ints, child: Narrow, start: Floats) -> int:
    """
    Start every task, (1), in the order of (2).

    ``seconds``: duration of every task (n,); ``first_dependency``: where the tasks begin that each waits for (n + 1,);
    only their number counts; ``first_child``, ``child``: tasks that wait for each (n + 1,) and (edges,); ``start``:
    filled with the seconds at which each task starts; zero before. Returns tasks that ran: n, or fewer by (3).
    """
    tasks = len(seconds)
    waits = np.empty(tasks, np.int32)
    queue = np.empty(tasks, np.int32)
    head, tail = 0, 0
    for u in range(tasks):
        waits[u] = first_dependency[u + 1] - first_dependency[u]
        if waits[u] == 0:
            queue[tail] = u
            tail += 1
    while head < tail:
        u = queue[head]
        head += 1
        end = start[u] + seconds[u]
        for e in range(first_child[u], first_child[u + 1]):
            v = child[e]
            start[v] = max(start[v], end)
            waits[v] -= 1
            if waits[v] == 0:
                queue[tail] = v
                tail += 1
    return head
