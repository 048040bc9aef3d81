r"""
Refinements of a candidate that is priced by its order.

(1) ``order``: first the layers that its devices can take, and the simple plan of a candidate that this leaves
    (``taut.solver.simple_plans``); it takes milliseconds, so all candidates below the least bound are counted before
    any of them is bounded further. Then weighted paths through the order (``taut.solver.order_priced.bound``), with a
    short local search for a division and a constructed placement. A candidate that another one dominates in all cases
    takes its bound, and waits;
(2) a long local search from that division (``taut.solver.order_priced.divisions``), for the most promising
    candidates first and after (1) of all: a good division of one shortens or saves that of the others, and bounds cost
    less than divisions;
(3) placement as for any candidate (``taut.solver.search.refinement``);
(4) the bound rises branch by branch (``taut.solver.order_priced.branch_and_bound``), where need be after it was
    computed anew within the limit of a better plan, which leaves devices fewer options; and for the candidate that
    determines the global bound its division is annealed from a high temperature, in turns with its branches. One
    without branches, of layers that differ, is annealed as often. Where there are few divisions all of them are priced
    instead (``taut.solver.order_priced.stated``). Where layers differ, and ranges are their sums, all prefixes of
    divisions are searched before that (``taut.solver.order_priced.prefixes``).

Orders are adapted to divisions by an alternating local search over both. A schedule on the V runs its passes in an
order that does not depend on the times, unless one was adapted. Candidates that differ in ZeRO and sequence parallelism
alone share their orders.

(5) Divisions that the search finds under the known orders are kept in a priority queue by their makespan.
(6) For the division of least makespan whose order was not searched yet, as long as it is within ``WITHIN`` of the best
    plan, an order is sought (``taut.solver.order_priced.adapt``) that is faster than the best plan, and by
    ``LEAST_GAIN`` faster than the division under its known order.
(7) Such an order joins the space as a candidate of its own, which is divided anew; so division and order are improved
    in turn.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from taut.data.units import KIB
from taut.formulations.order_division import ROUNDING, ChunkProblem, SlowDevices
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import ON_V, GivenOrder
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.ladder.chunk_racks import Listed, listed_in_cases
from taut.solver.ladder.chunk_types import chunk_cases, most_within, of_cases
from taut.solver.ladder.computations import Evaluation, counted, order
from taut.solver.ladder.dominance import dominates_in_cases, dominates_under_an_order, inherited, likely_dominating
from taut.solver.ladder.ladder import Ladder
from taut.solver.layer_division.divide import Partition
from taut.solver.order_priced.bound import OrderBound
from taut.solver.order_priced.capacity import most_refuted
from taut.solver.order_priced.divisions import LONG, REACH, SHORT, DivisionAnnealing, improved_division
from taut.solver.order_priced.layer_bounds import linear_paths
from taut.solver.order_priced.layer_tree import LayerTree
from taut.solver.order_priced.placing import constructed
from taut.solver.order_priced.prefixes import Prefixes, prefixes_of
from taut.solver.order_priced.stated import number_of, stated_missing, stated_seconds
from taut.solver.result import CandidateBound, Limits, Source
from taut.solver.search.rack_trees import RackTrees, case_trees
from taut.solver.search.standing import ABOVE, Best, Branching, Standing, infeasible, placing
from taut.solver.simple_plans import first_plans

WITHIN = 0.04
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
    """Divisions that await an order, and divisions that orders were adapted to, with the ``best`` plan so far."""

    def __init__(self, problem: PlanningProblem, links: BestLinks, best: Best, seed: int) -> None:
        self._problem, self._links, self._best, self._seed = problem, links, best, seed
        self._queue: list[_Pending] = []
        self._searched: dict[tuple[Degrees, tuple[str, ...]], float] = {}
        self._divisions: dict[tuple[str, ...], Division] = {}

    def is_within_reach(self, candidate: Candidate, seconds: float) -> bool:
        """Whether an order may be adapted to a division with so many seconds at least."""
        return candidate.schedule in ON_V and seconds < self._best.seconds * (1 + WITHIN)

    def add(self, candidate: Candidate, found: Partition) -> None:
        """Put a division into the queue if an order may be adapted to it, (5)."""
        if self.is_within_reach(candidate, found.seconds):
            heapq.heappush(self._queue, _Pending(found.seconds, candidate, found.division))

    def divisions(self, candidate: Candidate) -> list[Division]:
        """The division that the candidate's order was adapted to, if any."""
        return [self._divisions[candidate.order]] if candidate.order in self._divisions else []

    @property
    def has_pending(self) -> bool:
        """Whether there is a division to adapt an order to, (6)."""
        while self._queue and self._is_done(self._queue[0]):
            heapq.heappop(self._queue)
        known = self._best.incumbent is not None and bool(self._queue)
        return known and self.is_within_reach(self._queue[0].candidate, self._queue[0].seconds)

    def _is_done(self, pending: _Pending) -> bool:
        return pending.seconds >= self._searched.get(_order_of(pending.candidate), np.inf) * (1 - REPEAT_GAIN)

    def adapt_next(self, stop: Callable[[], bool]) -> GivenOrder | None:
        """Search an order for the first division in the queue, (6); None if none was found that gains enough."""
        pending = heapq.heappop(self._queue)
        choice = pending.candidate
        self._searched[_order_of(choice)] = pending.seconds
        gain = max(pending.seconds - self._best.seconds, LEAST_GAIN * pending.seconds)
        from taut.solver.order_priced.adapt import adapted_order

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


