r"""
Bound ``order`` by the stages of a pipeline that are on slow devices.

Sets: the slow class holds the blocks with a device of the slowest type, the fast class all others
(``taut.formulations.partition``). The stages are the devices of pipelines that are priced by their order.
Data: N slow blocks, dp pipelines of pp blocks each.

(1) Some pipeline has at least :math:`n = \lceil N / dp \rceil` slow blocks. Of a pipeline with the most, n stages are
    slow and no others, or more are. Which stages are these n makes :math:`\binom{pp}{n}` cases, and which are the first
    n + 1 makes :math:`\binom{pp}{n + 1}`. In each case the chunks of these stages take the seconds of the slow class,
    and their rings have a slow member. All else is at its best. Where both together are more than ``MOST_CASES``, the
    cases say which stages are the first n.
(2) Each case is divided by the first stage that spans nodes (``taut.solver.ladder.chunk_racks``). A stage that is
    confined to one node has one class. So if all stages are confined, the n stages are the only slow ones: N = n dp.
(3) A node holds c blocks. A confined stage takes dp of them, or dp / c whole nodes. Hence at most :math:`f =
    \max(\lfloor c / dp \rfloor, 1)` confined stages share a node, the last of them leave at most c - dp further stages
    room, and c stages fit any other node. A node has one class, so the pipeline of (1) leaves its node where the class
    changes. Of r stages of one class in a row let q be confined. They stop at

    .. math:: \lceil q / f \rceil + \lceil (r - q - (c - dp)) / c \rceil

    nodes, without c - dp if q = 0. Stages behind the first n or n + 1 of (1) are of any class, and count with the last
    of these, unless these are all slow ones, as they also are if n are confined and N = n dp. The pipeline makes a hop
    less than it has stops. In ``taut.solver.bounds.rack_cases`` (6), some pipeline makes the mean number instead.
(4) If 2 dp blocks fit a node, a tied embedding makes two cases of each case. Either some replica exchanges it between
    nodes, or first and last stage share nodes in every replica. In the latter case both are of one class in the
    pipeline of (1), so that both are among its slow stages or neither is, and of those between the first are. If the
    first n alone are told apart and n = 1, both are slow or neither is. The pipeline returns to its first node, with
    :math:`\lceil pp / c \rceil` hops if no node holds it. If 2 dp = c and stage 0 is confined, its node is full, and
    (3) holds for the stages between.

The bound is the least of the cases. Layers are counted before, and alone where there are more than ``MOST_CASES``:

(5) Let k of the devices before d be slow. Within T seconds device d takes at most :math:`A_d(k)` layers, and at most
    :math:`B_d(k)` if it is slow itself (``taut.solver.order_priced.layer_bounds`` (3)). Its own path passes the first
    chunks of the devices before it, with a layer each at least. On a slow device e these take :math:`\delta_{de}`
    seconds more, and the k least of these are counted. A device that has no time for a layer in each chunk has no
    division. Let d devices, of which k are slow, take at most

    .. math:: U_{d+1}(k) = \max(U_d(k) + A_d(k), \; U_d(k - 1) + B_d(k - 1)).

    If :math:`U_{pp}(n) < L`, no division is within T, and T is a lower bound. Slow devices beyond n count as fast.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import combinations, groupby
from math import comb
from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.order_division import ROUNDING, ChunkProblem, SlowDevices, passes_by_type
from taut.formulations.partition import slow_blocks, slowest_type
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.terms import in_one_ring
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.bounds.least_rings import groups_of_node, least_gather, least_rings_by_class
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.ladder.chunk_racks import ChunkRacks, chunk_racks, least_exchange, of_load, rederived_by_racks
from taut.solver.order_priced.layer_bounds import LayerPaths, linear_paths

MOST_CASES = 128
"""Cases of (1) that are told apart at most: those of 14 slow stages of 16, most of which counting layers refutes."""


def chunk_cases(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, *, margin: bool = True
) -> list[ChunkRacks]:
    """
    List the cases of an order-priced candidate by the classes of its stages, each with its racks.

    One case where classes are not told apart; none where racks say nothing either, or where (5) counts layers instead.
    """
    racks = chunk_racks(problem, candidate, best, margin=margin)
    stages = _slow_stages(problem, candidate)
    if stages == 0:
        return [] if racks is None else [racks]
    if comb(candidate.pp, stages) > MOST_CASES:
        return []
    racks = _without_racks(problem, candidate, best, margin=margin) if racks is None else racks
    return list(_cases(problem, candidate, best, racks, stages))


def _without_racks(problem: PlanningProblem, candidate: Candidate, best: BestLinks, *, margin: bool) -> ChunkRacks:
    """A case with nothing of racks but the exchange of a tied embedding."""
    given = chunked(problem, candidate, best, margin=margin, exchange=False)
    exchange = least_exchange(problem, candidate, best, given)
    return ChunkRacks(given, np.zeros(1, np.int64), 0.0, np.zeros(candidate.pp), exchange=exchange)


def most_within(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, *, margin: bool = True
) -> Callable[[float], bool] | None:
    """Whether (5) refutes some seconds, for a candidate with stages of two classes; None for other candidates."""
    if (stages := _slow_stages(problem, candidate)) == 0:
        return None
    racks = _without_racks(problem, candidate, best, margin=margin)
    given = replace(racks, exchange=racks.exchange[:1] * 2).case(0, spans=False)
    slower = _slower(problem, candidate, best, given, np.ones(candidate.pp, np.bool_))
    fast, slow = linear_paths(given), linear_paths(replace(given, slower=slower))
    if not fast or len(fast) != len(slow):
        return None
    counts = [_Counts.of(one, other, stages) for one, other in zip(fast, slow, strict=True)]
    return lambda seconds: all(each.within(seconds) < given.num_layers for each in counts)


class _Counts(NamedTuple):
    """
    What devices ask for in one case of layers that differ, (5).

    ``asked`` (2, devices, n + 1): seconds of a device's own path with the least layers, by its class and k; ``each``
    (2, devices): seconds of a further layer; ``least`` and ``most`` (devices,): layers by its chunks and its memory.
    """

    asked: Floats
    each: Floats
    least: Ints
    most: Ints

    @classmethod
    def of(cls, fast: LayerPaths, slow: LayerPaths, stages: int) -> "_Counts":
        """What devices of which so many are slow ask for, from the paths on fast devices alone, and on slow ones."""
        given, lower = fast.given, fast.lines.lower
        devices = len(given.counts)
        host = np.eye(devices)[given.order.device]
        weights = np.stack([paths.weights(range(devices)) for paths in (fast, slow)])
        one, none = (np.stack(each) for each in ((fast.lines.one, slow.lines.one), (fast.lines.none, slow.lines.none)))
        slope, still = (np.einsum("qdcf,qfc->qdc", weights, each) for each in (one, none))
        on = (still + slope * lower) @ host
        more = np.where(np.tri(devices, k=-1, dtype=np.bool_), on[1] - on[0], np.inf)
        before = np.cumsum(np.sort(more, axis=1)[:, :stages], axis=1)
        elsewhere = fast.paths()[:devices] @ np.append(lower, 1) - np.diagonal(on[0])
        asked = elsewhere[:, None] + np.concatenate((np.zeros((devices, 1)), before), axis=1)
        each = np.where(host.T > 0, slope, np.inf).min(axis=2)
        own = np.diagonal(on, axis1=1, axis2=2)[..., None]
        return cls(asked + own, each, (lower @ host).astype(np.int64), fast.root(np.inf).most)

    def within(self, seconds: float) -> float:
        """Most layers that all devices take within so many seconds; minus infinity where some device takes none."""
        room = seconds - self.asked
        further = np.floor(np.maximum(room, 0.0) / self.each[..., None] * (1 + ROUNDING) + ROUNDING)
        most = np.minimum(self.least[:, None] + further, self.most[:, None])
        most = np.where((room < 0) | (most < self.least[:, None]), -np.inf, most)
        taken = np.append(0.0, np.full(self.asked.shape[2] - 1, -np.inf))
        for fast, slow in zip(*most, strict=True):
            before, taken = taken, taken + fast
            taken[1:] = np.maximum(taken[1:], before[:-1] + slow[:-1])
        return float(taken[-1])


def _slow_stages(problem: PlanningProblem, candidate: Candidate) -> int:
    """Slow stages of some pipeline at least, (1); 0 where classes are not told apart."""
    links = problem.links
    several = len(problem.device_types) > 1 and problem.latency.waits_for_every_stage and candidate.pp > 1
    if not several or candidate.pipelines_by_type or candidate.width > links.gpus_per_node.max():
        return 0
    fewest, _ = slow_blocks(problem, candidate.width, slowest_type(problem, candidate))
    return -(-fewest // candidate.pipelines)


def _cases(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, racks: ChunkRacks, stages: int
) -> Iterator[ChunkRacks]:
    """The cases (1)."""
    slowest, given = slowest_type(problem, candidate), racks.given
    slower = _slower(problem, candidate, best, given, np.zeros(candidate.pp, np.bool_))
    inside, apart = racks.exchange
    held, last = groups_of_node(problem, candidate.width), candidate.pp - 1
    returns = inside < apart and 2 * candidate.pipelines <= held
    exchange = (apart, apart) if returns else (inside, apart)
    fewest, _ = slow_blocks(problem, candidate.width, slowest)
    whole, exact = fewest == stages * candidate.pipelines, comb(candidate.pp + 1, stages + 1) <= MOST_CASES
    counts = [(stages, exact)] + [(stages + 1, False)] * (exact and stages < min(candidate.pp, fewest))
    patterns = list[tuple[tuple[int, ...], bool, bool]]()
    for count, known in counts:
        every = list(combinations(range(candidate.pp), count))
        shared = [some for some in every if (0 in some) == (last in some)]
        shared += [(0, last)] if count == 1 and not known else []
        patterns += [*((some, False, known) for some in every), *((some, True, known) for some in shared if returns)]
    for some, back, known in patterns:
        slow = np.isin(np.arange(candidate.pp), some)
        case = replace(given, slower=slower._replace(devices=slow))
        crossings = racks.crossings
        if racks.hop > 0:
            sizes = held, candidate.pipelines, len(crossings) - 1
            crossings = _crossings(tuple(slow.tolist()), *sizes, whole=whole, back=back, known=known)
        each = (inside, inside) if back else exchange
        yield replace(racks, given=case, crossings=crossings, exchange=each)


def _slower(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, given: ChunkProblem, devices: Flags
) -> SlowDevices:
    """Seconds of the slow class, which some stages are of."""
    gather = least_gather(problem, candidate, best)
    passes = passes_by_type(problem, candidate, gather)[:, slowest_type(problem, candidate)]
    return SlowDevices(devices, np.maximum(passes, given.passes), _ring(problem, candidate, best, given))


def _ring(problem: PlanningProblem, candidate: Candidate, best: BestLinks, given: ChunkProblem) -> float:
    """Seconds for a unit of load of a ring with a slow member at least, beside what all devices wait for."""
    if not in_one_ring(problem.terms(candidate)) or problem.tables(candidate).experts.any():
        return 0.0
    return of_load(problem, candidate, float(least_rings_by_class(problem, candidate, best)[1:].min()), given)


@lru_cache(maxsize=4096)
def _crossings(
    slow: tuple[bool, ...], held: int, blocks: int, most: int, *, whole: bool, back: bool, known: bool
) -> Ints:
    """
    Hops between nodes that the pipeline of (1) makes by confined stages, (3), or (4) with ``back``, (most + 1,).

    ``slow``: stages of a case, ``known`` where they are all slow ones; ``held``: blocks c of a node; ``blocks``: dp;
    ``whole``: whether N = n dp.
    """
    pp, last = len(slow), max(x for x, each in enumerate(slow) if each)
    # Stages 0 and pp - 1 have a node for themselves where the pipeline returns.
    between, own = (slow[1:-1], min(pp - 1, 2)) if back else (slow, 0)
    told = max((x + 1 for x, each in enumerate(between) if each), default=0)
    every = _rows(slow, pp if known else told + back)
    stops = [max(-(-pp // held) + (back and pp > held), sum(-(-row // held) for row in every))]
    if (blocks > held and blocks % held) or (back and 2 * blocks < held):
        return np.full(most + 1, stops[0] - 1)
    together, room = max(held // blocks, 1), max(held - blocks, 0)
    for p in range(1, pp + 1):
        confined, found = p - back, own
        for row in _rows(between, len(between) if known or (whole and last < p) else told):
            inside = min(row, confined)
            left, confined = row - inside - (room if inside else 0), confined - inside
            found += -(-inside // together) - (-max(left, 0) // held)
        stops.append(found)
    hops = np.maximum.accumulate(np.array(stops)) - 1
    return np.asarray(hops[: most + 1] if most else hops[-1:])


def _rows(slow: tuple[bool, ...], known: int) -> list[int]:
    """Stages in a row that are of one class, of which so many first ones are known: all others go with the last row."""
    rows = [len(list(row)) for _, row in groupby(slow[:known])]
    return [*rows[:-1], sum(rows[-1:]) + len(slow) - known]


def of_cases(witness: dict[str, Any]) -> bool:
    """Whether a witness is one of cases."""
    return "racks" in witness or "classes" in witness


def rederived_by_count(refutes: Callable[[float], bool] | None, witness: dict[str, Any]) -> float:
    """Seconds that a witness of (5) proves; minus infinity where it proves nothing."""
    seconds = witness.get("counted_s")
    if refutes is None or set(witness) != {"counted_s"} or not (isinstance(seconds, float) and seconds > 0):
        return -np.inf
    return seconds * (1 - ROUNDING) if refutes(seconds) else -np.inf


def rederived_by_cases(cases: list[ChunkRacks], witness: dict[str, Any]) -> float:
    """Seconds that a witness of all cases proves; minus infinity where it proves nothing."""
    if len(cases) == 1 and "racks" in witness:
        return rederived_by_racks(cases[0], witness)
    each = witness.get("classes")
    if set(witness) != {"classes"} or not isinstance(each, list) or len(each) != len(cases) or not cases:
        return -np.inf
    if not all(isinstance(one, dict) for one in each):
        return -np.inf
    return min(rederived_by_racks(case, one) for case, one in zip(cases, each, strict=True))
