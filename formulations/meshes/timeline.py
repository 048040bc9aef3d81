r"""
A step of a pipeline of meshes, pass by pass: when every stage of every pipeline runs which micro-batch.

Sets: stages x, pipelines c, micro-batches i, as in ``taut.formulations.meshes.step_time``.

(1) Every pipeline runs 1F1B by the recurrence of ``taut.formulations.schedules.schedule`` (2) to (5), with the seconds
    of its slowest replica on every stage. A transfer between stages takes half of the hop there and back, the slowest
    rank's, in either direction.
(2) end[x] is when stage x ends its last pass in all pipelines; reductions, a tied embedding's exchange and the
    optimizer follow as in ``step_time`` (5).
(3) With one micro-batch and one rank of every pipeline on a stage, end[0] is that of ``step_time`` (4), and the step
    is (5) where every hop takes as long back as forth. So it is where hops take no time and the last stage is the
    slowest one.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.meshes.step_time import (
    AfterPasses,
    MeshPlan,
    after_passes,
    hops_of,
    pipeline_seconds,
    ranges_of,
)
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders.classic import one_forward_one_backward
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, Timetable, sequential, timetable
from taut.formulations.tables.memory import kept_coefficients


@dataclass(frozen=True, kw_only=True, eq=False)
class MeshTimeline:
    """
    When every pass runs, (1), and what follows.

    ``pipelines``, ``times``: every pipeline with its timetable, in the units seconds and bytes; ``schedule``: the order
    of passes, that of all pipelines; ``ended``: seconds at which every stage ends its passes (P,), (2); ``after``:
    reductions, exchange of a tied embedding, optimizer; ``total``: seconds of the step.
    """

    pipelines: tuple[ScheduleProblem, ...]
    times: tuple[Timetable, ...]
    schedule: Schedule
    ended: Floats
    after: AfterPasses
    total: float

    @property
    def slowest(self) -> int:
        """The pipeline whose passes end last."""
        return int(np.argmax([each.makespan for each in self.times]))


def mesh_timeline(problem: PlanningProblem, plan: MeshPlan) -> MeshTimeline:
    """
    Run a plan pass by pass, (1) and (2).

    ``problem``: model, cluster and costs; the latency model is ``step``; ``plan``: meshes, division and devices.
    """
    stage, backward = pipeline_seconds(problem, plan)
    weight, hops, held = _weight_gradients(problem, plan), hops_of(problem, plan), _held(problem, plan)
    transfer = problem.coefficient("pipeline") * (hops.forth + hops.back) / 2
    pipelines = tuple(
        ScheduleProblem(
            device=sequential(plan.choice.pp),
            forward=stage[:, c] - backward[:, c],
            input_gradient=backward[:, c] - weight,
            weight_gradient=weight,
            transfer=transfer[:, c],
            num_micro_batches=plan.choice.num_micro_batches,
            activation=held,
            kept_for_weight=held,
            memory_limit=np.full(plan.choice.pp, np.inf),
        )
        for c in range(plan.choice.pipelines)
    )
    schedule = one_forward_one_backward(pipelines[0])
    times = tuple(timetable(pipeline, schedule) for pipeline in pipelines)
    ended = np.array([[float(end[-1]) for end in each.end] for each in times]).max(axis=0)
    after = after_passes(problem, plan, backward)
    total = after.end(ended) + float(after.optimizer.max()) + problem.constant_seconds
    return MeshTimeline(pipelines=pipelines, times=times, schedule=schedule, ended=ended, after=after, total=total)


def _weight_gradients(problem: PlanningProblem, plan: MeshPlan) -> Floats:
    """Seconds of the gradients by the weights of every stage (P,)."""
    choice = plan.choice
    every = [problem.passes(choice.candidate(k)).weight_gradient[mesh.kind] for k, mesh in enumerate(choice.meshes)]
    return np.concatenate([each[ranges_of(plan, k)] for k, each in enumerate(every)])


def _held(problem: PlanningProblem, plan: MeshPlan) -> Floats:
    """Bytes that one micro-batch's forward pass of every stage keeps (P,)."""
    weights = kept_coefficients(problem.memory)[plan.division.recompute_index]
    every = [problem.tables(plan.choice.candidate(k)).activation for k in range(len(plan.choice.meshes))]
    return np.asarray(weights * np.concatenate([each[ranges_of(plan, k)] for k, each in enumerate(every)]))
