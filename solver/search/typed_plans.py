r"""
Plans on devices of several types: stages on devices of one type, layers by the speed of each stage's own devices.

The bound ``partition`` knows two classes of device and lets a pipeline take the fastest replica of every stage, so its
divisions may place badly. Here the devices come first:

(1) devices stand type by type;
(2) given devices, a stage takes as long as its slowest type does, with the cheapest recompute that fits every type it
    is on, and the layers are divided exactly (``taut.solver.layer_division.known_devices``);
(3) annealing moves blocks, (2) divides again for where they are now, and so on for ``ROUNDS`` rounds.

Where one recompute holds for all stages the candidate states it.

A layout says which worker is where, one type of device next to the other. Sets: stages x =
0..pp-1, replicas d = 0..dp-1, blocks of devices in rank order, types of device.

(4) By stage: blocks of one type in a row before, between or after the stages of the others, which stand in any order: a
    slow type goes well where neither embedding nor head is.
(5) By replica: the F blocks of one type are the first or the last F / R stages of R replicas, for every R that divides
    F, and all else is on the other types. The other dp - R replicas then never cross between types, and where links
    between types are slow few pipelines wait for them. Blocks go to a replica's stages in runs of s, so that a node of
    g blocks holds s stages of g / s replicas: long runs save hops between nodes, short ones share its cards in rings.
    One s holds for the stages on the one type, another for all else.

Where replicas divide the batch unevenly, each is on one type of device:

(6) The devices of a type make whole pipelines, in the order of the nodes: a node of g blocks holds s stages of g / s
    replicas, for every s that divides g, as in (5).
(7) The layers are divided as for the pipelines of each type in the bound (``taut.solver.bounds.pipelines_by_type``),
    and the micro-batches for the division and the devices.
(8) From the best of these, as long as the step gets shorter, a boundary is moved by a layer, the recompute of a stage
    is another one, or two blocks of one type change places.

Given division and devices, replica z with m micro-batches keeps the step waiting for

(9) :math:`T_z(m) = \max_x (end[x, z] + R_x)`, and what follows its holders of a tied embedding: its pipeline, which
    rises with m, and what comes after that for all m alike (``taut.formulations.latency`` (3) to (5)).
(10) The step is the least for :math:`m_z \ge 1, \sum_z m_z = dp\,m` with the least :math:`\max_z T_z(m_z)`. As each
    :math:`T_z` rises, it is found by one micro-batch after the other for the replica that would end first with it.

``T_pipe`` is linear in m below pp and above it, where the trips through the pipeline are paid more than once, so three
prices give all others.

References
----------
Jia et al. (2022), Whale: section 4.1, the batch of replicas on different devices by their speed. Federgruen and
Groenevelt (1986), The greedy procedure for resource allocation problems: (10).
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice, pairwise, permutations, product
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.degrees import divisors
from taut.formulations.divisions import families_of, stated_ranges
from taut.formulations.gradient_reductions import end_of_step, seconds_within
from taut.formulations.latency import closed_pipelines, step_time
from taut.formulations.placement import found_placement, placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.formulations.tables.memory import stage_memory
from taut.solver.branch_and_bound.stop import Stopping, never
from taut.solver.layer_division.known_devices import divide
from taut.solver.placement.annealing.anneal import anneal_restarts
from taut.solver.result import Incumbent, Limits
from taut.solver.simple_plans import priced

BY_STAGE, BY_REPLICA = 36, 128
"""Layouts that are tried: all by stage of two types on 17 stages; by replica few divisions, some milliseconds each."""


def layouts(problem: PlanningProblem, candidate: Candidate) -> Iterator[Ints]:
    """Devices of all workers (pp, dp, block) by (4) and by (5), each layout once."""
    seen: set[bytes] = set()
    by_stage = islice(_by_stage(problem, candidate), BY_STAGE)
    for devices in chain(by_stage, islice(_by_replica(problem, candidate), BY_REPLICA)):
        if devices.tobytes() not in seen:
            seen.add(devices.tobytes())
            yield devices


def _by_stage(problem: PlanningProblem, candidate: Candidate) -> Iterator[Ints]:
    """Layouts (4)."""
    held, share = devices_of_types(problem), candidate.pipelines * candidate.width
    for kind in range(len(held)):
        for order in permutations(other for other in range(len(held)) if other != kind):
            others = np.concatenate([held[other] for other in order])
            for cut in range(0, len(others) + 1, share):
                every = np.concatenate([others[:cut], held[kind], others[cut:]])
                yield every.reshape(candidate.pp, candidate.pipelines, candidate.width)


def _by_replica(problem: PlanningProblem, candidate: Candidate) -> Iterator[Ints]:
    """Layouts (5), of few replicas with both types first."""
    held, blocks = devices_of_types(problem), max(int(problem.links.gpus_per_node.max()) // candidate.width, 1)
    for kind, own in enumerate(held):
        others = np.concatenate([held[other] for other in range(len(held)) if other != kind])
        number = len(own) // candidate.width
        fitting = [r for r in divisors(number) if r <= candidate.pipelines and number < r * candidate.pp]
        runs = [_Runs(a, b, blocks) for a, b in product(divisors(blocks)[::-1], repeat=2)]
        for mixed, run, last in product(fitting if len(own) % candidate.width == 0 else [], runs, (True, False)):
            yield _placed(candidate, np.concatenate([own, others]), (number // mixed, mixed), run, last=last)


class _Runs(NamedTuple):
    """Stages of a replica that a node holds, of those on the one type and of others, and blocks of a node."""

    own: int
    other: int
    blocks: int


def _placed(candidate: Candidate, devices: Ints, some: tuple[int, int], runs: _Runs, *, last: bool) -> Ints:
    """One layout (5) with some stages of some replicas on the one type, which comes first among the devices."""
    stages, mixed = some
    every, replicas = np.arange(candidate.pp), np.arange(candidate.pipelines)
    first, rest = (every[-stages:], every[:-stages]) if last else (every[:stages], every[stages:])
    places = [
        in_runs(first, replicas[:mixed], runs.own, runs.blocks),
        in_runs(every, replicas[mixed:], runs.other, runs.blocks),
        in_runs(rest, replicas[:mixed], runs.other, runs.blocks),
    ]
    found = np.empty((candidate.pp, candidate.pipelines, candidate.width), dtype=np.int64)
    x, d = np.concatenate(places).T
    found[x, d] = devices.reshape(-1, candidate.width)
    return found


def in_runs(stages: Ints, replicas: Ints, run: int, blocks: int) -> Ints:
    """Stage and replica of one block after the other, in runs of so many stages of blocks / run replicas."""
    together = blocks // run
    pairs = [
        (x, d)
        for group in range(0, len(replicas), together)
        for start in range(0, len(stages), run)
        for d in replicas[group : group + together].tolist()
        for x in stages[start : start + run].tolist()
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def devices_of_types(problem: PlanningProblem) -> list[Ints]:
    """Devices of every type in rank order."""
    type_of = problem.type_of_node[problem.links.node_of]
    return [np.flatnonzero(type_of == kind) for kind in range(len(problem.device_types))]


ROUNDS = 3
"""Of (3); later ones seldom change the division."""


def typed_plans(
    problem: PlanningProblem, candidate: Candidate, limits: Limits, stopping: Stopping = never
) -> Iterator[Incumbent]:
    """Plans of a candidate on several types by (1) to (3), the best of each step."""
    divided = _Divisions(problem, candidate)
    laid_out = (divided.plan(devices) for devices in layouts(problem, candidate))
    best = min((plan for plan in laid_out if plan is not None), key=lambda plan: plan.seconds, default=None)
    for _ in range(ROUNDS if best is not None else 0):
        assert best is not None
        yield best
        given = placement_problem(problem, best.strategy)
        start = found_placement(given, best.devices)
        runs = anneal_restarts(given, start, seed=limits.seed, workers=limits.workers, stopping=stopping)
        moved = priced(problem, best.strategy, given.devices(runs.positions))
        again = None if moved is None else divided.plan(moved.devices)
        better = [plan for plan in (moved, again) if plan is not None and plan.seconds < best.seconds]
        if not better:
            return
        best = min(better, key=lambda plan: plan.seconds)
        yield best


class _Divisions:
    """The layers of a candidate divided for the types of device that every stage is on, (2), each once."""

    def __init__(self, problem: PlanningProblem, candidate: Candidate) -> None:
        self._problem, self._candidate, self._memory = problem, candidate, stage_memory(problem, candidate)
        allowed = np.array([name in problem.recompute_of(candidate) for name in RECOMPUTE])
        seconds = problem.tables(candidate).seconds + seconds_within(problem, candidate).both
        # Of every range by type and recompute, infinite where it is not allowed, (types, recompute, L+1, L+1).
        self._seconds = np.where(allowed[None, :, None, None], seconds, np.inf)
        self._stated = stated_ranges(families_of(problem, candidate), seconds.shape[-1] - 1)
        self._known: dict[bytes, Division | None] = {}

    def plan(self, devices: Ints) -> Incumbent | None:
        """The plan with the layers divided for the devices; None where nothing fits or the devices break a rule."""
        kinds = self._problem.type_of_node[self._problem.links.node_of[devices]]
        of_stage = np.stack([(kinds == kind).any(axis=(1, 2)) for kind in range(len(self._problem.device_types))])
        key = of_stage.tobytes()
        if key not in self._known:
            self._known[key] = self._divided(of_stage)
        division = self._known[key]
        return (
            None
            if division is None
            else priced(self._problem, Strategy(candidate=self._candidate, division=division), devices)
        )

    def _divided(self, of_stage: Flags) -> Division | None:
        """The division for the types of every stage (types, pp)."""
        memory, chosen, recompute = self._memory, [], []
        for x, types in enumerate(of_stage.T):
            fits = memory.need(x) <= memory.budget[types].min()
            slowest = np.where(fits, self._seconds[types].max(axis=0), np.inf)
            recompute.append(slowest.argmin(axis=0))
            chosen.append(slowest.min(axis=0))
        transfers = np.zeros((len(chosen) - 1, self._seconds.shape[-1]))
        by_stage = np.stack(chosen) if self._stated is None else np.where(self._stated, np.stack(chosen), np.inf)
        ends = divide(by_stage, transfers, self._candidate.num_micro_batches)
        if ends is None:
            return None
        starts = np.concatenate([[0], ends[:-1]])
        kept = np.array([recompute[x][i, j] for x, (i, j) in enumerate(zip(starts, ends, strict=True))])
        return Division.of_ends(ends, kept)


def divide_batch(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> Strategy:
    """The strategy with the replicas' micro-batches that make its step shortest, (10), on devices (pp, dp, width)."""
    candidate = strategy.candidate
    at = {m: _seconds(problem, strategy, devices, m) for m in (1, candidate.pp, candidate.pp + 1)}
    first, knee, beyond = (at[m] for m in (1, candidate.pp, candidate.pp + 1))
    below, above = (knee - first) / max(candidate.pp - 1, 1), beyond - knee

    def seconds(z: int, m: int) -> float:
        more = max(m - candidate.pp, 0)
        return float(first[z] + (m - 1 - more) * below[z] + more * above[z])

    counts = [1] * candidate.dp
    heap = [(seconds(z, 2), z) for z in range(candidate.dp)]
    heapq.heapify(heap)
    for _ in range(candidate.dp * (candidate.num_micro_batches - 1)):
        z = heap[0][1]
        counts[z] += 1
        heapq.heapreplace(heap, (seconds(z, counts[z] + 1), z))
    return replace(strategy, micro_batches=tuple(counts))


