r"""
Cases of bound ``node-slots`` for the exchange of a tied embedding's gradient between first and last stage.

Let u be the vector of slots of the first stage and v that of the last, and :math:`c_{nn'}` the seconds of the exchange
between holders on nodes n and n'. Each holder of one stage has one partner in the other, so

(1) a node n with :math:`u_n > 0` waits for :math:`\min_{n': v_{n'} > 0} c_{nn'}` at least, over :math:`n' \ne n` alone
    where :math:`u_n > v_n`, since then some holder has its partner elsewhere; likewise of v;
(2) :math:`\tau(u, v)` is the largest of (1), and the step takes no less than the longest pipeline and :math:`\tau`.

For every u the last stage's vectors are taken apart by :math:`\tau`: in each case it is a constant. States that are
equal but for a change of nodes that have the same figures and the same :math:`u_n` have the same :math:`\tau`, so one
still stands for all. If the cases have more steps than ``MOST_STEPS`` together, the least exchange of any two devices
is taken for all of them.
"""

from collections.abc import Iterator

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.gradient_reductions import tied_bytes
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.placement.exact.slot_figures import Figures
from taut.solver.placement.exact.slot_states import MOST_STEPS, SlotStates, slot_states


def tied_cases(
    problem: PlanningProblem, candidate: Candidate, figures: Figures, listed: SlotStates, slots: Ints, kinds: Ints
) -> Iterator[tuple[Figures, SlotStates]]:
    """
    Cases with their figures and states; the given ones alone where nothing is tied, or the cases are too many.

    ``figures``, ``listed``: figures and states of all cases; ``slots``, ``kinds``: blocks and class of every node,
    (N,).
    """
    own = _by_start(listed, slots, kinds, candidate) if figures.tied > 0.0 else None
    if own is None:
        yield figures, listed
        return
    seconds = _exchange(problem, candidate)
    for start, states in own:
        waits = np.array([least_wait(seconds, start, end) for end in listed.vectors])
        for wait in np.unique(waits):
            yield figures._replace(tied=max(float(wait), figures.tied), ends=waits == wait), states


def _by_start(
    listed: SlotStates, slots: Ints, kinds: Ints, candidate: Candidate
) -> list[tuple[Ints, SlotStates]] | None:
    """States by vector of the first stage; None where they are too many."""
    found, steps = [], 0
    for number in np.unique(listed.vector[: listed.first[1]]):
        start = listed.vectors[number]
        finer = np.unique(np.stack([kinds, start], axis=1), axis=0, return_inverse=True)[1].ravel()
        states = slot_states(slots, finer, candidate.pp, candidate.dp, start)
        steps += MOST_STEPS if states is None else len(states.following)
        if states is None or steps > MOST_STEPS:
            return None
        found.append((start, states))
    return found


def _exchange(problem: PlanningProblem, candidate: Candidate) -> Floats:
    """Seconds between holders on every two nodes, (N, N)."""
    card = problem.rings.card
    shared = np.where(np.eye(len(card), dtype=bool), 0.0, np.maximum(card[:, None], card))
    return np.asarray(tied_bytes(problem, candidate) * np.maximum(problem.rings.inverse.dense(), shared))


def least_wait(seconds: Floats, start: Ints, end: Ints) -> float:
    """
    The least exchange of the slowest pair, (2).

    ``seconds``: of an exchange between holders on every two nodes, (N, N); ``start``, ``end``: holders of the first and
    of the last stage on every node, (N,).
    """
    there, back = _of_one_side(seconds, start, end), _of_one_side(seconds.T, end, start)
    return max(there, back)


def _of_one_side(seconds: Floats, own: Ints, others: Ints) -> float:
    """The largest of (1) over the nodes of one stage."""
    left = np.where(others > 0, seconds, np.inf)
    more = np.flatnonzero(own > others)
    left[more, more] = np.inf
    return float(left[own > 0].min(axis=1).max())
