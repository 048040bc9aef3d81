r"""
Bound ``partition`` by the parts that stages have on nodes with room: rings and hops of placements that exist.

Sets: stages x of n blocks each; N nodes that hold c blocks each, :math:`n \le c`, all of them used, c no multiple of n.
The kind of a stage is the multiset of its parts: the numbers of its blocks on the nodes that it touches. A placement is
a packing: the parts on a node, :math:`a_{xv}` of stage x on node v, are c blocks together.

(1) A ring has g members in every block, so a part of a blocks has g a of them. A stage with parts
    :math:`a_1 \ge \dots \ge a_k` has rings that take per byte at least
    :math:`4 \frac{g a_1 - 1}{g a_1} / B_{inside} + 2 \frac{k - 1}{k} \max(1 / B_k, G / (N g a_k))`.
(2) Of the n pipelines, at most :math:`\min(a_{xv}, a_{x+1,v})` stay on node v between stages x and x + 1. The others
    hop to another node. Some pipeline makes at least the mean number of hops, rounded up.
(3) Let :math:`v_x^h(a)` be the optimum of the division with the rings (1) of stage x alone, or with the best rings of
    all stages if that is more, and h hops between nodes, of which those before x lose their way back
    (``taut.solver.bounds.rack_cases`` (3)). A placement that makes h hops by (2) takes at least

    .. math:: \min_h \min_{a \in \mathcal A_h} \max_x v_x^h(a_x)

    over the packings :math:`\mathcal A_h` that make h hops at most. Kinds are sorted by the seconds of their rings,
    each lowered to those of the kinds behind it, so that :math:`v_x^h` rises. A threshold on :math:`v_x^h` says which
    kinds are allowed. It rises until a packing of allowed kinds exists.
(4) Stages are packed one after the other. A state is the multiset of nodes by what room is left on them and which part
    the last stage has there, and the hops so far. A node with room r for the last s stages that holds a part a of the
    stage before them is hopped to :math:`\lceil r / s \rceil - a` times more at least. Nodes with room for 1 to r
    blocks take a part of r blocks at most each, so there are no more of them than the last stages have such parts.
    Where ``MOST_STEPS`` stages were placed in vain, a packing is taken to exist.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.gradient_reductions import least_bytes
from taut.formulations.partition import PartitionProblem
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import inside_factor, ring_factor
from taut.formulations.space import Candidate
from taut.formulations.terms import Group, reductions_of
from taut.solver.bounds.communication import Communication
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.rack_cases import RackCases, share_nodes
from taut.solver.layer_division.divide import Partition, solve_partition

Kind = tuple[int, ...]
"""Parts of a stage, the largest first."""

MOST_BLOCKS = 16
"""Blocks of a stage up to which kinds are listed, 231 of them."""
EQUAL = 1 + 1e-12
"""Factor within which an optimum is the threshold, beyond the rounding of its sums."""
MOST_STEPS = 20_000
"""Stages that a search for a packing places at most, some tenths of a second."""


def kinds_of(members: int, most: int) -> list[Kind]:
    """All multisets of parts of so many blocks on ``most`` nodes at most."""

    def split(left: int, largest: int, most: int) -> Iterator[Kind]:
        if left == 0:
            yield ()
        elif most > 0:
            for part in range(min(left, largest), 0, -1):
                yield from ((part, *rest) for rest in split(left - part, part, most - 1))

    return list(split(members, members, most))


Stage = tuple[tuple[int, int], ...]
"""The node and size of every part of a stage."""


class Packing:
    """Packings of ``nodes`` with ``room`` for c blocks each by stages of n ``members``, (4)."""

    def __init__(self, members: int, room: int, nodes: int) -> None:
        self.members, self.room, self.nodes = members, room, nodes
        self.steps, self._small = MOST_STEPS, dict[Kind, Ints]()

    def of(self, allowed: Sequence[Sequence[Kind]], most: int, steps: int = MOST_STEPS) -> list[Stage] | None:
        """
        The parts of every stage, of the kinds that each allows, with at most so many hops by (2), or None.

        ``steps`` says afterwards how many are left; where none are, None says nothing.
        """
        self.steps = steps
        hops, placed = self.members * most, list[Stage]()
        failed: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        if not all(allowed):
            return None
        # What later stages, each with one part at most, can put on a node, and their parts of 0, 1, ... blocks at most.
        sums, small = [{0}], [np.zeros(self.room + 1, dtype=np.int64)]
        for kinds in reversed(allowed):
            parts = {part for kind in kinds for part in kind}
            sums.insert(0, sums[0] | {total + part for total in sums[0] for part in parts})
            small.insert(0, small[0] + np.max([self._up_to(kind) for kind in kinds], axis=0))
        fewest = [each.tolist() for each in small]

        def fill(x: int, left: list[int], before: list[int], made: int) -> bool:
            """Place stage x and those after it, with room ``left`` and parts ``before`` it by node."""
            if x == len(allowed):
                return True
            nodes, stages = sorted(zip(left, before, strict=True)), len(allowed) - x
            if x and made + sum(max(-(-room // stages) - part, 0) for room, part in nodes) > hops:
                return False
            full = bisect_left(nodes, (1, 0))
            if any(number - full >= fewest[x][room] for number, (room, _) in enumerate(nodes) if room):
                return False
            state = x, tuple(nodes)
            if failed.get(state, hops + 1) <= made:
                return False
            each = [one for kind in allowed[x] for one in self._placed(kind, left, before, sums[x + 1])]
            for cut, stage in sorted(each):
                self.steps -= 1
                if self.steps <= 0:
                    return False
                room, parts = left.copy(), [0] * self.nodes
                for node, part in stage:
                    room[node], parts[node] = room[node] - part, part
                placed.append(stage)
                if fill(x + 1, room, parts, made + (cut if x else 0)):
                    return True
                placed.pop()
            failed[state] = made
            return False

        return placed if fill(0, [self.room] * self.nodes, [0] * self.nodes, 0) else None

    def _up_to(self, kind: Kind) -> Ints:
        """Parts of 0, 1, ... blocks at most, (c + 1,)."""
        if kind not in self._small:
            self._small[kind] = np.searchsorted(kind[::-1], np.arange(self.room + 1), side="right")
        return self._small[kind]

    def _placed(self, kind: Kind, left: list[int], before: list[int], sums: set[int]) -> Iterator[tuple[int, Stage]]:
        """Yield a stage on nodes for every way that differs, with the pipelines that hop to it."""
        alike = defaultdict[tuple[int, int], list[int]](list)
        for node, state in enumerate(zip(left, before, strict=True)):
            alike[state].append(node)
        taken = dict.fromkeys(alike, 0)

        def put(part: int, least: int, stage: Stage, stay: int) -> Iterator[tuple[int, Stage]]:
            if part == len(kind):
                if all(state[0] in sums for state, nodes in alike.items() if taken[state] < len(nodes)):
                    yield self.members - stay, stage
                return
            size = kind[part]
            for number, (state, nodes) in enumerate(alike.items()):
                # Equal parts take classes of nodes in ascending order.
                if number < least or taken[state] == len(nodes) or state[0] - size not in sums:
                    continue
                node = nodes[taken[state]]
                taken[state] += 1
                further = number if kind[part + 1 : part + 2] == (size,) else 0
                yield from put(part + 1, further, (*stage, (node, size)), stay + min(size, state[1]))
                taken[state] -= 1

        yield from put(0, 0, (), 0)


@dataclass(frozen=True, kw_only=True)
class NodeParts:
    """
    What the bound (3) rests on: the packings of a candidate, and what is priced with them.

    ``kinds`` of stages; ``seconds``, ``unhidden``: of the rings of every range by kind (kinds, L+1, L+1), and what no
    backward pass hides of them.
    """

    members: int
    room: int
    nodes: int
    kinds: list[Kind]
    seconds: Floats
    unhidden: Floats

    def least(self, stages: PartitionProblem, comm: Communication, racks: RackCases, limit: float) -> Partition:
        """The least bound over numbers of hops, or one beyond the limit, (3)."""
        levels, packing = _Levels(self, stages, comm, racks), Packing(self.members, self.room, self.nodes)
        best = replace(levels.optimum(0, 0, None), seconds=limit)
        for hops in range(stages.pp - 1, -1, -1):
            found = levels.least(packing, hops, best.seconds)
            best = found if found.seconds < best.seconds else best
        return best


class _Levels:
    """Kinds by ascending seconds, and the optima of the division with those of one stage, (3)."""

    def __init__(self, parts: NodeParts, stages: PartitionProblem, comm: Communication, racks: RackCases) -> None:
        assert comm.later is not None
        self._stages, self._comm, self._racks, self._later = stages, comm, racks, comm.later
        order = np.argsort(parts.seconds[:, 0, -1], kind="stable")
        self._kinds = [parts.kinds[k] for k in order.tolist()]
        self._seconds, self._unhidden = (
            np.minimum.accumulate(figures[order][::-1], axis=0)[::-1] for figures in (parts.seconds, parts.unhidden)
        )
        self._known: dict[tuple[int, int | None], dict[int, Partition]] = defaultdict(dict)
        self._refuted = list[Ints]()

    def least(self, packing: Packing, hops: int, limit: float) -> Partition:
        """The least threshold, up to the limit, with a packing of so many hops; no more than at the call before."""
        last, found = len(self._kinds) - 1, self.optimum(hops, 0, None)
        reached = np.full(self._stages.pp, -1)
        while found.seconds < limit:
            for x in range(self._stages.pp):
                low, high = int(reached[x]), last
                while low < high:
                    middle = (low + high + 1) // 2
                    low, high = (middle, high) if self._is_within(hops, x, middle, found.seconds) else (low, middle - 1)
                reached[x] = low
            if not any((reached <= each).all() for each in self._refuted):
                if packing.of([self._kinds[: each + 1] for each in reached], hops) is not None or packing.steps <= 0:
                    break
                self._refuted.append(reached.copy())
            found = Partition(seconds=np.inf)
            further = [(x, int(each) + 1) for x, each in enumerate(reached) if each < last]
            for least, x, level in sorted((self._bracket(hops, *each)[0], *each) for each in further):
                if least < min(found.seconds, limit):
                    found = min(found, self.optimum(hops, x, level), key=lambda one: one.seconds)
        return found

    def _is_within(self, hops: int, x: int, level: int, seconds: float) -> bool:
        """Whether the optimum with the rings of a level on stage x takes no more than so many seconds."""
        least, most = self._bracket(hops, x, level)
        if least > seconds * EQUAL or most <= seconds:
            return least <= seconds * EQUAL
        return self.optimum(hops, x, level).seconds <= seconds * EQUAL

    def _bracket(self, hops: int, x: int, level: int) -> tuple[float, float]:
        """Seconds of an optimum at least and at most, by those with other hops, each of which adds up to ``whole``."""
        known = [(found.seconds, (made - hops) * self._racks.whole) for made, found in self._known[x, level].items()]
        least = max((seconds - max(more, 0.0) for seconds, more in known), default=-np.inf)
        return least, min((seconds - min(more, 0.0) for seconds, more in known), default=np.inf)

    def optimum(self, hops: int, x: int, level: int | None) -> Partition:
        """The optimum with the rings of a level on stage x, or with the best rings and no level."""
        known = self._known[x, level]
        if hops not in known:
            known[hops] = self._solved(hops, x, level)
        return known[hops]

    def _solved(self, hops: int, x: int, level: int | None) -> Partition:
        later, racks, comm = self._later, self._racks, self._comm
        tail = np.maximum(comm.tail, racks.confined + racks.whole * hops)
        if level is not None and x == 0:
            tail = np.maximum(tail, self._unhidden[level][0] + racks.constant + racks.whole * hops)
        elif level is not None:
            # Other stages have no rings here, so that the optimum rises with the level.
            waited = racks.constant + min(x, hops) * racks.before + max(hops - x, 0) * racks.whole
            later = replace(
                later,
                ring=np.where(np.arange(self._stages.pp) == x, 1.0, 0.0),
                exchanged=self._seconds[level],
                unhidden=self._unhidden[level],
                others=max(later.others, waited),
            )
        return solve_partition(self._stages, comm.edge, tail, later=later)


def node_parts(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> NodeParts | None:
    """The packings of a candidate whose blocks share nodes; None where stages fill nodes, or have too many kinds."""
    if len(problem.device_types) > 1 or not share_nodes(problem, candidate):
        return None
    members, room = candidate.pipelines, int(problem.links.gpus_per_node[0]) // candidate.width
    if members > min(room, MOST_BLOCKS) or members == 1 or room % members == 0:
        return None
    kinds = kinds_of(members, problem.links.num_nodes)
    terms = reductions_of(problem.terms(candidate))

    def seconds(kind: Kind) -> Floats:
        """Seconds of the rings of every range, (1)."""

        def ring(group: Group) -> float:
            each = group.members // members
            most, fewest, k = kind[0] * each, kind[-1] * each, len(kind)
            inside = inside_factor(most) * best.inside_inverse if most > 1 else 0.0
            return inside + (ring_factor(k) * max(best.core(k), best.card / fewest) if k > 1 else 0.0)

        experts = sum(term.rate(ring) for term in terms[:2] if term.load == "experts")
        common = terms[0].rate(ring) * problem.gradient_bytes(candidate)
        return np.asarray(common + experts * problem.gradient_bytes(candidate, "experts"))

    every = [seconds(kind) for kind in kinds]
    unhidden = [least_bytes(problem, candidate, each) for each in every]
    return NodeParts(
        members=members,
        room=room,
        nodes=problem.links.num_nodes,
        kinds=kinds,
        seconds=np.array(every),
        unhidden=np.array(unhidden),
    )