def _seconds(problem: PlanningProblem, strategy: Strategy, devices: Ints, m: int) -> Floats:
    """T_z of every replica if all had so many micro-batches (dp,), (9)."""
    dp = strategy.candidate.dp
    given = replace(strategy, micro_batches=(m,) * dp)
    found = closed_pipelines(problem, given, devices)
    alone = np.where(np.eye(dp, dtype=bool)[:, None], found.ends, -np.inf)
    return end_of_step(problem, given, devices, alone, found.backward)


MOST_MOVES = 8
"""Rounds of (8): the divisions of (7) are of the best pipelines, so that few boundaries move."""
MOST_EXCHANGES, WORKERS = 128, 16_384
"""Exchanges of blocks that a round prices at most, and workers in all of them: some milliseconds."""


def uneven_plans(
    problem: PlanningProblem, candidate: Candidate, divided: Iterable[Division], seed: int = 0
) -> Iterator[Incumbent]:
    """Plans of an uneven batch by (6) to (8), each better than the one before, from divisions that fit every type."""
    rng, placed = np.random.default_rng(seed), list(_layouts(problem, candidate))
    tried = [(division, devices) for division in dict.fromkeys(divided) for devices in placed]
    best = _best(problem, candidate, tried)
    for _ in range(MOST_MOVES):
        if best is None:
            return
        yield best
        moved = [(division, best.devices) for division in _moved(problem, best.strategy)]
        moved.append((best.strategy.division, _exchanged(problem, best, rng)))
        found = _best(problem, candidate, moved)
        best = found if found is not None and found.seconds < best.seconds else None


