r"""
What follows the passes of a step: reductions of gradients, the norm, the optimizer.

(1) Without overlap the gradients of a pipeline rank are reduced at once when its last pass has ended in every replica,
    in the seconds of ``taut.formulations.gradient_reductions`` (1).
(2) With overlap the parameters of a chunk fill buckets in the order in which the last pass that yields its gradients
    comes to them. A bucket is full with the part of a layer that brings it to :math:`\beta` parameters, and its
    reduction, which takes its share of the seconds of (1), may start when that part has run in every replica and the
    bucket before on the rank is reduced.
(3) First and last chunk exchange the gradients of a tied embedding when the last passes of both ranks have ended.
(4) The norm of all gradients waits for all passes and reductions, and the optimizer of every device for the norm.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.gradient_reductions import (
    bucket_parameters,
    by_device,
    optimizer_by_stage,
    overlaps,
    reduction_seconds,
    tied_seconds,
)
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.plan_orders import Order
from taut.formulations.schedules.recurrence import BACKWARD as WHOLE_BACKWARD
from taut.formulations.schedules.recurrence import WEIGHT_GRADIENT
from taut.formulations.simulation.layout import Narrow
from taut.formulations.simulation.operators import (
    BACKWARD,
    COMPUTE,
    DATA,
    NORM,
    OPTIMIZER,
    REDUCE,
    STREAMS,
    TIED,
    WEIGHT,
    WHOLE,
    Operator,
    Prices,
)
from taut.formulations.simulation.passes import Template
from taut.formulations.strategy import Strategy


class Tail(NamedTuple):
    """Tasks after the passes, with the tasks that each waits for; ``stream`` of an operator is one of the graph."""

    operators: list[Operator]
    after: list[list[int]]


class Ended(NamedTuple):
    """
    Passes as they lie in a graph.

    ``templates`` by simulated pipeline, kind of pass and chunk; ``row`` (n, passes + 1) the first task of every pass.
    """

    order: Order
    templates: list[list[list[Template | None]]]
    row: Ints

    def last_tasks(self, rank: int) -> list[int]:
        """Task that ends the last pass of a pipeline rank, in every simulated pipeline."""
        passed = int(self.order.first[rank + 1]) - 1
        return self.tasks(passed)

    def _template(self, pipeline: int, kind: int, chunk: int) -> Template:
        made = self.templates[pipeline][kind][chunk]
        assert made is not None
        return made

    def _task(self, pipeline: int, passed: int, own: Operator | None = None) -> int:
        """The task of an operator's kind, layer and part, or the one that ends the pass where there is none."""
        kind, chunk, _ = self.order.passes[passed].tolist()
        made, wanted = self._template(pipeline, kind, chunk), own and own[1:]
        place = next((k for k, each in enumerate(made.operators) if each[1:] == wanted), made.last)
        return int(self.row[pipeline, passed]) + place

    def last_gradients(self, chunk: int) -> int:
        """The last pass that yields gradients by the weights of a chunk."""
        passes = self.order.passes
        yields = (passes[:, 0] == WEIGHT_GRADIENT) | (passes[:, 0] == WHOLE_BACKWARD)
        return int(np.flatnonzero(yields & (passes[:, 1] == chunk))[-1])

    def tasks(self, passed: int, own: Operator | None = None) -> list[int]:
        """The task of an operator of a pass, or the one that ends it, in every simulated pipeline."""
        return [self._task(z, passed, own) for z in range(len(self.templates))]

    def template(self, passed: int) -> Template:
        """Tasks of a pass in the first simulated pipeline; the others have the same but those that take no time."""
        kind, chunk, _ = self.order.passes[passed].tolist()
        return self._template(0, kind, chunk)


def tail_of(problem: PlanningProblem, strategy: Strategy, devices: Ints, prices: Prices, ended: Ended) -> Tail:
    """
    Tasks that follow the passes, (1) to (4).

    ``problem``, ``strategy``, ``devices``: what is simulated, and the device of every worker (pp, dp, tp cp);
    ``prices``: parameters of the layers' parts.
    """
    tail, pp = Tail([], []), strategy.candidate.pp
    pipelines = len(ended.templates)
    reductions = reduction_seconds(problem, strategy, devices)
    overlapped = overlaps(problem, strategy.candidate)
    passes = [ended.last_tasks(x) for x in range(pp)]
    for x in np.flatnonzero(reductions).tolist():
        buckets = _buckets(problem, strategy, prices, ended, x) if overlapped else [(1.0, passes[x], -1)]
        _reduce(tail, ended, buckets, float(reductions[x]), x)
    first = int(ended.row[-1, -1])
    tied = float(tied_seconds(problem, strategy, devices))
    extra = pipelines * pp * len(STREAMS)
    if tied > 0.0:
        tail.after.append([*passes[0], *passes[-1]])
        tail.operators.append(Operator(tied, TIED, WHOLE, 0, extra + 1))
    waited = [task for each in passes for task in each] + list(range(first, first + len(tail.operators)))
    tail.operators.append(Operator(0.0, NORM, WHOLE, -1, extra))
    tail.after.append(waited)
    norm = first + len(tail.operators) - 1
    seconds = optimizer_by_stage(problem, strategy, devices)
    for z in range(pipelines):
        for x in range(pp):
            tail.operators.append(Operator(float(seconds[x]), OPTIMIZER, WHOLE, -1, _stream(z * pp + x, COMPUTE)))
            tail.after.append([norm])
    return tail


def _stream(device: int, stream: int) -> int:
    return device * len(STREAMS) + stream


def _reduce(tail: Tail, ended: Ended, buckets: list[tuple[float, list[int], int]], seconds: float, rank: int) -> None:
    """Reductions of a rank's buckets, each a share of the seconds, one after another, (1) and (2)."""
    before: list[int] = []
    for share, waits, layer in buckets:
        tail.operators.append(Operator(share * seconds, REDUCE, WHOLE, layer, _stream(rank, DATA)))
        tail.after.append([*waits, *before])
        before = [int(ended.row[-1, -1]) + len(tail.operators) - 1]


def _buckets(
    problem: PlanningProblem, strategy: Strategy, prices: Prices, ended: Ended, rank: int
) -> list[tuple[float, list[int], int]]:
    """Buckets of a rank by the time at which they are full: share of its parameters, tasks, last layer, (2)."""
    total = float(by_device(strategy, problem.tables(strategy.candidate).parameters)[rank])
    most, found = bucket_parameters(strategy.candidate), []
    for chunk in np.flatnonzero(ended.order.device == rank).tolist():
        passed = ended.last_gradients(chunk)
        first, end = strategy.stages[chunk]
        left = {(layer, part): count for layer in range(first, end) for part, count in prices.parameters(layer)}
        filled, made = 0, ended.template(passed)
        for own in made.operators:
            if own.kind in (BACKWARD, WEIGHT):
                filled += left.pop((own.layer, own.part), 0)
                if filled >= most:
                    found.append((filled / total, ended.tasks(passed, own), own.layer))
                    filled = 0
        if rest := filled + sum(left.values()):
            found.append((rest / total, ended.tasks(passed), first))
    return sorted(found, key=lambda bucket: bucket[1][0])


def appended(tail: Tail, first_dependency: Ints) -> tuple[Floats, Ints, Narrow]:
    """Seconds of a tail's tasks, where their dependencies begin after those of the passes, and the dependencies."""
    seconds = np.array([operator.seconds for operator in tail.operators])
    counts = np.cumsum([len(waits) for waits in tail.after])
    return seconds, first_dependency[-1] + counts, np.array([u for waits in tail.after for u in waits], np.int32)
