r"""
The ladder of bounds: the lower bounds on a candidate, the weakest first, and where each of them applies.

====================  ==============================================================  ============================
source                what it is                                                      module
====================  ==============================================================  ============================
``balance``           what is computed, ideally balanced                              (2), here
``relaxation``        closed form: ideal balance, memory ignored                      ``bounds.relaxation``
``memory``            no division of the layers fits                                  ``layer_division``
``partition``         exact division of the layers, least communication               ``bounds.candidate_bounds``
``order-memory``      no division into chunks fits, by priced memory                  ``order_priced.witness``
``order``             what devices can take, and weighted paths through the order     ``order_priced.witness``
``every-placement``   all placements, one by one                                      ``placement.exact.enumerate``
``node-slots``        labels over the slots that stages leave on few nodes            ``placement.exact.node_slots``
``placement``         exact subset dynamic programming                                ``placement.exact.joint``
``node-sets``         labels over the sets of nodes of all stages, for few nodes      ``placement.exact.node_sets``
``cover``             set partitioning over routes of paths, a case distinction        ``placement.path_cover.bound``
====================  ==============================================================  ============================

Let :math:`b_s` be the seconds of source s. The bound of s is the maximum of :math:`b_s` and the bounds of the sources
in ``weaker`` (1). The sources in ``weaker`` need no witness.

The search, the margin-free bound and the diagnosis of infeasible problems compute the rungs
(``taut.solver.ladder.computations``); a check derives them again (``taut.solver.ladder.checks``).

``balance`` is for candidates that a limit leaves no more time for. With :math:`w_l` the least seconds of both passes of
layer l, on any type of device and under any recompute, and W their sum, the slowest stage, or the busiest device, takes
for a micro-batch at least

.. math:: u = \max(W / pp, \max_l w_l, \theta). \tag{2}

Here :math:`\theta` is what the slowest of pp stages takes on devices of several types
(``taut.solver.bounds.relaxation`` (2')), with seconds of layers that have no communication. In closed form a step takes
at least :math:`W + (m - 1) u`, and one that is priced by its order :math:`m u`, (3). What a step has beside its
computation is left out. W and the largest :math:`w_l` serve all candidates whose layers have the same prices, and
:math:`\theta` all of these with so many stages. ``relaxation`` is at least ``balance``: communication may bring the
types closer to each other, so that (2') says less.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.mechanisms.expert_ranks import hides_exchange
from taut.formulations.mechanisms.recompute import in_part
from taut.formulations.order_division import ROUNDING as ORDER_ROUNDING
from taut.formulations.order_division import ChunkProblem
from taut.formulations.partition import stated_divisions
from taut.formulations.problem import PlanningProblem, Recent
from taut.formulations.sharding import NO_GATHERS, GatherRates
from taut.formulations.space import Candidate, OrderKey, beside_chunks
from taut.formulations.tables.memory import budgets
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.bounds.communication import Communication, communication, communication_of_order
from taut.solver.bounds.least_rings import least_gather
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.relaxation import (
    ROUNDING,
    LayerSeconds,
    layer_seconds,
    mean_stage,
    relaxation_bound,
    relaxation_of_order,
)
from taut.solver.layer_division.memory_excess import Need, division_need
from taut.solver.order_priced.chunk_memory import memory_of_chunks, missing_of_alike
from taut.solver.placement.exact.enumerate import has_enumeration, solve_by_enumeration
from taut.solver.placement.exact.joint import Joint, Kept, has_joint, solve_joint
from taut.solver.placement.exact.node_sets import has_node_sets, solve_by_node_sets
from taut.solver.placement.exact.node_slots import has_node_slots, solve_by_slots
from taut.solver.placement.path_cover.bound import has_cover
from taut.solver.result import Source

Value = TypeVar("Value")

MOST_NAMED = 64 * 2**20
"""Bytes of what is kept of candidates that dominate others."""
MOST_CHUNKED = 12 * 2**20
"""
Bytes of divisions into chunks that are kept: of thirty candidates, as a search asks for one again within some turns, or
never.
"""


class Computation(NamedTuple):
    """Least seconds of both passes: ``by_type`` of layers (types, L), ``whole`` of all, ``longest`` of any."""

    by_type: Floats
    whole: float
    longest: float


def computation(problem: PlanningProblem, candidate: Candidate) -> Computation:
    """What the layers of a candidate compute."""
    by_type = problem.priced_layers(candidate).seconds_of_layers().min(axis=1)
    least = by_type.min(axis=0)
    return Computation(by_type, float(least.sum()), float(np.max(least, initial=0.0)))


def balance_bound(problem: PlanningProblem, candidate: Candidate, layers: Computation, slowest: float) -> float:
    """Bound ``balance`` of a closed form in seconds, (3), with the seconds u of its slowest stage."""
    passes = layers.whole + (candidate.num_micro_batches - 1) * slowest
    return (passes + problem.least_constant(candidate)) * (1 - ROUNDING)


def balance_of_order(problem: PlanningProblem, candidate: Candidate, layers: Computation, slowest: float) -> float:
    """Bound ``balance`` of an order in seconds, (3), with the seconds u of its busiest device."""
    return (candidate.num_micro_batches * slowest + problem.least_constant(candidate)) * (1 - ORDER_ROUNDING)


class _Closed(NamedTuple):
    """The bounds of level ``CLOSED_FORM``, which closed forms and orders have each in their own form."""

    balance: Callable[[PlanningProblem, Candidate, Computation, float], float]
    communication: Callable[[PlanningProblem, Candidate, BestLinks], Communication]
    relaxation: Callable[[PlanningProblem, Candidate, Communication, GatherRates, LayerSeconds], float]


def _closed(candidate: Candidate) -> _Closed:
    if candidate.is_order_priced:
        return _Closed(balance_of_order, communication_of_order, relaxation_of_order)
    return _Closed(balance_bound, communication, relaxation_bound)


class Level(IntEnum):
    """What a rung minimises exactly: nothing, the division of the layers, or the placement with it."""

    CLOSED_FORM = 0
    DIVISION = 1
    PLACEMENT = 2


class Ladder:
    """A problem whose candidates are bounded, with its margin or without, and the figures that sources share."""

    def __init__(
        self, problem: PlanningProblem, *, margin: bool = True, relaxations: dict[Candidate, float] | None = None
    ) -> None:
        self.problem, self.margin = problem, margin
        self.links, self.kept = BestLinks(problem.links, problem.rings), Kept()
        self.relaxations = {} if relaxations is None else relaxations
        # Of the candidate that was asked for last, as alike ones come in a row.
        self._latest: tuple[tuple[Hashable, ...], Communication] | None = None
        self._gathers: tuple[tuple[Hashable, ...], GatherRates] | None = None
        # Ladders of one problem, one after the other, share what none of them may change.
        self._whole_devices: dict[tuple[Hashable, ...], float] = problem.kept("relaxations")
        self._computations: dict[Hashable, Computation] = problem.kept("computations")
        self._balances: dict[Candidate, float] = problem.kept("balances")
        self._slowest: dict[Hashable, float] = problem.kept("slowest stages")
        self._layers: dict[tuple[Hashable, ...], LayerSeconds] = problem.kept("layers")
        self._needs: dict[Candidate, Need] = problem.kept("needs")
        self._lacking: dict[Candidate, int] = problem.kept("lacking")
        self._rooms = dict[tuple[bool, bool], int]()
        self._named, self._chunked = Recent(MOST_NAMED), Recent(MOST_CHUNKED)

    def without_margin(self) -> "Ladder":
        """The same without a memory margin, which shares links, placements, closed forms and needs."""
        free = copy(self)
        free.margin = False
        return free

    def named(self, candidate: Candidate, witness: dict[str, Any], make: Callable[[], Value]) -> Value:
        """What a candidate and its witness show of those that it dominates, of which there are many."""
        return self._named.get((self.margin, candidate, repr(witness)), make)

    def chunked(self, candidate: Candidate) -> ChunkProblem:
        """The division into chunks of a candidate at the best links."""
        return self._chunked.get(
            (self.margin, candidate), lambda: chunked(self.problem, candidate, self.links, margin=self.margin)
        )

    def communication(self, candidate: Candidate) -> Communication:
        """Least communication of a candidate; several rungs ask for that of the same or an alike candidate in a row."""
        key = *beside_chunks(candidate), self.problem.least_constant(candidate)
        if self._latest is None or self._latest[0] != key:
            self._latest = key, _closed(candidate).communication(self.problem, candidate, self.links)
        return self._latest[1]

    def missing(self, candidate: Candidate) -> tuple[int, int]:
        """Bytes by which the best division exceeds the devices at least, and the stage; (0, -1) where it may fit."""
        if candidate not in self._needs:
            self._needs[candidate] = division_need(self.problem, candidate)
        return self._needs[candidate].beyond(self._room(candidate))

    def _room(self, candidate: Candidate) -> int:
        """Bytes of the largest device, or of the smallest where every stage is on all types."""
        of_all = candidate.pipelines_by_type
        if (self.margin, of_all) not in self._rooms:
            room = budgets(self.problem.memory, self.problem.capacity_kib, margin=self.margin)
            self._rooms[self.margin, of_all] = int(room.min() if of_all else room.max())
        return self._rooms[self.margin, of_all]

    def lists(self, candidate: Candidate) -> bool:
        """Whether the divisions of an order are stated, and chunks share one recompute: all of them are priced."""
        known = stated_divisions(self.problem, candidate)
        return known is not None and len(self.problem.recompute_of(candidate)) == 1

    def note_missing(self, candidate: Candidate, missing: int, stage: int | None = None) -> None:
        """Keep a proof that devices lack so many bytes, in a stage or with all their chunks, for other margins too."""
        need = self._room(candidate) + missing
        if stage is None:
            self._lacking[candidate] = max(need, self._lacking.get(candidate, 0))
        else:
            self._needs.setdefault(candidate, Need(need, stage))

    def missing_of_chunks(self, candidate: Candidate, limit: float = math.inf) -> int:
        """Bytes that devices lack with all their chunks, in closed form or by a proof that is kept; else at most 0."""
        if candidate not in self._lacking:
            alike = self._of_order.get(candidate.order_key, ())
            self.find_missing([candidate, *(each for each in alike if self.relaxations.get(each, limit) < limit)])
        return self._lacking[candidate] - self._room(candidate)

    def find_missing(self, candidates: Iterable[Candidate]) -> None:
        """Find what devices lack with all their chunks, of many candidates together."""
        asked = dict[OrderKey, dict[Candidate, None]]()
        for candidate in candidates:
            if candidate not in self._lacking:
                asked.setdefault(candidate.order_key, {})[candidate] = None
        for alike in map(list, asked.values()):
            for candidate, missing in zip(
                alike, missing_of_alike(self.problem, alike, margin=self.margin), strict=True
            ):
                self._lacking[candidate] = self._room(candidate) + missing if missing else 0

    @cached_property
    def every(self) -> frozenset[Candidate]:
        """The candidates of the problem."""
        return frozenset(self.problem.candidates)

    @cached_property
    def _of_order(self) -> dict[OrderKey, list[Candidate]]:
        """The candidates of every order."""
        found = dict[OrderKey, list[Candidate]]()
        for candidate in self.problem.candidates:
            if candidate.is_order_priced:
                found.setdefault(candidate.order_key, []).append(candidate)
        return found

    def lacks(self, candidate: Candidate, missing: int) -> bool:
        """Whether devices lack so many bytes with all their chunks, as far as is kept or the closed form shows."""
        self.find_missing([candidate])
        if missing <= self._lacking[candidate] - self._room(candidate):
            return True
        found = memory_of_chunks(self.problem, candidate, margin=self.margin)
        return found is not None and found.lacks(missing)

    def place(self, source: Source, candidate: Candidate) -> Joint:
        """The bound of one of ``EXACT_PLACEMENTS``, with the division and the placement that attain it."""
        return EXACT_PLACEMENTS[source](self.problem, candidate, self.links, self.kept, margin=self.margin)

    def turns(self, candidates: Sequence[Candidate]) -> Iterator[int]:
        """Places of candidates, those with common tables in a row, and the rows by their least bound ``balance``."""
        rows: dict[Hashable, list[int]] = {}
        for index, candidate in enumerate(candidates):
            rows.setdefault(self.problem.layers_key(candidate), []).append(index)
        for row in sorted(rows.values(), key=lambda row: min(self.balance(candidates[index]) for index in row)):
            yield from sorted(row, key=lambda index: beside_chunks(candidates[index]))

    def relax(self, candidates: Sequence[Candidate]) -> None:
        """Compute bound ``relaxation`` of many candidates."""
        for index in self.turns(candidates):
            self.relaxation(candidates[index])

    def balance(self, candidate: Candidate) -> float:
        """Bound ``balance`` in seconds, which takes some microseconds."""
        if candidate not in self._balances:
            self._balances[candidate] = self._balance(candidate)
        return self._balances[candidate]

    def _balance(self, candidate: Candidate) -> float:
        key = self.problem.layers_key(candidate)
        if key not in self._computations:
            self._computations[key] = computation(self.problem, candidate)
        layers, stages = self._computations[key], (key, candidate.pp, candidate.pipelines_by_type)
        if stages not in self._slowest:
            slowest = mean_stage(self.problem, candidate, layers.by_type, layers.whole)
            self._slowest[stages] = max(layers.whole / candidate.pp, layers.longest, slowest)
        return _closed(candidate).balance(self.problem, candidate, layers, self._slowest[stages])

    def first(self, candidate: Candidate) -> tuple[float, Source]:
        """Bound ``relaxation`` where it is known, and ``balance`` otherwise."""
        known = self.relaxations.get(candidate)
        return (self.balance(candidate), Source.BALANCE) if known is None else (known, Source.RELAXATION)

    def relaxation(self, candidate: Candidate) -> float:
        """Bound ``relaxation`` in seconds, which does not depend on memory."""
        if candidate not in self.relaxations:
            self.relaxations[candidate] = max(self._relaxed(candidate), self.balance(candidate))
        return self.relaxations[candidate]

    def _relaxed(self, candidate: Candidate) -> float:
        """Bound ``relaxation``, in which chunks count where passes wait for gathers alone."""
        beside = beside_chunks(candidate)
        if self._gathers is None or self._gathers[0] != beside:
            self._gathers = beside, least_gather(self.problem, candidate, self.links)
        gather = self._gathers[1]
        recompute, chunks = candidate.uniform_recompute, candidate.vpp if gather != NO_GATHERS else 0
        alike = *beside, self.problem.least_constant(candidate), recompute, in_part(candidate), chunks
        if alike not in self._whole_devices:
            comm, layers = self.communication(candidate), self._layer_seconds(candidate)
            relaxation = _closed(candidate).relaxation
            self._whole_devices[alike] = relaxation(self.problem, candidate, comm, gather, layers)
        return self._whole_devices[alike]

    def _layer_seconds(self, candidate: Candidate) -> LayerSeconds:
        """Least seconds of single layers, which many candidates share."""
        recompute, hides = (
            self.problem.recompute_of(candidate),
            hides_exchange(self.problem.space, self.problem.model, candidate),
        )
        key = *self.problem.layers_key(candidate), recompute, in_part(candidate), hides
        if key not in self._layers:
            self._layers[key] = layer_seconds(self.problem, candidate)
        return self._layers[key]

    def rungs(self, candidate: Candidate, through: Level = Level.PLACEMENT) -> "Iterator[Rung]":
        """The rungs that apply to a candidate, up to a level, the weakest first."""
        return (rung for rung in RUNGS if rung.level <= through and rung.applies(self, candidate))

    def has(self, source: Source, candidate: Candidate) -> bool:
        """Whether the rung of a source applies to a candidate."""
        return any(rung.source is source and rung.applies(self, candidate) for rung in RUNGS)


Applies = Callable[[Ladder, Candidate], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """
    One bound of the ladder.

    ``source``: its name; ``level``: what it minimises exactly; ``applies``: whether it bounds a candidate, any unless
    said; ``weaker``: rungs that hold beside it, (1).
    """

    source: Source
    level: Level
    applies: Applies = lambda ladder, candidate: True
    weaker: tuple[Source, ...] = ()


def _every(ladder: Ladder, candidate: Candidate) -> bool:
    return has_enumeration(ladder.problem, candidate)


def _joint(ladder: Ladder, candidate: Candidate) -> bool:
    # Where groups differ and their placements few, all of them say more than the groups alone.
    if _every(ladder, candidate) or _sets(ladder, candidate):
        return False
    return has_joint(ladder.problem, candidate, ladder.kept)


def _sets(ladder: Ladder, candidate: Candidate) -> bool:
    return has_node_sets(ladder.problem, candidate, ladder.kept) and not _every(ladder, candidate)


def _slots(ladder: Ladder, candidate: Candidate) -> bool:
    return has_node_slots(ladder.problem, candidate, ladder.kept) and not _every(ladder, candidate)


def _order_priced(ladder: Ladder, candidate: Candidate) -> bool:
    return candidate.is_order_priced


_DIVIDED = (Source.RELAXATION, Source.PARTITION)

RUNGS = (
    Rung(source=Source.BALANCE, level=Level.CLOSED_FORM),
    Rung(source=Source.RELAXATION, level=Level.CLOSED_FORM),
    Rung(source=Source.MEMORY, level=Level.DIVISION),
    Rung(
        source=Source.PARTITION,
        level=Level.DIVISION,
        applies=lambda ladder, candidate: not candidate.is_order_priced,
        weaker=_DIVIDED[:1],
    ),
    Rung(source=Source.ORDER_MEMORY, level=Level.DIVISION, applies=_order_priced),
    Rung(source=Source.ORDER, level=Level.DIVISION, applies=_order_priced, weaker=_DIVIDED[:1]),
    Rung(source=Source.EVERY_PLACEMENT, level=Level.PLACEMENT, applies=_every, weaker=_DIVIDED),
    Rung(source=Source.NODE_SLOTS, level=Level.PLACEMENT, applies=_slots, weaker=_DIVIDED),
    Rung(source=Source.PLACEMENT, level=Level.PLACEMENT, applies=_joint, weaker=_DIVIDED),
    Rung(source=Source.NODE_SETS, level=Level.PLACEMENT, applies=_sets, weaker=_DIVIDED),
    Rung(
        source=Source.COVER,
        level=Level.PLACEMENT,
        applies=lambda ladder, candidate: has_cover(ladder.problem, candidate),
        weaker=_DIVIDED,
    ),
)
EXACT_PLACEMENTS: dict[Source, Callable[..., Joint]] = {
    Source.EVERY_PLACEMENT: solve_by_enumeration,
    Source.NODE_SLOTS: solve_by_slots,
    Source.PLACEMENT: solve_joint,
    Source.NODE_SETS: solve_by_node_sets,
}
"""Sources whose bound is one exact algorithm over divisions and placements, run again by its check."""
