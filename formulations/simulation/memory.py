r"""
Memory of every pipeline rank over time.

(1) A forward pass of a chunk takes the bytes that stay of a micro-batch when it starts; they are free when the gradient
    by the weights, or the whole backward pass, has ended (``taut.formulations.tables.memory`` (2)).
(2) All else a rank holds throughout: its bytes by the evaluator less the most that its order keeps at once. The peak of
    the curve is the evaluator's figure.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.latency import memory_bytes
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.plan_orders import in_flight_counts
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT
from taut.formulations.simulation.operator_graph import OperatorGraph
from taut.formulations.strategy import Strategy
from taut.formulations.tables.memory import weigh_kept


class Held(NamedTuple):
    """Seconds at which what a device holds changes, from 0 on, and its bytes from then on."""

    moment: Floats
    held: Floats


def memory_curves(
    problem: PlanningProblem, strategy: Strategy, graph: OperatorGraph, start: Floats, pipeline: int = 0
) -> list[Held]:
    """
    Bytes of one device of every pipeline rank over time, (1) and (2).

    ``graph``, ``start``: its tasks and the seconds at which they start.
    """
    kept, (passes, first, _) = kept_bytes(problem, strategy), graph.order
    begin = start[graph.row[pipeline, :-1]]
    last = graph.last[pipeline]
    end = start[last] + graph.seconds[last]
    forward = passes[:, 0] == FORWARD
    change = np.where(forward, 1.0, -1.0) * kept[passes[:, 1]] * (passes[:, 0] != INPUT_GRADIENT)
    moment = np.where(forward, begin, end)
    found = []
    for base, low, high in zip(_base(problem, strategy, kept).tolist(), first, first[1:], strict=False):
        moments = np.concatenate([[0.0], moment[low:high]])
        found.append(Held(moments, base + np.concatenate([[0.0], np.cumsum(change[low:high])])))
    return found


def kept_bytes(problem: PlanningProblem, strategy: Strategy) -> Floats:
    """Bytes that stay of a micro-batch of every chunk until its backward pass, (chunks,)."""
    candidate, (recompute, first, end) = strategy.candidate, strategy.ranges
    if not candidate.is_order_priced:
        return np.asarray(problem.stage_memory(candidate).activation[recompute, first, end], dtype=float)
    activation = problem.tables(candidate).activation[recompute, first, end]
    return weigh_kept(problem.memory, recompute, activation).astype(float)


def _base(problem: PlanningProblem, strategy: Strategy, kept: Floats) -> Floats:
    """Bytes that every rank holds throughout, (2)."""
    candidate = strategy.candidate
    if not candidate.is_order_priced:
        return np.asarray(problem.stage_memory(candidate).held[*strategy.ranges], dtype=float)
    whole = np.array(memory_bytes(problem, strategy), dtype=float)
    device, counts = problem.device_memory(candidate).device, in_flight_counts(*candidate.order_key)
    return np.asarray(whole - np.array([(count @ kept[device == d]).max() for d, count in enumerate(counts)]))
