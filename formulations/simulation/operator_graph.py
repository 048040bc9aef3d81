r"""
The graph of one training step: tasks on the streams of devices, when each runs, and what devices do at every moment.

``taut.formulations.simulation.graph`` builds it and says what its tasks are. The step takes as long as the longest path
through it, (4) there. A compiled sweep from a queue of tasks that are ready says when each runs. Sets: tasks u with
:math:`\tau_u` seconds on a stream; :math:`P(v)` tasks that v waits for, among them the one before it on its stream.

(1) Every task starts as early as it may: :math:`start_v = \max_{u \in P(v)} start_u + \tau_u`, 0 without any.
(2) A task enters the queue when the last that it waits for has run (Algorithm 1 of vTrain). As every stream has one
    order, which is part of P, the times are those of the longest paths of the graph, whichever of the tasks in the
    queue comes first: by induction over the queue all starts on the right of (1) are final when v is taken.
(3) A set of tasks that wait for each other in a circle never runs.

Replicas, or where an expert group goes over several of them, so many together, run in step
(``taut.formulations.degrees`` (2)).

(4) The seconds of a replica's tasks depend on the device types of its blocks, the slowest links of their groups, the
    transfers between its chunks, and the rates of its gathers, alone.
(5) Replicas for which all of (4) are equal have equal tasks and, until the step's first reduction, no task that waits
    for another replica. They run at equal times, and one of them stands for all: a reduction that waits for each of
    them waits for it.

Templates of tasks (``taut.formulations.simulation.passes``), one for every replica, kind of pass and chunk, are copied
along the orders of the devices.

(6) Tasks lie device after device, in the order in which the device starts them.
(7) The first tasks of a pass wait for the end of the pass before on the device, and for the message of the chunk before
    (F), or after (I and B), where that lies on another device. A message also waits for the one before it on its
    stream.

At every moment of a step a device computes, waits for a collective or a message, or idles. Sets: activities in an order
of precedence: computation, tensor groups, context rings, exchanges of expert ranks, gathers and scatters, reductions of
gradients, messages on their way to the device.

(8) At any moment a device counts as busy with the first activity in this order that runs there, and idle where none
    does. Of the communication only what nothing before it hides counts: it is exposed.
(9) The seconds of all activities and of idleness, the bubble, add up to the step.

Memory of every pipeline rank has a curve over time:

(10) A forward pass of a chunk takes the bytes that stay of a micro-batch when it starts; they are free when the
    gradient by the weights, or the whole backward pass, has ended (``taut.formulations.tables.memory`` (2)).
(11) All else a rank holds throughout: its bytes by the evaluator less the most that its order keeps at once. The peak
    of the curve is the evaluator's figure.

References
----------
Bang et al. (2024), vTrain: A simulation framework for evaluating cost-effective and compute-optimal large language
model training, Algorithm 1.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints, Narrow
from taut.errors import FormulationError
from taut.formulations.compiled import jit
from taut.formulations.latency import kept_and_held
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import Order
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.sharding import rates_by_worker
from taut.formulations.simulation.passes import KINDS, PARTS, REDUCE, RETURN, SEND, STREAMS, TIED
from taut.formulations.strategy import Strategy
from taut.formulations.tables.block_traffic import BlockLink, block_link

if TYPE_CHECKING:
    from networkx import DiGraph


class Templates(NamedTuple):
    """
    Templates one after another, from rows ``first``; ``of`` (replicas, 4, chunks) names the one of a pass.

    ``last`` and ``send`` are places within a template, -1 for none; ``after`` (rows, 2) likewise, -2 for the start.
    """

    of: Ints
    first: Ints
    last: Ints
    send: Ints
    after: Ints
    seconds: Floats
    kind: Ints
    part: Ints
    layer: Ints
    stream: Ints


class Laid(NamedTuple):
    """
    Tasks of all passes, (6), and the pairs of which the second waits for the first, by the second.

    ``row`` (replicas, passes + 1) is the first task of every pass; dependencies are as in ``OperatorGraph``.
    """

    seconds: Floats
    stream: Narrow
    kind: Narrow
    part: Narrow
    layer: Narrow
    chunk: Narrow
    micro_batch: Narrow
    row: Ints
    first_dependency: Ints
    dependency: Narrow


@jit
def lay_out(
    passes: Ints, first: Ints, device: Ints, templates: Templates, num_micro_batches: int, streams: int
) -> Laid:
    """Copy the template of every pass (n, 3), (6), and connect them, (7), of chunks on devices (C,)."""
    replicas, chunks, devices = templates.of.shape[0], len(device), len(first) - 1
    row, sent, tasks = _rows(passes, templates, num_micro_batches)
    seconds, layer = np.zeros(tasks), np.zeros(tasks, np.int16)
    stream, micro_batch = np.zeros(tasks, np.int32), np.zeros(tasks, np.int32)
    kind, part, chunk = np.zeros(tasks, np.int8), np.zeros(tasks, np.int8), np.full(tasks, -1, np.int16)
    first_dependency, dependency = np.zeros(tasks + 1, np.int64), np.zeros(4 * tasks + 4, np.int32)
    last_sent = np.zeros(streams, np.int64)
    edges = 0
    for z in range(replicas):
        for d in range(devices):
            before, base = -1, (z * devices + d) * streams
            last_sent[:] = -1
            for r in range(first[d], first[d + 1]):
                way, c, i = passes[r, 0], passes[r, 1], passes[r, 2]
                made = templates.of[z, way, c]
                start, at = templates.first[made], row[z, r]
                message = -1
                if way == FORWARD:
                    if c > 0 and device[c - 1] != d:
                        message = sent[z, 0, c - 1, i]
                elif way != WEIGHT_GRADIENT and c < chunks - 1 and device[c + 1] != d:
                    message = sent[z, 1, c + 1, i]
                for k in range(templates.first[made + 1] - start):
                    u, of = at + k, start + k
                    seconds[u], kind[u], part[u] = templates.seconds[of], templates.kind[of], templates.part[of]
                    layer[u], chunk[u], micro_batch[u] = templates.layer[of], c, i
                    lane = templates.stream[of]
                    stream[u] = base + lane
                    first_dependency[u] = edges
                    for side in range(2):
                        place = templates.after[of, side]
                        if place >= 0:
                            dependency[edges] = at + place
                            edges += 1
                        elif place == -2:
                            if before >= 0:
                                dependency[edges] = before
                                edges += 1
                            if message >= 0:
                                dependency[edges] = message
                                edges += 1
                    if k == templates.send[made]:
                        if last_sent[lane] >= 0:
                            dependency[edges] = last_sent[lane]
                            edges += 1
                        last_sent[lane] = u
                before = at + templates.last[made]
    first_dependency[tasks] = edges
    return Laid(
        seconds, stream, kind, part, layer, chunk, micro_batch, row, first_dependency, dependency[:edges].copy()
    )


@jit
def _rows(passes: Ints, templates: Templates, num_micro_batches: int) -> tuple[Ints, Ints, int]:
    """First task of every pass, the task that sends the result of every forward and backward pass, and all tasks."""
    replicas, _, chunks = templates.of.shape
    row, at = np.zeros((replicas, len(passes) + 1), np.int64), 0
    sent = np.full((replicas, 2, chunks, num_micro_batches), -1, np.int64)
    for z in range(replicas):
        for r in range(len(passes)):
            way, c, i = passes[r, 0], passes[r, 1], passes[r, 2]
            made = templates.of[z, way, c]
            row[z, r] = at
            if templates.send[made] >= 0:
                sent[z, 0 if way == FORWARD else 1, c, i] = at + templates.send[made]
            at += templates.first[made + 1] - templates.first[made]
        row[z, len(passes)] = at
    return row, sent, at


@jit
def children(first_dependency: Ints, dependency: Narrow) -> tuple[Ints, Narrow]:
    """Tasks that wait for each: the row of each one's first, and the tasks; the dependencies turned round."""
    tasks = len(first_dependency) - 1
    first = np.zeros(tasks + 1, np.int64)
    for e in range(len(dependency)):
        first[dependency[e] + 1] += 1
    for u in range(tasks):
        first[u + 1] += first[u]
    at, child = first[:-1].copy(), np.zeros(len(dependency), np.int32)
    for v in range(tasks):
        for e in range(first_dependency[v], first_dependency[v + 1]):
            u = dependency[e]
            child[at[u]] = v
            at[u] += 1
    return first, child


