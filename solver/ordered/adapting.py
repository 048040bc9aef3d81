r"""
An order of the passes for the times of a candidate: an order that is known, improved in the memory of the schedule.

Given a division of the layers, seconds of every chunk's passes and cuts at the best links, and what its activations
take, the schedule's own order :math:`o`, by formula or by repeating a block, holds :math:`M_d(o)` on device d. Sought
is an order of least makespan with

.. math:: M_d \le M_d(o) \quad \text{on every device d}, \tag{1}

by the search of ``taut schedule`` (:mod:`taut.solver.schedules.adapt`): a short one first, and a longer one where the
makespan that it found is within ``PROMISING`` of the seconds that are to be beaten (2). Nothing is claimed of how good
the order is; as part of the space, it has bounds like any other.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from taut.formulations.chunk_division import ChunkProblem
from taut.formulations.ordered import as_schedule, order_of
from taut.formulations.orders.words import words_of
from taut.formulations.schedule import ScheduleProblem, timetable
from taut.formulations.space import Candidate
from taut.solver.ordered.division import Division
from taut.solver.schedules.adapt import Effort, adapt, effort
from taut.solver.schedules.in_order import in_order

SHORT = 8
"""So many times as much as the short search tries the longer one."""
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
        A word for each device (:mod:`taut.formulations.orders.words`); empty where the gain was not reached.
    """
    pipeline, known = _pipeline(given, division), as_schedule(candidate.schedule, given.order)
    own = as_schedule(candidate.schedule, order_of(*candidate.order_key[:4]))
    target = timetable(pipeline, known).makespan - gain
    pipeline = replace(pipeline, memory_limit=timetable(pipeline, own).peak_memory)
    work = effort(pipeline)
    for each, within in ((_part(work), PROMISING * target), (work, 0.0)):
        known = in_order(pipeline, adapt(pipeline, kind=own.kind, known=[own, known], work=each, seed=seed, stop=stop))
        if timetable(pipeline, known).makespan >= target + within:
            return ()
    return words_of(known)


def _part(work: Effort) -> Effort:
    """The short search, (2)."""
    return Effort(lists=work.lists // SHORT, kept=max(work.kept // SHORT, 2), trials=work.trials // SHORT)


def _pipeline(given: ChunkProblem, division: Division) -> ScheduleProblem:
    """The pipeline of a division at the best links."""
    chosen = division.recompute, division.firsts, division.ends
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
