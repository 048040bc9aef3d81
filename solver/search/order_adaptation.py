r"""
Drafts: divisions of the layers under an order, for which another order may be quicker.

A schedule on the V runs its passes in an order that does not depend on the times, unless one was adapted. Candidates
that differ in ZeRO and sequence parallelism alone share their orders. For the draft of least seconds whose order was
not looked at yet, as long as it is within ``REACH`` of the best plan, an order is sought
(``taut.solver.order_priced.adapt``) that beats the best plan, and the draft by ``WORTH``. It joins the space, so that
division and order are improved in turn.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.plan_orders import ON_V
from taut.formulations.space import Candidate, GivenOrder
from taut.formulations.strategy import Division
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.layer_partition import Partition
from taut.solver.order_priced.adapt import adapted_words
from taut.solver.search.incumbent import Best

REACH = 0.04
"""Relative distance from the best plan within which an order is sought."""
WORTH = 1e-3
"""Relative gain from which an order joins the space."""
AGAIN = 5e-3
"""Relative gain by a better division from which an order is looked at again."""

Degrees = tuple[str, int, int, int, int]


@dataclass(order=True)
class _Draft:
    seconds: float
    candidate: Candidate
    division: Division = field(compare=False)


class Drafts:
    """Drafts that wait for an order, and divisions that orders were made for."""

    def __init__(self, problem: PlanningProblem, links: BestLinks, best: Best, seed: int) -> None:
        self._problem, self._links, self._best, self._seed = problem, links, best, seed
        self._waiting: list[_Draft] = []
        self._seen: dict[tuple[Degrees, tuple[str, ...]], float] = {}
        self._divisions: dict[tuple[str, ...], Division] = {}

    def wanted(self, candidate: Candidate, seconds: float) -> bool:
        """Whether a division that takes no less may be a draft."""
        return candidate.schedule in ON_V and seconds < self._best.seconds * (1 + REACH)

    def note(self, candidate: Candidate, found: Partition) -> None:
        """Keep a division whose order may be improved."""
        if self.wanted(candidate, found.seconds):
            heapq.heappush(self._waiting, _Draft(found.seconds, candidate, found.division))

    def divisions(self, candidate: Candidate) -> list[Division]:
        """What an adapted order was made for."""
        return [self._divisions[candidate.order]] if candidate.order in self._divisions else []

    @property
    def waiting(self) -> bool:
        """Whether there is a draft within reach of the best plan."""
        while self._waiting and self._is_done(self._waiting[0]):
            heapq.heappop(self._waiting)
        known = self._best.incumbent is not None and bool(self._waiting)
        return known and self.wanted(self._waiting[0].candidate, self._waiting[0].seconds)

    def _is_done(self, draft: _Draft) -> bool:
        return draft.seconds >= self._seen.get(_looked_at(draft.candidate), np.inf) * (1 - AGAIN)

    def adapted(self, stop: Callable[[], bool]) -> GivenOrder | None:
        """An order for the first draft that waits; None if none was found that is worth it."""
        draft = heapq.heappop(self._waiting)
        choice = draft.candidate
        self._seen[_looked_at(choice)] = draft.seconds
        gain = max(draft.seconds - self._best.seconds, WORTH * draft.seconds)
        given = chunked(self._problem, choice, self._links)
        words = adapted_words(given, choice, draft.division, gain=gain, seed=self._seed, stop=stop)
        if not words:
            return None
        self._divisions[words] = draft.division
        return GivenOrder(
            schedule=choice.schedule,
            pp=choice.pp,
            tp=choice.tp,
            micro_batch=choice.micro_batch,
            num_micro_batches=choice.num_micro_batches,
            words=list(words),
        )


def _looked_at(choice: Candidate) -> tuple[Degrees, tuple[str, ...]]:
    degrees = choice.schedule, choice.pp, choice.tp, choice.micro_batch, choice.num_micro_batches
    return degrees, choice.order