@dataclass(frozen=True, eq=False)
class Replicas:
    """
    Prices of the replicas that are simulated, (4): n pipelines, each for all ``like`` it (dp,).

    ``types`` (pp, n, types) occur in a block; ``links`` (9, pp, n) are figures of ``BlockLink``; ``forth`` and ``back``
    (C - 1, n) seconds of transfers; ``rate`` (2, pp, n) seconds per byte of gathers, and of those of experts.
    """

    simulated: Ints
    like: Ints
    types: Ints
    links: Floats
    forth: Floats
    back: Floats
    rate: Floats

    def link(self, rank: int, pipeline: int) -> BlockLink:
        """Slowest links of a block."""
        return BlockLink(*self.links[:, rank, pipeline].tolist())

    def kinds(self, rank: int, pipeline: int) -> tuple[int, ...]:
        """Device types of a block."""
        return tuple(np.flatnonzero(self.types[rank, pipeline]).tolist())


def replicas_of(
    problem: PlanningProblem,
    strategy: Strategy,
    device: Ints,
    devices: Ints,
    *,
    every: bool = False,
    apart: Ints | None = None,
) -> Replicas:
    """Prices of a placement, each kind of replica once, (5); kinds ``apart`` (dp,), or all, are kept apart."""
    candidate = strategy.candidate
    of_workers = problem.type_of_node[problem.links.node_of[devices]]
    types = (of_workers[..., None] == np.arange(len(problem.device_types))).any(axis=-2)
    links = np.stack(block_link(problem.links, devices, candidate.block))
    forth, back = _transfers(problem, strategy, device, devices)
    pipelines = candidate.pipelines
    rate = np.stack(rates_by_worker(problem, candidate, devices))
    figures = [types.swapaxes(1, 2).reshape(-1, pipelines), links.reshape(-1, pipelines), forth, back]
    figures += [rate.reshape(-1, pipelines)]
    figures += [] if apart is None else [apart[None, :]]
    rows = np.concatenate(figures).T
    _, simulated, like = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    simulated, like = simulated.ravel(), like.ravel()
    if every:
        simulated = like = np.arange(pipelines)
    return Replicas(
        simulated,
        like,
        types[:, simulated],
        links[:, :, simulated],
        forth[:, simulated],
        back[:, simulated],
        rate[:, :, simulated],
    )


