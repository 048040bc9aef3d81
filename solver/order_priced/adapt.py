r"""
An order of the passes for a candidate and a division: sampled list schedules and local search from a known order.

Data: seconds of every chunk's passes and of its cuts at the best links, and bytes of its activations, for a division of
the layers. The schedule's own order :math:`o`, by formula or by repeating a block, holds at most :math:`M_d(o)` bytes
on device d.

(1) Minimise the makespan of an order so that it holds at most :math:`M_d(o)` on every device d.

The search is that of ``taut schedule`` (``taut.solver.schedules.kinds``), in two turns:

(2) a short search first, and a longer one with another seed where the makespan found is within ``PROMISING`` of the
    target.

Nothing is claimed of how good the order is; as part of the space, it has bounds like any other.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from taut.formulations.order_division import ChunkProblem
from taut.formulations.schedules.orders import as_schedule, order_of, words_of
from taut.formulations.schedules.schedule import ScheduleProblem, canonical_schedule, timetable
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.schedules.kinds import Effort, effort, multi_start

SHORT = 8
"""Factor from the effort of the short search to that of the long one."""
MOST_TRIALS = 60_000
"""Changes to an order that are tried at most: a search is one of many, since every division asks for an order."""
PROMISING = 0.01
"""Relative distance beyond the target up to which the long search is made."""


def adapted_order(
    given: ChunkProblem,
    candidate: Candidate,
    division: Division,
    *,
    gain: float,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[str, ...]:
    """An order, a word for each device, that gains so many seconds for a division of chunks, (1); empty if none."""
    pipeline, known = _pipeline(given, division), as_schedule(candidate.schedule, given.order)
    own = as_schedule(candidate.schedule, order_of(*candidate.order_key[:4]))
    target = timetable(pipeline, known).makespan - gain
    if pipeline.busy.max() >= target:
        return ()
    pipeline = replace(pipeline, memory_limit=timetable(pipeline, own).peak_memory)
    for turn, (work, within) in enumerate(_searches(pipeline, target)):
        known = multi_start(pipeline, kind=own.kind, known=[own, known], work=work, seed=seed + turn, stop=stop)
        known = canonical_schedule(pipeline, known)
        if timetable(pipeline, known).makespan >= target + within:
            return ()
    return words_of(known)


def _searches(pipeline: ScheduleProblem, target: float) -> list[tuple[Effort, float]]:
    """The short and the long search, each with the seconds beyond the target up to which another follows, (2)."""
    work = effort(pipeline)
    lists, kept, trials = work.lists, work.kept, min(work.trials, MOST_TRIALS)
    short = Effort(lists=lists // SHORT, kept=max(kept // SHORT, 2), trials=trials // SHORT)
    return [(short, PROMISING * target), (Effort(lists=lists, kept=kept, trials=trials), 0.0)]


def _pipeline(given: ChunkProblem, division: Division) -> ScheduleProblem:
    """The scheduling problem of a division at the best links."""
    chosen = division.ranges
    passes = given.passes[:, *chosen]
    activation = given.activation[chosen]
    return ScheduleProblem(
        device=given.order.device,
        forward=passes[0],
        input_gradient=passes[1],
        weight_gradient=passes[2],
        transfer=np.where(given.away, given.edge[division.ends[:-1]], 0.0),
        num_micro_batches=given.micro_batches,
        activation=activation,
        kept_for_weight=activation,
        memory_limit=np.full(len(given.counts), np.inf),
    )
