r"""
Bound ``order`` by the first stage that spans racks.

Sets, data and cases (1) are those of ``taut.solver.bounds.rack_cases``, for a candidate that is priced by its order.
The stages are the devices of its pipelines. Racks are nodes where several blocks share a node, as in (5) there.

(1) With p confined stages some path of slots makes at least c hops between racks. Transfers of its pipeline between c
    devices and the next take :math:`\delta` seconds more, in either direction and in every round
    (``taut.formulations.order_division.SlowLinks``). The hop from the last device to the first may be on any link,
    unless a confined stage 0 fills its nodes.
(2) If stage p spans racks, its reduction takes a link between racks, for each of its parameters. It begins after the
    last pass of the device in any pipeline, in that of (1) too.
(3) A tied embedding is exchanged after the last pass of device 0, with which interleaved 1F1B ends: between nodes where
    a confined stage 0 fills its nodes. The exchange stands for the reduction of device 0 where that takes less.
(4) If all pp - 1 hops are between nodes or racks, and so is the one from the last device to the first, if any, every
    transfer takes :math:`\delta` seconds more: then makespans know it too.
(5) Each case is a division into chunks with a bound of its own, and the least bound of the cases bounds the candidate
    (``taut.solver.search.rack_trees`` grows the trees that prove them). Where there are few divisions those of each
    case are priced instead (``taut.solver.order_priced.stated``).
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.gradient_reductions import least_reduction
from taut.formulations.order_division import ChunkProblem, SlowLinks
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.formulations.terms import gradient_bytes, reductions_of
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.bounds.least_hops import least_edges
from taut.solver.bounds.least_rings import ring_per_byte, tied_exchange
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.rack_cases import (
    crossings_of_nodes,
    crossings_of_racks,
    fill_nodes,
    fills_nodes,
    rings_across_nodes,
    share_nodes,
)
from taut.solver.order_priced.stated import number_of, stated_seconds
from taut.solver.order_priced.witness import rederived


@dataclass(frozen=True)
class ChunkRacks:
    """
    The cases of a division into chunks.

    ``crossings`` are hops between racks of some path at least, by confined stages (most + 1,), ``hop`` the seconds that
    such a hop takes more, one way, and ``ring`` those for a parameter of stage p where it spans racks, (pp,).
    ``fills`` is whether a confined stage leaves its nodes no room. ``exchange``: seconds of the exchange of a tied
    embedding at least, on any link and between nodes.
    """

    given: ChunkProblem
    crossings: Ints
    hop: float
    ring: Floats
    fills: bool = False
    exchange: tuple[float, float] = (0.0, 0.0)

    @property
    def most(self) -> int:
        """Stages that can be confined at most."""
        return len(self.crossings) - 1

    def case(self, confined: int, *, spans: bool) -> ChunkProblem:
        """The division of a case: so many confined stages, whether the next one spans racks or may lie anywhere."""
        back = self.fills and confined > 0
        hops, exchange, devices = int(self.crossings[confined]), self.exchange[back], len(self.given.counts)
        links, edge = SlowLinks(hops=hops, seconds=self.hop, back=back), self.given.edge
        if hops == devices - 1 and (back or not self._returns):
            links, edge = SlowLinks(), edge + self.hop
        if spans:
            links = links._replace(spanning=confined, ring=float(self.ring[confined]))
        given = replace(self.given, slow=links, edge=edge)
        if exchange > given.rings[0] * given.loads[0, -1] / devices:
            given = replace(given, slow=links._replace(exchange=exchange))
        return given

    @property
    def _returns(self) -> bool:
        """Whether some chunk's next one lies neither on its device nor on one beside it."""
        return bool((np.abs(np.diff(self.given.order.device)) > 1).any())


def chunk_racks(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, *, margin: bool = True
) -> ChunkRacks | None:
    """Tell the racks of an order-priced candidate apart, or nodes of several blocks; None where there are none."""
    if not problem.latency.waits_for_every_stage or candidate.pp == 1:
        return None
    if share_nodes(problem, candidate):
        given = chunked(problem, candidate, best, margin=margin, exchange=False)
        bytes_ = gradient_bytes(problem.terms(candidate)) * np.diagonal(given.loads, 1)
        rates = rings_across_nodes(problem, candidate, best, bytes_)
        hop = _hop(problem, candidate, best, None)
        each = crossings_of_nodes(problem, candidate)
        rings = np.array([of_load(problem, candidate, rate, given) for rate in rates.tolist()])
        exchange = least_exchange(problem, candidate, best, given)
        return ChunkRacks(given, each, hop, rings, fills_nodes(problem, candidate), exchange)
    rack = best.racks
    if rack is None or not rack.any() or not fill_nodes(problem, candidate):
        return None
    given = chunked(problem, candidate, best, margin=margin)
    hop, ring = _hop(problem, candidate, best, rack), _ring_of_racks(problem, candidate, best, rack, given)
    return ChunkRacks(given, crossings_of_racks(problem, candidate, rack), hop, np.full(candidate.pp, ring))


