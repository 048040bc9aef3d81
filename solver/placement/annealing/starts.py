r"""
Constructed placements, where annealing starts.

Sets: nodes that hold c tensor groups each. On uniform networks the following are best or nearly so. For a number g of
replicas,

(1) chunks of g replicas fill the nodes stage by stage: rings stay inside nodes for large g, hops for small g;
(2) g replicas share the node of their first :math:`\lfloor c / g \rfloor` stages, and what is left of the pipelines is
    laid out one after the other over the slots that are left, those of shared nodes first or last: each of them touches
    at most one node more than it has to, so that it makes about the least number of hops between nodes
    (``taut.solver.bounds.communication`` (1)).

(3) the first few stages fill nodes with :math:`g_0, g_1, \dots` replicas each, the others with g: leading stages, which
    are waited for, have short rings, and later ones few hops (``taut.solver.bounds.ring_members``).

(4) where racks of equal size hold whole stages, the first few stages, which are waited for, take racks one after the
    other, and what is left of the pipelines is laid out one after the other over the racks that are left: the rings of
    the former stay inside racks, and so do most hops of the latter, whose rings have the time of the passes between.

(5) where nodes hold whole stages and room is left on them, as racks of 72 do, the first stages take nodes one after the
    other, and the last ones share what is left: these end before the others do.

(6) where (5) applies, packings of the nodes by parts of stages (``taut.solver.bounds.node_parts``): for every number of
    hops the one whose last reduction ends first. A ring is as slow as its smallest part makes it: two parts of four
    members are better than one of seven and one of one.

(7) where links between nodes differ, all of them again with the nodes in a chain: the first node, and after each node
    the one with the fastest link to it of those that are left. Nodes of one site are next to one another then, in
    whatever order a file names them. No move of annealing leads there from rings that all cross the slow links: their
    price falls only once the last of their members is in one site.

With two classes of device, slots are taken from the class that each stage wants.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.gradient_reductions import reduction_seconds
from taut.formulations.partition import slowest_type
from taut.formulations.placement import PlacementProblem
from taut.solver.bounds.node_parts import MOST_BLOCKS, MOST_STEPS, Kind, Packing, Stage, kinds_of

LEADING = 3
"""Stages with members of their own in (3); a later one ends several backward passes before the first."""
MOST_CONFINED = 16
"""Numbers of stages that are tried in (4), evenly spread: the best of 63 was at most 0.15 % better."""
MOST_LOOK_UPS = 2_000_000
"""Positions, times members of a ring, that are priced over all starts of (3): a tenth of a second."""
MOST_REPLICAS, MOST_STAGES, MOST_PLACED = 64, 64, 60_000
"""Replicas and stages up to which (6) is tried, and stages that it places: a second or two."""
MOST_CHAINED = 512
"""Nodes up to which (7) is tried: links between all pairs are looked up, a few milliseconds."""


def starts(problem: PlacementProblem, patterns: tuple[int, ...]) -> list[Ints]:
    """Sites of every position, (pp dp, R) each: (1) by g, and (2) to (6) where nodes are equal; all with (7)."""
    chain = _chain(problem)
    return [start for slots in (problem.slots, *chain) for start in _starts(replace(problem, slots=slots), patterns)]


def _chain(problem: PlacementProblem) -> list[Ints]:
    """The slots with nodes in the order of (7); none where it is theirs."""
    node = problem.links.node_of_site[problem.slots[:, 0]]
    _, first, number = np.unique(node, return_index=True, return_inverse=True)
    if len(first) > MOST_CHAINED:
        return []
    sites = problem.slots[first, 0]
    rate = problem.links.rate[sites[:, None], sites[None, :]]
    rate, order = np.minimum(rate, rate.T), [0]
    left = np.ones(len(sites), dtype=np.bool_)
    while len(order) < len(sites):
        left[order[-1]] = False
        order.append(int(np.argmax(np.where(left, rate[order[-1]], -1.0))))
    place = np.argsort(order)[number]
    return [problem.slots[np.argsort(place, kind="stable")]] if np.any(np.diff(place) < 0) else []


def _starts(problem: PlacementProblem, patterns: tuple[int, ...]) -> list[Ints]:
    """Starts (1) to (6) over the slots as they are."""
    candidate = problem.candidate
    pp, dp = candidate.pp, candidate.pipelines
    _, per_node = np.unique(problem.links.node_of_site[problem.slots[:, 0]], return_counts=True)
    most = int(per_node.max())
    chunks = sorted({g for g in range(1, min(dp, most) + 1) if most % g == 0} | {dp})
    built = [_filled(problem, _chunked(pp, dp, g), patterns) for g in chunks]
    if len(set(per_node.tolist())) == 1 and len(set(patterns)) == 1:
        shared = [g for g in range(1, min(dp, most) + 1) if -(-dp // g) <= len(per_node)]
        built += [_serial(problem, most, g, shared_last=last) for last in (False, True) for g in shared]
        if problem.priced > 1 or problem.ends is not None:
            built += [*_with_room(problem, most), *_packed(problem, most)] if most >= dp and most % dp else []
            built += _confined(problem)
            chosen = islice(_leading(problem, most), max(MOST_LOOK_UPS // (len(problem.slots) * max(dp, pp)), 1))
            built += [_filled(problem, _levelled(pp, dp, most, members), patterns) for members in chosen]
    return built


def _leading(problem: PlacementProblem, most: int) -> Iterator[tuple[int, ...]]:
    """Replicas of every stage on a node for (3), those with fewer leading stages first."""
    candidate = problem.candidate
    every = [g for g in range(1, min(candidate.pipelines, most) + 1) if most % g == 0]
    for count in range(1, min(problem.priced, LEADING, candidate.pp - 1) + 1):
        for members in product(every, repeat=count + 1):
            if members[-1] != members[-2]:
                yield members[:-1] + members[-1:] * (candidate.pp - count)


def _levelled(pp: int, dp: int, most: int, members: tuple[int, ...]) -> list[int]:
    """Positions in the order in which they take slots, (3): stages with equal members fill nodes together."""
    order, x = list[int](), 0
    while x < pp:
        g, end = members[x], x + 1
        while end < pp and members[end] == g and end - x < most // g:
            end += 1
        chunks = range(0, dp, g)
        order += [z * pp + y for low in chunks for z in range(low, min(low + g, dp)) for y in range(x, end)]
        x = end
    return order


def _confined(problem: PlacementProblem) -> list[Ints]:
    """Sites by position where leading stages lie inside racks, (4), by ascending number of them."""
    pp, dp = problem.candidate.pp, problem.candidate.pipelines
    slots = _by_rack(problem, dp)
    step = -(-pp // MOST_CONFINED)
    return [_stagewise(problem, slots, count) for count in range(step, pp, step)] if len(slots) > 0 else []


def _with_room(problem: PlacementProblem, size: int) -> list[Ints]:
    """Sites by position where the first stages lie inside nodes of ``size`` slots and the last share the rest, (5)."""
    pp, dp, each = problem.candidate.pp, problem.candidate.pipelines, size // problem.candidate.pipelines
    nodes = len(problem.slots) // size
    inside = min(each * nodes, pp)
    node_of = np.empty((pp, dp), dtype=np.int64)
    node_of[:inside] = np.arange(inside)[:, None] // each
    left = size - np.bincount(node_of[:inside].ravel(), minlength=nodes)
    node_of[inside:] = np.repeat(np.arange(nodes), left)[: (pp - inside) * dp].reshape(-1, dp)
    return [_on_nodes(problem, node_of.T.ravel())]


def _packed(problem: PlacementProblem, size: int) -> Iterator[Ints]:
    """Sites by position of packings with the earliest last reduction for so many hops, (6), that are found."""
    pp, dp, nodes = problem.candidate.pp, problem.candidate.pipelines, len(problem.slots) // size
    if problem.ends is None or dp > MOST_REPLICAS or pp > MOST_STAGES:
        return
    kinds = kinds_of(dp, nodes) if dp <= MOST_BLOCKS else [kind for kind in _kinds(dp) if len(kind) <= nodes]
    backward = problem.ends.backward_seconds.min(axis=1)
    late = np.array([_reductions(problem, size, kind) for kind in kinds]).T - (backward.cumsum() - backward)[:, None]
    ends, packing, steps, hops = (
        np.unique(late[late >= late.min(axis=1).max()]),
        Packing(dp, size, nodes),
        MOST_PLACED,
        pp - 1,
    )
    # From early ends on, which are soon refuted: those in between take the most steps.
    for end in ends.tolist():
        allowed = [[kinds[k] for k in np.flatnonzero(line <= end)] for line in late]
        while hops >= 0 and steps > 0:
            stages = packing.of(allowed, hops, min(steps, MOST_STEPS))
            steps -= min(steps, MOST_STEPS) - packing.steps
            if stages is None:
                break
            node_of = _in_place(stages, dp)
            yield _on_nodes(problem, node_of.T.ravel())
            hops = min(hops, -(-int(np.count_nonzero(np.diff(node_of, axis=0))) // dp)) - 1


def _in_place(stages: list[Stage], dp: int) -> Ints:
    """Node of every pipeline's block of every stage (pp, dp): those with the most hops so far stay where they can."""
    node_of, hops = np.zeros((len(stages), dp), dtype=np.int64), np.zeros(dp, dtype=np.int64)
    for x, stage in enumerate(stages):
        left, moving = dict(stage), list[int]()
        for z in np.argsort(-hops, kind="stable").tolist():
            node = int(node_of[x - 1, z])
            if x and left.get(node, 0):
                node_of[x, z], left[node] = node, left[node] - 1
            else:
                moving.append(z)
        node_of[x, moving] = [node for node, part in left.items() for _ in range(part)]
        hops[moving] += 1
    return node_of