LOWERED = 1 + 1e-4
"""Limit of a tree without branches, as a multiple of the best plan, beyond which it begins anew with that limit: fewer
options are within a lower limit, and the bound costs as much as one branching."""
FEWER = 1 + 1e-3
"""The same where devices had too many options to branch on: counting them again costs as much as several branchings."""
COOLINGS = (0, 16, 48)
"""Branchings of a candidate after which a run of (4) begins: with 48 chunks two of three runs reach the best division
that is known, one ends 1.3 % above it."""
COOLED, MOST_COOLED, PARTS = 50_000, 400_000_000, 8
"""Moves of such a run, passes that it prices at most, and its parts: three to four seconds, half a second each. Runs of
100,000 moves reach the best division that is known no more often."""


UNSTATED: dict[str, Any] = {}
"""Stands for the witness of a tree that may still grow: to state one takes as long as a branching, and is done last."""
MOST_SIMPLE = 200_000
"""Devices of all simple plans that are priced as layers are counted: about two seconds, a hundredth of a second for a
thousand devices. A plan that is 5 % better saves each of some hundred candidates a tree of a tenth of a second and
more."""
MOST_GAP = 0.5
"""Gap that refinements reckon with at most, so that their limits stay positive."""


def _finds_divisions(branching: Branching | None) -> bool:
    """Whether a tree comes upon good divisions as it branches, as one of layers that are alike does."""
    return isinstance(branching, LayerTree | RackTrees) and branching.is_exact