class Listed(NamedTuple):
    """Seconds of all divisions priced in each case, their witness, and the case with the least, with its divisions."""

    seconds: float
    witness: dict[str, Any]
    case: ChunkProblem
    divisions: tuple[Division, ...]


def listed_in_cases(racks: ChunkRacks, limit: float, beyond: float) -> Listed | None:
    """
    All divisions priced in each case up to a limit.

    None where some case says no more than seconds ``beyond``, which are known.
    """
    if not racks.crossings.any():
        return None
    every = [racks.case(racks.most, spans=False), *(racks.case(p, spans=True) for p in range(racks.most))]
    found = list[tuple[float, tuple[Division, ...]]]()
    for given in every:
        found.append(stated_seconds(given, limit))
        if found[-1][0] <= beyond:
            return None
    rest, *spanning = ({"stated": number_of(given), "limit_s": limit} for given in every)
    least = min(range(len(every)), key=lambda k: found[k][0])
    return Listed(found[least][0], {"racks": spanning, "rest": rest}, every[least], found[least][1])


def least_exchange(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, given: ChunkProblem
) -> tuple[float, float]:
    """Seconds of a tied embedding's exchange after the first device ends, beside what all devices wait for, (3)."""
    if candidate.schedule != "interleaved-1f1b":
        return 0.0, 0.0
    tied = tied_exchange(problem, candidate, best)
    return max(min(tied.inside, tied.apart) - given.reduced, 0.0), max(tied.apart - given.reduced, 0.0)


def _hop(problem: PlanningProblem, candidate: Candidate, best: BestLinks, rack: Ints | None) -> float:
    """Seconds that a hop between racks, or nodes, takes at least beyond the least hop of its message, one way."""
    tables, least = problem.tables(candidate), np.inf
    edge = least_edges(problem, candidate, best)[0]
    for message, cut in zip(*np.unique(tables.message[1:-1], return_index=True), strict=True):
        hop = problem.links.hop_seconds(candidate.width, float(message), both_ways=True)
        least = min(least, best.least_between(hop, rack) - edge[cut + 1])
    return problem.coefficient("pipeline") * max(float(least), 0.0) / 2 if least < np.inf else 0.0


def _ring_of_racks(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, rack: Ints, given: ChunkProblem
) -> float:
    """Seconds for a parameter of a stage that spans racks at least, beside what all devices wait for."""
    nodes, slowest = problem.links.num_nodes // candidate.pp, best.least_between(problem.rings.inverse, rack)
    term = reductions_of(problem.terms(candidate))[0]
    rate = term.rate(lambda group: ring_per_byte(group.members, nodes, best, slowest))
    return of_load(problem, candidate, rate, given)


def of_load(problem: PlanningProblem, candidate: Candidate, rate: float, given: ChunkProblem) -> float:
    """Seconds for a unit of load, of seconds for a byte, beside what all devices wait for."""
    hosted = given.num_chunks // len(given.counts)
    reduced = least_reduction(problem, candidate, rate * gradient_bytes(problem.terms(candidate)), 0.0, hosted)
    return reduced.slope if reduced.constant >= given.reduced else 0.0


def rederived_by_racks(racks: ChunkRacks, witness: dict[str, Any]) -> float:
    """Seconds that a witness of cases proves; minus infinity where it proves nothing."""
    if set(witness) != {"racks", "rest"} or not isinstance(witness["racks"], list):
        return -np.inf
    spanning, rest = witness["racks"], witness["rest"]
    if len(spanning) > racks.most or not all(isinstance(each, dict) for each in (*spanning, rest)):
        return -np.inf
    every = [rederived(racks.case(confined, spans=True), each) for confined, each in enumerate(spanning)]
    return min([*every, rederived(racks.case(len(spanning), spans=False), rest)])
