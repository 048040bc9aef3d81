r"""
An order of the passes for the times of a candidate: an order that is known, improved in the memory of the schedule.

Given a division of the layers, seconds of every chunk's passes and cuts at the best links, and what its activations
take, the schedule's own order :math:`o`, by formula or by repeating a block, holds :math:`M_d(o)` on device d. Sought
is an order of least makespan with

.. math:: M_d \le M_d(o) \quad \text{on every device d}, \tag{1}

by the search of ``taut schedule`` (:mod:`taut.solver.schedules.construct.adapt`): a short one first, and a longer one
with other random bits where the makespan that it found is within ``PROMISING`` of the seconds that are to be beaten
(2). Nothing is claimed of how good the order is; as part of the space, it has bounds like any other.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from taut.formulations.order_division import ChunkProblem
from taut.formulations.schedules.orders.words import words_of
from taut.formulations.schedules.plan_orders import as_schedule, order_of
from taut.formulations.schedules.schedule import ScheduleProblem, timetable
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.schedules.construct.adapt import Effort, adapt, effort
from taut.solver.schedules.in_order import in_order

SHORT = 8
"""So many times as much as the short search tries the longer one."""
MOST_TRIALS = 60_000
"""Changes to an order that are tried at most, as others may follow for other divisions."""
PROMISING = 0.01
"""Relative distance beyond the seconds to beat up to which the longer search is made."""


def adapted_words(
    given: ChunkProblem,
    candidate: Candidate,
    division: Division,
    *,
    gain: float,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[str, ...]:
    """
    Words of an order that suits a division better than the candidate's.

    Parameters
    ----------
    given, candidate
        The division problem, with the candidate's order.
    division
        The layers of every chunk.
    gain
        Seconds of the makespan to save; less is of no use.
    seed, stop
        Of the search; asked between trials.

    Returns
    -------
    tuple
        A word for each device (:mod:`taut.formulations.schedules.orders.words`); empty where the gain was not reached.
    """
    pipeline, known = _pipeline(given, division), as_schedule(candidate.schedule, given.order)
    own = as_schedule(candidate.schedule, order_of(*candidate.order_key[:4]))
    target = timetable(pipeline, known).makespan - gain
    if pipeline.busy.max() >= target:
        return ()
    pipeline = replace(pipeline, memory_limit=timetable(pipeline, own).peak_memory)
    for turn, (work, within) in enumerate(_searches(pipeline, target)):
        known = adapt(pipeline, kind=own.kind, known=[own, known], work=work, seed=seed + turn, stop=stop)
        known = in_order(pipeline, known)
        if timetable(pipeline, known).makespan >= target + within:
            return ()
    return words_of(known)


def _searches(pipeline: ScheduleProblem, target: float) -> list[tuple[Effort, float]]:
    """The short and the longer search, with the seconds beyond the target that are let pass after each, (2)."""
    work = effort(pipeline)
    lists, kept, trials = work.lists, work.kept, min(work.trials, MOST_TRIALS)
    short = Effort(lists=lists // SHORT, kept=max(kept // SHORT, 2), trials=trials // SHORT)
    return [(short, PROMISING * target), (Effort(lists=lists, kept=kept, trials=trials), 0.0)]


def _pipeline(given: ChunkProblem, division: Division) -> ScheduleProblem:
    """The pipeline of a division at the best links."""
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
