r"""
Best-first search: the loop of every branch and bound here.

Let b(i) bound from below all solutions in item i, and J be the value of the incumbent. Items that wait, and items that
are done without being solved, hold all solutions that may be better than the incumbent, so

(1) :math:`\min(J, \min_i b(i))`

is a lower bound on all solutions at any moment. The item that waits with the least b is refined: its bound rises, it is
replaced by its parts, or solutions in it lower J. The search ends where no item that waits has a bound below J, or
earlier at a stop, which leaves J with (1).

References
----------
Lawler and Wood (1966), Branch-and-bound methods: a survey.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Generic, Protocol, TypeVar

from taut.solver.branch_and_bound.stop import History, Listener, Progress, Stop
from taut.solver.result import CandidateBound, Limits, StoppedBy

Item = TypeVar("Item")


class OpenItems(Generic[Item]):
    """Items that wait to be refined, the one with the least bound first; of equal bounds the one that came first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Item]] = []
        self._number = count()

    def __len__(self) -> int:
        """How many items wait."""
        return len(self._heap)

    def __iter__(self) -> Iterator[Item]:
        """The items, in no order."""
        return (item for _, _, item in self._heap)

    @property
    def least(self) -> float:
        """The least bound of an item that waits, infinite where none does."""
        return self._heap[0][0] if self._heap else math.inf

    def push(self, bound: float, item: Item) -> None:
        """Let an item wait."""
        heapq.heappush(self._heap, (bound, next(self._number), item))

    def pop(self) -> tuple[float, Item]:
        """Take the item with the least bound."""
        bound, _, item = heapq.heappop(self._heap)
        return bound, item


class Search(Protocol):
    """What is searched: the items, the incumbent and the bound."""

    @property
    def incumbent_value(self) -> float:
        """J, infinite without an incumbent."""

    @property
    def lower_bound(self) -> float:
        """The bound (1)."""

    @property
    def is_open(self) -> bool:
        """Whether an item waits that may be better than the incumbent."""

    def refine(self) -> str | None:
        """Refine the item that is next; returns what was done in words, None where it was not a unit of work."""


class BestFirst:
    """
    The loop of a search: its work and history so far, when it ends, and who is told.

    ``search``: what is searched; ``limits``: when to stop, to be entered as ``stop`` before anything is done;
    ``listener``: called after every unit of work; ``candidates``: what the listener may look at.
    """

    def __init__(
        self,
        search: Search,
        limits: Limits,
        listener: Listener | None = None,
        candidates: Sequence[CandidateBound] = (),
    ) -> None:
        self.work, self.history, self.stop = 0, History(), Stop(limits)
        self._search, self._listener, self._candidates = search, listener, candidates

    def run(self) -> StoppedBy | None:
        """Refine until nothing waits; returns why the search stopped earlier, None if it did not."""
        while self._search.is_open:
            if reason := self.reason():
                return reason
            if (doing := self._search.refine()) is not None:
                self.report(doing)
        return None

    def reason(self) -> StoppedBy | None:
        """Why to stop now, None to go on."""
        return self.stop.reason(self._search.incumbent_value, self._search.lower_bound, self.work)

    def is_stopping(self) -> bool:
        """Whether to stop now, also within a refinement whose plan has closed the gap."""
        return self.reason() is not None

    def report(self, doing: str, work: int = 1) -> None:
        """Count units of work, and tell what they were unless there are no words for them."""
        self.work += work
        self.note()
        if doing:
            self.tell(doing)

    def note(self) -> None:
        """Keep where the search stands in its history."""
        self.history.note(self._standing(""))

    def tell(self, doing: str) -> None:
        """Tell where the search stands."""
        if self._listener is not None:
            self._listener(self._standing(doing))

    def _standing(self, doing: str) -> Progress:
        search = self._search
        return Progress(
            self.stop.seconds, search.incumbent_value, search.lower_bound, doing, self.work, self._candidates
        )
