r"""
The graph of one training step: tasks on the streams of devices, and what each waits for.

``taut.formulations.simulation.graph`` builds it and says what its tasks are. The step takes as long as the longest path
through it, (4) there.

A compiled sweep from a queue of tasks that are ready says when each runs. Sets: tasks u with
:math:`\tau_u` seconds on a stream :math:`s(u)`; :math:`P(v)` tasks that v waits for, among them the one before it on
its stream.

(5) Every task starts as early as it may: :math:`start_v = \max_{u \in P(v)} start_u + \tau_u`, 0 without any.
(6) A task enters the queue when the last that it waits for has run (Algorithm 1 of vTrain). As every stream has one
    order, which is part of P, the times are those of the longest paths of the graph, whichever of the tasks in the
    queue comes first: by induction over the queue all starts on the right of (5) are final when v is taken.
(7) A set of tasks that wait for each other in a circle never runs.

References
----------
Bang et al. (2024), vTrain: A simulation framework for evaluating cost-effective and compute-optimal large language
model training, Algorithm 1.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.errors import FormulationError
from taut.formulations.compiled import jit
from taut.formulations.schedules.plan_orders import Order
from taut.formulations.simulation.layout import Narrow, children
from taut.formulations.simulation.operators import KINDS, PARTS, STREAMS
from taut.formulations.simulation.replicas import Replicas

if TYPE_CHECKING:
    from networkx import DiGraph


@jit
def run(seconds: Floats, first_dependency: Ints, first_child: Ints, child: Narrow, start: Floats) -> int:
    """
    Start every task, (5), in the order of (6).

    ``seconds``: duration of every task (n,); ``first_dependency``: where the tasks begin that each waits for (n + 1,);
    only their number counts; ``first_child``, ``child``: tasks that wait for each (n + 1,) and (edges,); ``start``:
    filled with the seconds at which each task starts; zero before. Returns tasks that ran: n, or fewer by (7).
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


MOST_IN_NETWORKX = 20_000
"""Tasks of a graph that may be had as a networkx object, which takes about a kilobyte for each."""


@dataclass(frozen=True, eq=False)
class OperatorGraph:
    """
    Tasks of a step.

    ``seconds``: duration of every task (n,); ``stream``: stream of every task (n,): ``STREAMS`` of device 0, then of
    device 1, and two of the whole job at last; ``kind``, ``part``, ``layer``, ``chunk``, ``micro_batch``: what a task
    does, and for what (n,): places in ``KINDS`` and ``PARTS``; -1 where there is none; ``first_dependency``,
    ``dependency``: tasks that each waits for: ``dependency[first_dependency[u] : first_dependency[u + 1]]``; ``order``:
    passes of the pipeline ranks; ``row``, ``last``: first task of every pass of every simulated pipeline (pipelines,
    passes + 1), and the one that ends the pass; ``replicas``: replicas that are simulated, and which stands for which.
    """

    seconds: Floats
    stream: Narrow
    kind: Narrow
    part: Narrow
    layer: Narrow
    chunk: Narrow
    micro_batch: Narrow
    first_dependency: Ints
    dependency: Narrow
    order: Order
    row: Ints
    last: Ints
    replicas: Replicas

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.seconds)

    @property
    def ranks(self) -> int:
        """Pipeline ranks of a replica."""
        return len(self.order.first) - 1

    @property
    def devices(self) -> int:
        """Devices that are simulated: ranks of the first simulated pipeline, then of the second."""
        return self.ranks * len(self.replicas.simulated)

    @cached_property
    def children(self) -> tuple[Ints, Narrow]:
        """Tasks that wait for each: the row of each one's first (n + 1,), and the tasks."""
        return children(self.first_dependency, self.dependency)

    def times(self) -> Floats:
        """
        Start of every task (n,), none before those that it waits for end.

        Raises ``FormulationError`` if tasks wait for each other in a circle.
        """
        start = np.zeros(self.tasks)
        ran = run(self.seconds, self.first_dependency, *self.children, start)
        if ran < self.tasks:
            raise FormulationError(f"{self.tasks - ran} tasks wait for each other for ever")
        return start

    def name(self, task: int) -> str:
        """What a task does, such as ``forward attention, layer 3, micro-batch 0``."""
        layer, micro_batch = int(self.layer[task]), int(self.micro_batch[task])
        words = f"{KINDS[self.kind[task]]} {PARTS[self.part[task]]}".strip()
        words += f", layer {layer}" if layer >= 0 else ""
        return words + (f", micro-batch {micro_batch}" if micro_batch >= 0 else "")

    def to_networkx(self) -> "DiGraph[int]":
        """
        The graph of a small step, tasks as nodes with their figures.

        Raises ``FormulationError`` if it has more than ``MOST_IN_NETWORKX`` tasks.
        """
        if self.tasks > MOST_IN_NETWORKX:
            raise FormulationError(f"{self.tasks} tasks, expected at most {MOST_IN_NETWORKX} for a networkx graph")
        from networkx import DiGraph

        graph: DiGraph[int] = DiGraph()
        for u in range(self.tasks):
            device, stream = divmod(int(self.stream[u]), len(STREAMS))
            whole = device >= self.devices
            of = {"device": -1, "stream": "job"} if whole else {"device": device, "stream": STREAMS[stream]}
            graph.add_node(u, name=self.name(u), kind=KINDS[self.kind[u]], seconds=float(self.seconds[u]), **of)
        waits = np.repeat(np.arange(self.tasks), np.diff(self.first_dependency))
        graph.add_edges_from(zip(self.dependency.tolist(), waits.tolist(), strict=True))
        return graph