def _kinds(members: int) -> list[Kind]:
    """Kinds of stages of many blocks: one or two parts, and any number of equal ones."""
    kinds = [(members,), *((members - few, few) for few in range(1, members // 2 + 1))]
    return kinds + [(members // n,) * n for n in range(4, members + 1) if members % n == 0]


def _reductions(problem: PlacementProblem, size: int, kind: tuple[int, ...]) -> Floats:
    """Seconds of the reductions of every stage (pp,) that has such parts on nodes of so many slots."""
    slots = np.concatenate([np.arange(part) + size * node for node, part in enumerate(kind)])
    # Nodes are equal and have their slots in a row.
    devices = slots[:, None] * problem.candidate.width + np.arange(problem.candidate.width)
    stages = np.broadcast_to(devices, (problem.candidate.pp, *devices.shape))
    return reduction_seconds(problem.problem, problem.strategy, stages)


def _by_rack(problem: PlacementProblem, dp: int) -> Ints:
    """Slots rack by rack; none where racks differ in size, hold no whole stage, or are one."""
    rack_of = problem.links.rate.blocks.of[problem.slots[:, 0]]
    _, sizes = np.unique(rack_of, return_counts=True)
    if len(sizes) == 1 or len(set(sizes.tolist())) > 1 or sizes[0] % dp:
        return problem.slots[:0]
    return problem.slots[np.argsort(rack_of, kind="stable")]


def _stagewise(problem: PlacementProblem, slots: Ints, count: int) -> Ints:
    """Sites by position: all replicas of each of the first stages in a row, then what is left of each pipeline."""
    number = np.arange(len(slots)).reshape(-1, problem.candidate.pp)
    positions = np.zeros_like(slots)
    positions[np.concatenate([number[:, :count].T.ravel(), number[:, count:].ravel()])] = slots
    return positions


def _chunked(pp: int, dp: int, g: int) -> list[int]:
    """Positions in the order in which they take slots: g replicas at a time, stage by stage."""
    return [z * pp + x for low in range(0, dp, g) for x in range(pp) for z in range(low, min(low + g, dp))]


def _filled(problem: PlacementProblem, order: list[int], patterns: tuple[int, ...]) -> Ints:
    """Sites by position: slots are taken in order, those of the slow class by the stages that want it."""
    slow = _slow_slots(problem)
    queues = {0: problem.slots[~slow].tolist()[::-1], 1: problem.slots[slow].tolist()[::-1]}
    mixed = sum(patterns[position % problem.candidate.pp] == 2 for position in order)
    spare = len(queues[1]) - sum(patterns[position % problem.candidate.pp] == 1 for position in order)
    positions = np.zeros((len(order), problem.ranks), dtype=np.int64)
    for position in order:
        wanted = patterns[position % problem.candidate.pp]
        if wanted == 2:
            # Mixed stages share what the slow stages leave, evenly over their replicas.
            wanted = 1 if spare * 2 >= mixed and spare > 0 else 0
            mixed, spare = mixed - 1, spare - wanted
        queue = queues[wanted] or queues[1 - wanted]
        positions[position] = queue.pop()
    return positions


def _slow_slots(problem: PlacementProblem) -> Flags:
    """Slots on the device type that is slowest on the whole model; none where there is one type."""
    types = problem.problem.type_of_node[problem.links.node_of_site[problem.slots[:, 0]]]
    several = len(problem.problem.device_types) > 1
    return np.asarray((types == slowest_type(problem.problem, problem.candidate)) & several)


def _serial(problem: PlacementProblem, size: int, g: int, *, shared_last: bool) -> Ints:
    """Sites by position where g replicas share the node of their first stages and the others follow in order, (2)."""
    pp, dp = problem.candidate.pp, problem.candidate.pipelines
    first = min(size // g, pp)
    node_of = np.full(pp * dp, -1)
    node_of.reshape(dp, pp)[:, :first] = np.arange(dp)[:, None] // g
    left = size - np.bincount(node_of[node_of >= 0], minlength=len(problem.slots) // size)
    # With whole nodes first, what is left on shared ones ends up with the last pipelines.
    nodes = np.argsort((left == size) != shared_last, kind="stable")
    node_of[node_of < 0] = np.repeat(nodes, left[nodes])
    return _on_nodes(problem, node_of)


def _on_nodes(problem: PlacementProblem, node_of: Ints) -> Ints:
    """Sites by position, where each is on a node (pp dp,) that has as many slots."""
    positions = np.zeros((len(node_of), problem.ranks), dtype=np.int64)
    positions[np.argsort(node_of, kind="stable")] = problem.slots
    return positions