def _best(problem: PlanningProblem, candidate: Candidate, tried: list[tuple[Division, Ints]]) -> Incumbent | None:
    """The best plan of some divisions on some devices."""
    plans = (_plan(problem, candidate, division, devices) for division, devices in tried)
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.seconds, default=None)


def _plan(problem: PlanningProblem, candidate: Candidate, division: Division, devices: Ints) -> Incumbent | None:
    """The plan with the best division of the batch, (7); None where it breaks a rule."""
    strategy = divide_batch(problem, Strategy(candidate=candidate, division=division), devices)
    return priced(problem, strategy, devices)


def _layouts(problem: PlanningProblem, candidate: Candidate) -> Iterator[Ints]:
    """Devices of all workers (pp, dp, width) by (6)."""
    blocks, width = max(int(problem.links.gpus_per_node.max()) // candidate.width, 1), candidate.width
    for run in divisors(blocks)[::-1]:
        found, first = np.empty((candidate.pp, candidate.dp, width), dtype=np.int64), 0
        for held in devices_of_types(problem):
            replicas = np.arange(first, first + len(held) // (candidate.pp * width))
            x, z = in_runs(np.arange(candidate.pp), replicas, run, blocks).T
            found[x, z] = held.reshape(-1, width)
            first += len(replicas)
        yield found


def _exchanged(problem: PlanningProblem, plan: Incumbent, rng: np.random.Generator) -> Ints:
    """The devices with two blocks of one type exchanged, the best of some such pairs, (8)."""
    blocks = plan.devices.reshape(-1, plan.devices.shape[-1])
    types = problem.type_of_node[problem.links.node_of[blocks[:, 0]]]
    pairs = np.argwhere(np.triu(types[:, None] == types, 1))
    pairs = rng.permutation(pairs)[: max(min(MOST_EXCHANGES, WORKERS // plan.devices.size), 1)]
    if not len(pairs):
        return plan.devices
    order = np.tile(np.arange(len(blocks)), (len(pairs), 1))
    np.put_along_axis(order, pairs, pairs[:, ::-1], axis=1)
    moved = blocks[order].reshape(-1, *plan.devices.shape)
    return np.asarray(moved[step_time(problem, plan.strategy, moved).total.argmin()])


def _moved(problem: PlanningProblem, strategy: Strategy) -> Iterator[Division]:
    """The division with one boundary moved by a layer, or the recompute of one stage changed, (8)."""
    division, kinds = strategy.division, problem.recompute_of(strategy.candidate)
    ends = division.ends.tolist()
    for stage, (kept, kind) in product(range(len(ends)), permutations(kinds, 2)):
        if division.recompute[stage] == kept:
            changed = (*division.recompute[:stage], kind, *division.recompute[stage + 1 :])
            yield replace(division, recompute=changed)
    for cut in range(len(ends) - 1):
        for step in (-1, 1):
            near = [*ends[:cut], ends[cut] + step, *ends[cut + 1 :]]
            if all(a < b for a, b in pairwise([0, *near])):
                yield replace(division, stages=tuple(pairwise([0, *near])))
