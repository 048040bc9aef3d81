r"""
What every device does at every moment of a step, compiled: it computes, waits for a collective or a message, or idles.

Sets: activities in an order of precedence: computation, tensor groups, context rings, exchanges of expert ranks,
gathers and scatters, reductions of gradients, messages on their way to the device.

(1) At any moment a device counts as busy with the first activity in this order that runs there, and idle where none
    does. Of the communication only what nothing before it hides counts: it is exposed.
(2) The seconds of all activities and of idleness, the bubble, add up to the step.

Memory of every pipeline rank has a curve over time:

(3) A forward pass of a chunk takes the bytes that stay of a micro-batch when it starts; they are free when the gradient
    by the weights, or the whole backward pass, has ended (``taut.formulations.tables.memory`` (2)).
(4) All else a rank holds throughout: its bytes by the evaluator less the most that its order keeps at once. The peak of
    the curve is the evaluator's figure.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.latency import kept_and_held
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT
from taut.formulations.simulation.operator_graph import OperatorGraph
from taut.formulations.simulation.operators import KINDS, REDUCE, RETURN, SEND, STREAMS, TIED
from taut.formulations.strategy import Strategy

ACTIVITIES = (
    "compute",
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "sharding",
    "data_parallel",
    "pipeline_transfers",
)
"""Activities in the order of (1); what is left is the bubble."""
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
    """Seconds of every activity and the bubble on simulated devices, (devices, activities + 1), (1) and (2)."""
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
    """Devices and the tasks that keep them busy, (1): messages at their receiver, reductions in every replica."""
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
    """Seconds by (1) of devices whose tasks lie one device after the other."""
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
    """Bytes of one device of every rank of the first pipeline over time, (3) and (4), from the starts of tasks."""
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