def _transfers(problem: PlanningProblem, strategy: Strategy, device: Ints, devices: Ints) -> tuple[Floats, Floats]:
    """Seconds from every chunk to the next and of the gradient back, the slowest rank's, (C - 1, dp) each."""
    links, weight = problem.links, problem.coefficient("pipeline")
    sites = links.site_of[devices]
    message = problem.tables(strategy.candidate).message[strategy.division.ends[:-1]][:, None, None]
    forth, back = links.hops(sites[device[:-1]], sites[device[1:]], message, strategy.candidate.width)
    return weight * forth.max(axis=-1), weight * back.max(axis=-1)


@jit
def run(seconds: Floats, first_dependency: Ints, first_child: Ints, child: Narrow, start: Floats) -> int:
    """Start every task, (1) and (2), into ``start`` (n,), zero before; returns how many ran, fewer by (3)."""
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
    Tasks (n,) of a step: seconds, streams of device 0, of device 1 and so on and two of the job, and what they do.

    ``kind`` and ``part`` are places in ``KINDS`` and ``PARTS``, -1 where there is none. Task u waits for
    ``dependency[first_dependency[u] : first_dependency[u + 1]]``. ``row`` and ``last`` (pipelines, passes) are the
    first task of every pass of a simulated pipeline, and the one that ends it.
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
        """Start of every task (n,); ``FormulationError`` if tasks wait for each other in a circle."""
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
        """The graph of at most ``MOST_IN_NETWORKX`` tasks as nodes with figures; ``FormulationError`` for more."""
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