class OrderRefining:
    """The candidates of one search that are priced by their order, and what is known of them beyond their bounds."""

    def __init__(
        self, problem: PlanningProblem, limits: Limits, best: Best, ladder: Ladder, *, apart: bool = True
    ) -> None:
        self._problem, self._best, self._ladder, self._gap = problem, best, ladder, min(limits.gap, MOST_GAP)
        # Whether cases of stages that span racks are told apart.
        self._apart = apart
        self._proven: dict[Candidate, tuple[float, dict[str, Any]]] = {}
        self._divided: dict[Candidate, float] = {}
        # Bounds of candidates whose cases have trees, the best division that these found, and its slow devices.
        self._told: dict[Candidate, tuple[CandidateBound, SlowDevices | None, Division | None]] = {}
        self._cooling: dict[Candidate, DivisionAnnealing] = {}
        self._branchings: dict[Candidate, int] = {}
        self._prefixes: dict[Candidate, Prefixes | None] = {}
        self._unstated: dict[Candidate, tuple[CandidateBound, Branching]] = {}
        self.orders = OrderAdaptation(problem, ladder.links, best, limits.seed)
        self._simple = 0
        # Above the bound of a candidate that has no more branches those of another no longer raise the global bound.
        self._highest = math.inf

    @property
    def _enough(self) -> float:
        """Seconds from which on a bound changes neither the end of the search nor, by more than the gap, its plan."""
        return self._best.seconds * (1 - self._gap)

    def count(self, bound: CandidateBound, at: Standing) -> bool:
        """Raise a bound by what counting layers says; returns whether a division is of use."""
        if not at.by_class:
            return self._count_alike(bound)
        if self._apart and self._enough < math.inf:
            refutes = most_within(self._problem, bound.candidate, self._ladder.links)
            counted = most_refuted(refutes, self._enough * ABOVE) if refutes else 0.0
            if counted * (1 - ROUNDING) > bound.lower_bound:
                bound.lower_bound, bound.source = counted * (1 - ROUNDING), Source.ORDER
                bound.witness = {"counted_s": counted}
        return bound.lower_bound < self._enough

    def _count_alike(self, bound: CandidateBound) -> bool:
        """Raise a bound by what devices of one type can take, and price the simple plan of a candidate that is left."""
        if self._enough == math.inf or (found := counted(self._ladder, bound.candidate, self._enough * ABOVE)) is None:
            return True
        if math.isinf(found.seconds):
            return infeasible(bound, found)
        if found.seconds > bound.lower_bound:
            bound.lower_bound, bound.source, bound.witness = found.seconds, found.source, found.witness
        if bound.lower_bound < self._enough and self._simple < MOST_SIMPLE:
            for plan in first_plans(self._problem, [bound]):
                self._simple += plan[2].size
                self._best.take(*plan)
        return bound.lower_bound < self._enough

    def share(self, bound: CandidateBound, at: Standing) -> bool:
        """Take the bound of a candidate that dominates this one in all cases; returns whether it is larger."""
        candidate, links = bound.candidate, self._ladder.links
        for other in likely_dominating(candidate, self._told):
            known, slower, division = self._told[other]
            if known.source is not Source.ORDER or known.lower_bound <= bound.lower_bound:
                continue
            witness = self._unstated[other][1].witness() if known.witness is UNSTATED else known.witness
            cases = (chunk_cases(self._problem, one, links) for one in (other, candidate))
            if of_cases(witness) and dominates_in_cases(*cases):
                bound.lower_bound, bound.source = known.lower_bound, Source.ORDER
                bound.witness = inherited(candidate, other, witness)
                if division is not None and not at.shared and bound.lower_bound < self._enough:
                    self._draft(bound, at, replace(self._ladder.chunked(candidate), slower=slower), [division])
                at.shared = True
                return True
        return False

    def divide(self, bound: CandidateBound, at: Standing) -> bool:
        """What devices can take and weighted paths, then a division, (1)."""
        if at.shared and bound.lower_bound > self._highest:
            return False
        if self._inherit(bound) and bound.lower_bound >= self._enough:
            return False
        computed = order(self._ladder, bound.candidate, self._enough * ABOVE, True)
        found = computed.order
        if found is None:
            return infeasible(bound, computed)
        beaten = self._bounded(bound, at, found)
        if isinstance(at.branching, LayerTree):
            at.branching.branch()
            self._raise(bound, at.branching)
            beaten = bound.lower_bound >= self._enough
        beaten = beaten or self._tell_apart(bound, at, found.divisions)
        if not beaten or self.orders.is_within_reach(bound.candidate, bound.lower_bound):
            given, known = (
                self._ladder.chunked(bound.candidate),
                [*found.divisions, *self.orders.divisions(bound.candidate)],
            )
            # Trees of cases have branched before.
            if isinstance(at.branching, RackTrees) and (division := at.branching.incumbent[1]) is not None:
                given, known = at.branching.given, [*known, division]
                self._offer(bound, at.branching)
            self._draft(bound, at, given, known)
        if beaten:
            # The programs of a tree take a megabyte each.
            at.branching = None
        at.brief = found.brief and not beaten and at.branching is None
        return not beaten

    def _bounded(self, bound: CandidateBound, at: Standing, found: OrderBound) -> bool:
        """Take a bound and its branches; returns whether the candidate is beaten."""
        self._proven[bound.candidate] = found.seconds, found.witness
        if found.seconds >= bound.lower_bound:
            bound.lower_bound, bound.source, bound.witness = found.seconds, Source.ORDER, found.witness
        beaten = bound.lower_bound >= self._enough
        at.branching = None if beaten else found.branching
        # Where divisions are listed the best of them is known, and where options are too many they may be fewer later.
        alone = not (beaten or found.branching or found.too_many or "stated" in found.witness)
        at.uncooled = found.divisions[0] if alone and bound.candidate not in self._branchings else None
        at.unbranched = self._enough if found.too_many and not beaten else None
        return beaten

    def _tell_apart(self, bound: CandidateBound, at: Standing, divisions: Sequence[Division]) -> bool:
        """Take the trees by classes of stages and the first that spans racks; returns whether their bound is enough."""
        tree = at.branching if isinstance(at.branching, LayerTree) else None
        if not self._apart or (tree is None and len(self._problem.device_types) == 1):
            return False
        cases = chunk_cases(self._problem, bound.candidate, self._ladder.links)
        known, beyond = (divisions, bound.lower_bound) if tree is None else (tree.divisions, tree.seconds)
        if trees := case_trees(cases, self._enough * ABOVE, known, beyond):
            trees.branch_early()
            self._raise(bound, trees)
            at.branching = trees
            self._told[bound.candidate] = bound, trees.given.slower, trees.incumbent[1]
        return bound.lower_bound >= self._enough

    def _inherit(self, bound: CandidateBound) -> bool:
        """Take the bound of a candidate that dominates this one; returns whether it is larger."""
        others = {other: self._proven[other] for other in likely_dominating(bound.candidate, self._proven)}
        other = max(others, key=lambda one: others[one][0], default=None)
        if other is None or others[other][0] <= bound.lower_bound:
            return False
        of, given = (self._ladder.chunked(one) for one in (other, bound.candidate))
        if not dominates_under_an_order(of, given):
            return False
        bound.lower_bound, bound.source = others[other][0], Source.ORDER
        bound.witness = inherited(bound.candidate, other, others[other][1])
        return True

    def _draft(self, bound: CandidateBound, at: Standing, given: ChunkProblem, divisions: Sequence[Division]) -> None:
        """A division by a short search, to be improved where that may lead to a better plan."""
        candidate = bound.candidate
        found = improved_division(self._problem, candidate, given, divisions, self._best.seconds, turns=SHORT)
        if found is None:
            return
        self._take(bound, at, found)
        if found.seconds < min(self._best.seconds * (1 + REACH), self._divided.get(candidate, math.inf)):
            self._divided[candidate] = found.seconds
            # A tree finds divisions as it branches.
            at.draft = None if _finds_divisions(at.branching) else found

    def _offer(self, bound: CandidateBound, trees: RackTrees) -> None:
        """Place the best division of a case as it is: a draft may leave it for one quicker at the best links."""
        seconds, division = trees.incumbent
        if division is not None and seconds < self._best.seconds:
            found = Partition(seconds=seconds, division=division, patterns=trees.given.patterns)
            problem = placing(self._problem, bound.candidate, found)
            self._best.offer(bound, problem, constructed(problem, found.patterns))

    def _take(self, bound: CandidateBound, at: Standing, found: Partition) -> None:
        """A division that fits, for an order to adapt to, and placed where it may be part of a better plan."""
        self.orders.add(bound.candidate, found)
        if at.branching is not None:
            at.branching.learn(found.division)
        # No placement is faster than a division's least makespan, unless it was found in one case of classes of device:
        # then a placement of another case may be missed, which costs a plan, never a bound.
        if found.seconds < self._best.seconds:
            at.division = found
            problem = placing(self._problem, bound.candidate, found)
            self._best.offer(bound, problem, constructed(problem, found.patterns))

    def improve(self, bound: CandidateBound, at: Standing, draft: Partition) -> bool:
        """A better division by a long search, (2)."""
        candidate, at.draft = bound.candidate, None
        if bound.lower_bound < self._enough:
            given, known = self._ladder.chunked(candidate), self._best.seconds
            found = improved_division(self._problem, candidate, given, [draft.division], known, turns=LONG)
            if found is not None and found.seconds < draft.seconds:
                self._divided[candidate] = found.seconds
                self._take(bound, at, found)
        return bound.lower_bound < self._enough

    def _raise(self, bound: CandidateBound, tree: Branching) -> None:
        """Take the bound of a tree where it is larger."""
        if (seconds := tree.seconds * (1 - ROUNDING)) > bound.lower_bound:
            bound.lower_bound, bound.source, bound.witness = seconds, Source.ORDER, tree.witness()

    def branch(self, bound: CandidateBound, at: Standing) -> bool:
        """Another branch of the divisions of an order, (4), or its bound anew within a lower limit."""
        at.dives -= 1
        if bound.lower_bound <= self._highest and (prefixes := self._prefixes_of(bound, at)) is not None:
            return self._search_prefixes(bound, at, prefixes)
        if at.brief and bound.lower_bound <= self._highest:
            return self._bound_whole(bound, at)
        if at.uncooled is not None and bound.lower_bound <= self._highest and self._grow(bound, at, at.uncooled):
            return at.branching is not None
        if at.uncooled is not None and self._cool_alone(bound, at, at.uncooled):
            return True
        if bound.lower_bound > self._highest:
            at.unbranched = None
            return False
        branching = at.branching
        if branching is None or (not branching.is_branched and branching.limit > self._enough * LOWERED):
            return self._bound_anew(bound, at)
        if isinstance(branching, LayerTree | RackTrees) and branching.limit > self._enough * LOWERED:
            branching.lower(self._enough * ABOVE)
            self._raise_unstated(bound, branching)
        if branching.given.stated is None and self._cool(bound, at, branching):
            return True
        if isinstance(branching, LayerTree) and number_of(branching.given):
            return self._list(bound, at, branching)
        known, more = branching.incumbent[0], branching.branch()
        self._raise_unstated(bound, branching)
        least, division = branching.incumbent
        if division is not None and least < min(known, self._best.seconds * (1 + REACH)):
            if isinstance(branching, RackTrees):
                self._offer(bound, branching)
            self._draft(bound, at, branching.given, [division])
        if not more and bound.lower_bound < self._enough:
            self._highest = min(self._highest, bound.lower_bound)
        return more or at.draft is not None or at.division is not None

    def _prefixes_of(self, bound: CandidateBound, at: Standing) -> Prefixes | None:
        """The search of a candidate's prefixes where one is left, begun when it is asked for first."""
        if isinstance(at.branching, RackTrees) or (isinstance(at.branching, LayerTree) and at.branching.is_exact):
            return None
        if bound.candidate not in self._prefixes:
            given = self._ladder.chunked(bound.candidate)
            # Each takes up to 180 MB: of searches that wait for their turn the last one stays.
            for waiting in [each for each, search in self._prefixes.items() if search is not None][:-1]:
                self._prefixes[waiting] = None
            self._prefixes[bound.candidate] = prefixes_of(given, self._enough * ABOVE)
        return self._prefixes[bound.candidate]

    def _search_prefixes(self, bound: CandidateBound, at: Standing, prefixes: Prefixes) -> bool:
        """Search some prefixes; at their end the bound is exact but for memory and links."""
        known = prefixes.incumbent[0]
        prefixes.lower(self._enough * ABOVE)
        prefixes.step()
        least, division = prefixes.incumbent
        if not prefixes.is_left:
            self._prefixes[bound.candidate] = None
        if (seconds := prefixes.seconds * (1 - ROUNDING)) > bound.lower_bound:
            bound.lower_bound, bound.source, bound.witness = seconds, Source.ORDER, prefixes.witness()
        if division is not None and least < min(known, self._best.seconds * (1 + REACH)):
            self._draft(bound, at, prefixes.given, [division])
        if prefixes.has_ended and bound.lower_bound < self._enough and division is not None:
            # Cases of links may say more, branches of layers do not.
            at.brief, at.unbranched = False, None
            self._grow(bound, at, division)
            at.branching = at.branching if isinstance(at.branching, RackTrees) else None
            if at.branching is None:
                self._highest = min(self._highest, bound.lower_bound)
        return True

    def _grow(self, bound: CandidateBound, at: Standing, start: Division) -> bool:
        """Begin the tree of layers that differ, which takes megabytes; returns whether there is one."""
        given = self._ladder.chunked(bound.candidate)
        if not (cases := linear_paths(given)):
            return False
        at.uncooled, at.branching = None, LayerTree(given, cases, self._enough * ABOVE, [start])
        at.branching.branch()
        self._raise_unstated(bound, at.branching)
        if self._tell_apart(bound, at, at.branching.divisions):
            at.branching = None
        return True

    def _raise_unstated(self, bound: CandidateBound, branching: Branching) -> None:
        """Take the bound of a tree that may still grow where it is larger."""
        seconds = branching.seconds * (1 - ROUNDING)
        if seconds > bound.lower_bound:
            bound.lower_bound, bound.source, bound.witness = seconds, Source.ORDER, UNSTATED
            self._unstated[bound.candidate] = bound, branching

    def state_witnesses(self) -> None:
        """Write down the trees that the bounds rest on, at the end of a search."""
        for bound, branching in self._unstated.values():
            if bound.witness is UNSTATED:
                bound.witness = branching.witness()

    def _list(self, bound: CandidateBound, at: Standing, tree: LayerTree) -> bool:
        """Price all divisions of a candidate that has few, (4)."""
        limit, at.branching = self._enough * ABOVE, None
        seconds, divisions = stated_seconds(tree.given, limit)
        if math.isinf(seconds):
            lacking = math.ceil(stated_missing(tree.given) / KIB)
            witness: dict[str, Any] = {"stated": number_of(tree.given), "missing_kib": lacking}
            return infeasible(bound, Evaluation(seconds=seconds, source=Source.ORDER_MEMORY, witness=witness))
        if seconds > bound.lower_bound:
            bound.lower_bound, bound.source = seconds, Source.ORDER
            bound.witness = {"stated": number_of(tree.given), "limit_s": limit}
        given = tree.given
        if bound.lower_bound < self._enough and (told := self._list_cases(bound, limit)):
            given, divisions = told.case, told.divisions
        if divisions and bound.lower_bound < self._best.seconds:
            self._draft(bound, at, given, divisions[:1])
        return at.draft is not None or at.division is not None

    def _list_cases(self, bound: CandidateBound, limit: float) -> Listed | None:
        """Price all divisions in each case of nodes or racks, and take the bound where it is larger."""
        cases = chunk_cases(self._problem, bound.candidate, self._ladder.links) if self._apart else []
        if len(cases) != 1 or (listed := listed_in_cases(cases[0], limit, bound.lower_bound)) is None:
            return None
        bound.lower_bound, bound.source, bound.witness = listed.seconds, Source.ORDER, listed.witness
        return listed

    def _bound_anew(self, bound: CandidateBound, at: Standing) -> bool:
        """Bound an order within the limit of a better plan, if there is one; returns whether it has branches."""
        if at.unbranched is None or self.has_lower_limit(at):
            computed = order(self._ladder, bound.candidate, self._enough * ABOVE)
            if computed.order is None:
                return infeasible(bound, computed)
            self._bounded(bound, at, computed.order)
        return at.branching is not None

    def _bound_whole(self, bound: CandidateBound, at: Standing) -> bool:
        """Bound an order by all that a brief bound left out, and draft a division from what that found."""
        at.brief = False
        computed = order(self._ladder, bound.candidate, self._enough * ABOVE)
        if computed.order is None:
            return infeasible(bound, computed)
        beaten = self._bounded(bound, at, computed.order)
        if not beaten:
            self._draft(bound, at, self._ladder.chunked(bound.candidate), computed.order.divisions)
        return not beaten

    def has_lower_limit(self, at: Standing) -> bool:
        """Whether devices that had too many options to branch on may have fewer within the best plan."""
        return at.unbranched is not None and at.unbranched > self._enough * FEWER

    def _cool(self, bound: CandidateBound, at: Standing, branching: Branching) -> bool:
        """Anneal a part of a run where one is due, (4); returns whether that was so."""
        candidate, count = bound.candidate, self._branchings.get(bound.candidate, 0)
        if candidate not in self._cooling:
            self._branchings[candidate] = count + 1
            if count not in (COOLINGS[-1:] if _finds_divisions(branching) else COOLINGS):
                return False
            self._cooling[candidate] = self._new_run(candidate, branching, seed=count)
        return self._advance(bound, at, branching.given)

    def _advance(self, bound: CandidateBound, at: Standing, given: ChunkProblem) -> bool:
        """Anneal a part of a run, and take its division at the end."""
        run = self._cooling[bound.candidate]
        if not run.advance():
            del self._cooling[bound.candidate]
            if run.division is not None:
                self._draft(bound, at, given, [run.division])
        return True

    def _cool_alone(self, bound: CandidateBound, at: Standing, start: Division) -> bool:
        """Anneal a part of the runs of a candidate without branches, (4); returns whether one was due."""
        candidate, count = bound.candidate, self._branchings.get(bound.candidate, 0)
        given = self._ladder.chunked(candidate)
        if candidate not in self._cooling:
            if count == len(COOLINGS):
                at.uncooled = None
                return False
            self._branchings[candidate] = count + 1
            self._cooling[candidate] = self._run_from(candidate, given, start, seed=count)
        return self._advance(bound, at, given)

    def _new_run(self, candidate: Candidate, branching: Branching, *, seed: int) -> DivisionAnnealing:
        """A run from the best division that branching knows."""
        start = branching.incumbent[1] or branching.divisions[0]
        return self._run_from(candidate, branching.given, start, seed=seed)

    def _run_from(self, candidate: Candidate, given: ChunkProblem, start: Division, *, seed: int) -> DivisionAnnealing:
        moves = min(COOLED, MOST_COOLED // len(given.order.passes)) // PARTS
        return DivisionAnnealing(self._problem, candidate, given, start, moves=moves, parts=PARTS, seed=seed)
