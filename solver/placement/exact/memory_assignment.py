r"""
Whether any division and placement of a candidate fits memory: exact, for device types of any number.

Stage x needs :math:`n_x` bytes on each of its dp tensor groups, whatever their links. With the groups' budgets in
descending order, :math:`B_1 \ge B_2 \ge \dots \ge B_{pp \cdot dp}`, and :math:`C_k = B_{k \cdot dp}`,

(1) stages can be assigned to groups so that all fit if and only if :math:`n_{(k)} \le C_k` for the needs in descending
    order: the stages with the k largest needs take k dp groups, the smallest of which is :math:`C_k` at best;
(2) equally, if and only if for every budget v among C no more stages need more than v than there are C above v;
(3) :math:`\max_k (n_{(k)} - C_k)` are the bytes that every device lacks.

In closed form a stage's need depends on its own layers alone, so divisions are searched by dynamic programming over
stages, layers and the counts of (2), with the leanest recompute. Where a schedule gives a device several chunks, all
divisions are enumerated if they are few. Groups that span nodes take nodes in order of their budgets, which leaves
each budget of (1) as large as can be.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from math import comb

import numpy as np

from taut.data.arrays import Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.divisions import families_of, is_stated, stated_ranges
from taut.formulations.latency import memory_bytes
from taut.formulations.placement import slot_sites
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.formulations.tables.memory import stage_memory

MOST_DIVISIONS = 20_000
"""Divisions whose memory is priced one by one in some seconds."""
MOST_STEPS = 5_000_000
"""Transitions of the dynamic program that take some seconds."""

Counts = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class StageNeeds:
    """A strategy with the bytes that every stage needs and may take, and the device type that limits it."""

    strategy: Strategy
    needed: tuple[int, ...]
    room: tuple[int, ...]
    device_types: tuple[int, ...]

    @property
    def missing(self) -> tuple[int, ...]:
        """Bytes that every stage lacks, 0 where it fits; the largest are (3)."""
        return tuple(max(needed - room, 0) for needed, room in zip(self.needed, self.room, strict=True))


@dataclass(frozen=True, kw_only=True)
class Assignment(StageNeeds):
    """The division of a candidate that lacks least, and the sites of its tensor groups, (positions, R)."""

    positions: Ints


@dataclass(frozen=True, kw_only=True)
class _Groups:
    """Tensor groups in descending order of budget: sites (groups, R), bytes and types (groups,)."""

    sites: Ints
    budgets: Ints
    types: Ints


def least_missing(problem: PlanningProblem, candidate: Candidate) -> Assignment | None:
    """The assignment that lacks least, if any; None where deciding takes too long, or pipelines are by type."""
    if candidate.pipelines_by_type:
        return None
    groups = _groups(problem, candidate)
    caps = groups.budgets[candidate.pipelines - 1 :: candidate.pipelines]
    if candidate.is_order_priced:
        return _least_of_all(problem, candidate, groups, caps)
    need, choice = _needs(problem, candidate)
    if candidate.pp * (need.shape[1] ** 2) > MOST_STEPS:
        return None
    low, high = -1, int(need[need < _NEVER].max(initial=0))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _ends(need, caps + middle) else (middle, high)
    found = _ends(need, caps + max(high, 0))
    if found is None:
        return None
    ends = np.array(found)
    division = Division.of_ends(ends, choice[np.arange(candidate.pp), np.append(0, ends[:-1]), ends])
    return _assigned(problem, Strategy(candidate=candidate, division=division), groups)


def _groups(problem: PlanningProblem, candidate: Candidate) -> _Groups:
    sites = slot_sites(problem.links, candidate.width)
    # A device type is one of a node, and so is a site's.
    of_site, budget = problem.type_of_node[problem.links.node_of_site], stage_memory(problem, candidate).budget
    if sites.shape[1] > 1 and problem.links.by_node:
        sites = sites.ravel()[np.argsort(-budget[of_site[sites.ravel()]], kind="stable")].reshape(sites.shape)
    smallest = budget[of_site[sites]].argmin(axis=1)
    types = of_site[sites[np.arange(len(sites)), smallest]]
    order = np.argsort(-budget[types], kind="stable")
    return _Groups(sites=sites[order], budgets=budget[types][order], types=types[order])


_NEVER = np.iinfo(np.int64).max // 4


def _needs(problem: PlanningProblem, candidate: Candidate) -> tuple[Ints, Ints]:
    """Least bytes of stage x on layers [i, j), (pp, L+1, L+1), and the recompute that needs them."""
    memory = stage_memory(problem, candidate)
    allowed = np.array([name in problem.recompute_of(candidate) for name in RECOMPUTE])
    layers = np.arange(memory.fixed.shape[-1])
    possible = allowed[:, None, None] & (layers[:, None] < layers)
    bytes_needed = np.stack([memory.need(x) for x in range(len(memory.in_flight))])
    stated = stated_ranges(families_of(problem, candidate), len(layers) - 1)
    need = np.where(possible if stated is None else possible & stated[:, None], bytes_needed, _NEVER)
    return need.min(axis=1), need.argmin(axis=1)


def _ends(need: Ints, caps: Ints) -> list[int] | None:
    """Ends of stages that can be assigned to budgets in descending order, by (2); None where there are none."""
    values = np.unique(caps)
    most = np.array([(caps > value).sum() for value in values])
    above = (need[..., None] > values).astype(np.int64)
    pp, size = need.shape[0], need.shape[1]
    reached: list[dict[tuple[int, Counts], int]] = [{(0, (0,) * len(values)): 0}]
    for x in range(pp):
        following: dict[tuple[int, Counts], int] = {}
        for i, counts in reached[-1]:
            for j in range(size - 1 if x == pp - 1 else i + 1, size - (pp - 1 - x)):
                total = np.add(counts, above[x, i, j])
                if (total <= most).all():
                    following.setdefault((j, tuple(total.tolist())), i)
        reached.append(following)
    return _traced(reached, above) if reached[-1] else None


def _traced(reached: list[dict[tuple[int, Counts], int]], above: Ints) -> list[int]:
    """Ends of the stages, from the last back to the first."""
    end, counts = next(iter(reached[-1]))
    ends = [end]
    for x in range(len(reached) - 2, 0, -1):
        first = reached[x + 1][end, counts]
        counts = tuple((np.array(counts) - above[x, first, end]).tolist())
        end = first
        ends.append(end)
    return ends[::-1]


def _least_of_all(problem: PlanningProblem, candidate: Candidate, groups: _Groups, caps: Ints) -> Assignment | None:
    """The division that lacks least, of all that there are."""
    allowed, chunks = problem.recompute_of(candidate), candidate.pp * candidate.vpp
    layers = problem.num_layers(candidate)
    if comb(layers - 1, chunks - 1) * len(allowed) ** chunks > MOST_DIVISIONS:
        return None
    best, fewest = None, np.inf
    families = families_of(problem, candidate)
    for strategy in _strategies(candidate, layers, chunks, tuple(allowed)):
        if not is_stated(strategy.division.layers, families):
            continue
        lacking = (np.sort(memory_bytes(problem, strategy))[::-1] - caps).max()
        if lacking < fewest:
            best, fewest = strategy, lacking
    return None if best is None else _assigned(problem, best, groups)


def _strategies(candidate: Candidate, layers: int, chunks: int, allowed: tuple[str, ...]) -> Iterator[Strategy]:
    """Every division of the layers into chunks with every recompute."""
    for inner in combinations(range(1, layers), chunks - 1):
        stages = tuple(zip((0, *inner), (*inner, layers), strict=True))
        for recompute in product(allowed, repeat=chunks):
            yield Strategy(candidate=candidate, division=Division(stages, recompute))


def _assigned(problem: PlanningProblem, strategy: Strategy, groups: _Groups) -> Assignment:
    """Stages on groups, the one that needs most on the largest, (1)."""
    need = memory_bytes(problem, strategy)
    pp, dp = strategy.candidate.pp, strategy.candidate.pipelines
    rank = np.empty(pp, np.int64)
    rank[np.argsort(-np.array(need), kind="stable")] = np.arange(pp)
    of_position = (rank[None, :] * dp + np.arange(dp)[:, None]).ravel()
    last = rank * dp + dp - 1
    return Assignment(
        strategy=strategy,
        positions=groups.sites[of_position],
        needed=tuple(need),
        room=tuple(groups.budgets[last].tolist()),
        device_types=tuple(groups.types[last].tolist()),
    )
