r"""
Adaptation of orders to divisions: an alternating local search over the division and the order of the passes.

A schedule on the V runs its passes in an order that does not depend on the times, unless one was adapted. Candidates
that differ in ZeRO and sequence parallelism alone share their orders.

(1) Divisions that the search finds under the known orders are kept in a priority queue by their makespan.
(2) For the division of least makespan whose order was not searched yet, as long as it is within ``REACH`` of the best
    plan, an order is sought (``taut.solver.order_priced.adapt``) that is faster than the best plan, and by
    ``LEAST_GAIN`` faster than the division under its known order.
(3) Such an order joins the space as a candidate of its own, which is divided anew; so division and order are improved
    in turn.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.plan_orders import ON_V, GivenOrder
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.layer_division.divide import Partition
from taut.solver.order_priced.adapt import adapted_order
from taut.solver.search.incumbent import Best

REACH = 0.04
"""Relative distance from the best plan within which an order is sought."""
LEAST_GAIN = 1e-3
"""Relative gain from which an order joins the space, since every order adds candidates to bound."""
REPEAT_GAIN = 5e-3
"""Relative gain of a division over the one searched before from which its order is searched again."""

Degrees = tuple[str, int, int, int, int]


@dataclass(order=True)
class _Pending:
    seconds: float
    candidate: Candidate
    division: Division = field(compare=False)


class OrderAdaptation:
    """
    Divisions that await an order, and divisions that orders were adapted to.

    Parameters
    ----------
    problem, links
        What is planned, and its best links.
    best
        The best plan so far.
    seed
        Seed of the searches for orders.
    """

    def __init__(self, problem: PlanningProblem, links: BestLinks, best: Best, seed: int) -> None:
        self._problem, self._links, self._best, self._seed = problem, links, best, seed
        self._queue: list[_Pending] = []
        self._searched: dict[tuple[Degrees, tuple[str, ...]], float] = {}
        self._divisions: dict[tuple[str, ...], Division] = {}

    def is_within_reach(self, candidate: Candidate, seconds: float) -> bool:
        """Whether an order may be adapted to a division with so many seconds at least."""
        return candidate.schedule in ON_V and seconds < self._best.seconds * (1 + REACH)

    def add(self, candidate: Candidate, found: Partition) -> None:
        """Put a division into the queue if an order may be adapted to it, (1)."""
        if self.is_within_reach(candidate, found.seconds):
            heapq.heappush(self._queue, _Pending(found.seconds, candidate, found.division))

    def divisions(self, candidate: Candidate) -> list[Division]:
        """The division that the candidate's order was adapted to, if any."""
        return [self._divisions[candidate.order]] if candidate.order in self._divisions else []

    @property
    def has_pending(self) -> bool:
        """Whether there is a division to adapt an order to, (2)."""
        while self._queue and self._is_done(self._queue[0]):
            heapq.heappop(self._queue)
        known = self._best.incumbent is not None and bool(self._queue)
        return known and self.is_within_reach(self._queue[0].candidate, self._queue[0].seconds)

    def _is_done(self, pending: _Pending) -> bool:
        return pending.seconds >= self._searched.get(_order_of(pending.candidate), np.inf) * (1 - REPEAT_GAIN)

    def adapt_next(self, stop: Callable[[], bool]) -> GivenOrder | None:
        """
        Search an order for the first division in the queue, (2).

        ``stop``: asked between trials whether to stop. Returns None if none was found that gains enough.
        """
        pending = heapq.heappop(self._queue)
        choice = pending.candidate
        self._searched[_order_of(choice)] = pending.seconds
        gain = max(pending.seconds - self._best.seconds, LEAST_GAIN * pending.seconds)
        given = chunked(self._problem, choice, self._links)
        words = adapted_order(given, choice, pending.division, gain=gain, seed=self._seed, stop=stop)
        if not words:
            return None
        self._divisions[words] = pending.division
        return GivenOrder(
            schedule=choice.schedule,
            pp=choice.pp,
            tp=choice.tp,
            micro_batch=choice.micro_batch,
            num_micro_batches=choice.num_micro_batches,
            words=list(words),
        )


def _order_of(choice: Candidate) -> tuple[Degrees, tuple[str, ...]]:
    degrees = choice.schedule, choice.pp, choice.tp, choice.micro_batch, choice.num_micro_batches
    return degrees, choice.order