ACTIVITIES = (
    "compute",
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "sharding",
    "data_parallel",
    "pipeline_transfers",
)
"""Activities in the order of (8); what is left is the bubble."""
_OF_KIND = {
    "tensor-parallel": 1,
    "context-parallel": 2,
    "exchange tokens": 3,
    "gather weights": 4,
    "scatter gradients": 4,
    "reduce gradients": 5,
    "reduce tied embedding": 5,
    "send activations": 6,
    "send gradients": 6,
}
ACTIVITY = np.array([_OF_KIND.get(kind, 0) for kind in KINDS])
"""Activity of every kind of task."""


def activity_seconds(graph: OperatorGraph, start: Floats) -> Floats:
    """Seconds of every activity and the bubble on simulated devices, (devices, activities + 1), (8) and (9)."""
    device, task = _where(graph)
    order = np.argsort(device, kind="stable")
    first = np.searchsorted(device[order], np.arange(graph.devices + 1))
    task = task[order]
    begin = start[task]
    activity = ACTIVITY[graph.kind[task]]
    found = _seconds(first, begin, begin + graph.seconds[task], activity, len(ACTIVITIES))
    whole = float((start + graph.seconds).max())
    return np.concatenate([found, whole - found.sum(axis=1, keepdims=True)], axis=1)


def _where(graph: OperatorGraph) -> tuple[Ints, Ints]:
    """Devices and the tasks that keep them busy, (8): messages at their receiver, reductions in every replica."""
    ranks, chunk_on = graph.ranks, graph.order.device
    device = (graph.stream // len(STREAMS)).astype(np.int64)
    task = np.flatnonzero((graph.seconds > 0) & (device < graph.devices))
    at = device[task]
    for kind, step in ((SEND, 1), (RETURN, -1)):
        sent = graph.kind[task] == kind
        at[sent] = at[sent] // ranks * ranks + chunk_on[graph.chunk[task[sent]] + step]
    shared = task[graph.kind[task] == REDUCE]
    tied = np.flatnonzero(graph.kind == TIED)
    devices, tasks = [at], [task]
    for z in range(len(graph.replicas.simulated)):
        if z:
            devices.append(z * ranks + device[shared])
            tasks.append(shared)
        for rank in (0, ranks - 1):
            devices.append(np.full(len(tied), z * ranks + rank))
            tasks.append(tied)
    return np.concatenate(devices), np.concatenate(tasks)


@jit
def _seconds(first: Ints, begin: Floats, end: Floats, activity: Ints, activities: int) -> Floats:
    """Seconds by (8) of devices whose tasks lie one device after the other."""
    found = np.zeros((len(first) - 1, activities))
    for d in range(len(first) - 1):
        low, high = first[d], first[d + 1]
        moments = np.concatenate((begin[low:high], end[low:high]))
        order = np.argsort(moments)
        running = np.zeros(activities, np.int64)
        before, tasks = 0.0, high - low
        for k in order:
            now = moments[k]
            if now > before:
                for a in range(activities):
                    if running[a] > 0:
                        found[d, a] += now - before
                        break
                before = now
            if k < tasks:
                running[activity[low + k]] += 1
            else:
                running[activity[low + k - tasks]] -= 1
    return found


class Held(NamedTuple):
    """Seconds at which what a device holds changes, from 0 on, and its bytes from then on."""

    moment: Floats
    held: Floats


def memory_curves(problem: PlanningProblem, strategy: Strategy, graph: OperatorGraph, start: Floats) -> list[Held]:
    """Bytes of one device of every rank of the first pipeline over time, (10) and (11), from the starts of tasks."""
    (kept, held), (passes, first, _) = kept_and_held(problem, strategy), graph.order
    begin = start[graph.row[0, :-1]]
    last = graph.last[0]
    end = start[last] + graph.seconds[last]
    forward = passes[:, 0] == FORWARD
    change = np.where(forward, 1.0, -1.0) * kept[passes[:, 1]] * (passes[:, 0] != INPUT_GRADIENT)
    moment = np.where(forward, begin, end)
    found = []
    for base, low, high in zip(held.tolist(), first, first[1:], strict=False):
        moments = np.concatenate([[0.0], moment[low:high]])
        found.append(Held(moments, base + np.concatenate([[0.0], np.cumsum(change[low:high])])))
    return found
