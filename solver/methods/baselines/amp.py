r"""
AMP: every strategy by its own cost model, divisions by its dynamic program, dominoes, and trials of the best.

(1) For all degrees and micro-batches: Megatron's placement, the layers by its dynamic program, and the cost of
    equation 4, which is the evaluator's latency model ``amp`` (algorithm 1).
(2) From the cheapest of them a random walk over degrees, micro-batches and tilings by dominoes, which accepts a dearer
    neighbour with probability :math:`e^{(cost - next) / t}` while t falls, relative to the cost; every accepted
    strategy joins the others (algorithm 2).
(3) The ``TRIALS`` cheapest strategies run, and the quickest run wins. Here a run is the evaluator of the problem,
    memory included: AMP has no memory model, and runs that do not fit end. Where none of them fits the next ones run.

Recompute is one kind for all stages, and each kind a strategy of its own. Layers cost what they do on the devices of
their stage, with the traffic of the best tensor group, as AMP's profiles have it.

Placements are tilings of a mesh by dominoes, one a stage (section 6.3). The mesh has the devices of a node below
each other and the nodes side by side. A domino holds the tp dp ranks of a stage: devices above each other in it form
tensor groups, those side by side replicas. It lies flat, tp high and dp wide, or stands, as many replicas above each
other as a node has room for. The mesh is cut into bands of whole nodes, each tiled by dominoes of one kind; the kind of
each band and the order of the bands are drawn.

References
----------
D. Li et al., AMP: automatically finding model parallel strategies with heterogeneity awareness, NeurIPS 2022.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.gradient_reductions import seconds_of_best
from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.branch_and_bound.progress import Listener
from taut.solver.layer_division.known_devices import divide
from taut.solver.methods.baselines.rules import configurations, plain_candidates, tried
from taut.solver.methods.named import Outcome
from taut.solver.result import Incumbent, Limits
from taut.solver.simple_plans import priced, rank_order


def sample_domino(
    rng: np.random.Generator, gpus_per_node: int, nodes: int, degrees: tuple[int, int, int]
) -> Ints | None:
    """Device of every worker (pp, dp, tp) of a random tiling; None where no domino fits the mesh."""
    pp, tp, dp = degrees
    shapes = _shapes(gpus_per_node, nodes, tp, dp)
    if not shapes:
        return None
    free, stages = rng.permutation(nodes).tolist(), []
    while free:
        fitting = [(above, wide) for above, wide in shapes if wide <= len(free)]
        # What is left of the mesh must hold whole dominoes of some kind.
        fitting = [shape for shape in fitting if (len(free) - shape[1]) % min(wide for _, wide in shapes) == 0]
        if not fitting:
            return None
        above, wide = fitting[rng.integers(len(fitting))]
        columns, free = sorted(free[:wide]), free[wide:]
        for row in range(0, gpus_per_node, tp * above):
            starts = [node * gpus_per_node + row + tp * z for node in columns for z in range(above)]
            stages.append(np.array(starts)[:, None] + np.arange(tp))
    return np.array(stages) if len(stages) == pp else None


def _shapes(gpus_per_node: int, nodes: int, tp: int, dp: int) -> list[tuple[int, int]]:
    """Replicas above each other and nodes side by side of a domino that lies flat, and of one that stands."""
    if gpus_per_node % tp:
        return []
    room = gpus_per_node // tp
    standing = max(above for above in range(1, min(room, dp) + 1) if room % above == 0 and dp % above == 0)
    return [(above, dp // above) for above in sorted({1, standing}) if dp // above <= nodes]


TRIALS = 10
"""Strategies that AMP's experiments launch."""
STEPS = 200
"""Of the random walk (2); the public code makes 50."""
HOT = 0.1
"""First temperature as a share of the cost; it falls to nothing in equal steps."""


class Ranked(NamedTuple):
    """A strategy on devices with its cost in AMP's model."""

    cost: float
    strategy: Strategy
    devices: Ints


def amp(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> Outcome:
    """Plan by (1) to (3)."""
    chosen = plain_candidates(problem)
    return tried("amp", amp_trials(problem, limits.seed), len(chosen), limits, progress)


def dominoes(problem: PlanningProblem, limits: Limits) -> Outcome:
    """Plan by (2) and (3) alone: the walk begins at the first configuration, and only what it accepts is tried."""
    count = len(plain_candidates(problem))
    return tried("dominoes", amp_trials(problem, limits.seed, walk_alone=True), count, limits)


def amp_trials(problem: PlanningProblem, seed: int, *, walk_alone: bool = False) -> Iterator[Incumbent | None]:
    """The trials of (3), None for one that does not fit."""
    chosen, record = plain_candidates(problem), amp_strategies(problem)
    if record:
        start = record[0] if walk_alone else min(record, key=lambda ranked: ranked.cost)
        walked = list(_walk(problem, chosen, start, seed))
        record = walked if walk_alone else record + walked
    fits = False
    for number, ranked in enumerate(sorted(record, key=lambda ranked: ranked.cost)):
        if fits and number >= TRIALS:
            return
        # What the paper leaves open, sharded states and sequence parallelism, is tried in the run's favour.
        alike = [each for each in chosen if _same(each, ranked.strategy.candidate)]
        for each in alike:
            plan = priced(problem, replace(ranked.strategy, candidate=each), ranked.devices)
            fits = fits or plan is not None
            yield plan


def amp_strategies(problem: PlanningProblem) -> list[Ranked]:
    """The strategies of all configurations with their costs in seconds, (1)."""
    chosen = configurations(plain_candidates(problem))
    return [ranked for _, group in chosen for ranked in _strategies(problem, group[0])]


def _same(one: Candidate, other: Candidate) -> bool:
    """Whether two candidates are one strategy of AMP's, which knows no sharded states, no sp and no empty ends."""
    names = "zero", "sequence_parallel", "empty_ends"
    return replace(one, **{name: getattr(other, name) for name in names}) == other


def _strategies(problem: PlanningProblem, candidate: Candidate, devices: Ints | None = None) -> Iterator[Ranked]:
    """A configuration's strategies, one for each recompute, with their costs, (1)."""
    devices = rank_order(candidate) if devices is None else devices
    if not _whole(problem, devices):
        return
    for name in problem.recompute_of(replace(candidate, uniform_recompute="")):
        uniform = name if candidate.uniform_recompute else ""
        each, r = replace(candidate, uniform_recompute=uniform), RECOMPUTE.index(name)
        division = Division.of_ends(_ends(problem, each, devices, r), np.full(each.pp, r))
        strategy = Strategy(candidate=each, division=division)
        yield Ranked(_cost(problem, strategy, devices), strategy, devices)


def _whole(problem: PlanningProblem, devices: Ints) -> bool:
    """Whether every tensor group lies in one node."""
    nodes = problem.links.node_of[devices]
    return bool((nodes == nodes[..., :1]).all())


def _cost(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> float:
    """Seconds by AMP's equation 4."""
    return float(step_time(problem.priced_by("amp"), strategy, devices).total)


def _ends(problem: PlanningProblem, candidate: Candidate, devices: Ints, recompute: int) -> Ints:
    """Ends of the stages on their devices."""
    tables, links = problem.tables(candidate), problem.links
    type_of = problem.type_of_node[links.node_of[devices]].reshape(candidate.pp, -1)
    every = (tables.seconds + seconds_of_best(problem, candidate).both)[:, recompute]
    seconds = np.stack([every[np.unique(types)].max(axis=0) for types in type_of])
    sites = links.site_of[devices]
    inverse = 1.0 / links.pipeline_rate(candidate.width)
    slowest = _between(inverse[sites[:-1], sites[1:]], candidate.pp)
    latency = _between(links.latency[sites[:-1], sites[1:]], candidate.pp)
    transfers = latency[:, None] + slowest[:, None] * tables.message[None, :]
    ends = divide(seconds, transfers, candidate.num_micro_batches)
    assert ends is not None
    return ends


def _between(figures: Floats, pp: int) -> Floats:
    """The largest figure between every stage and the next, (pp - 1,)."""
    return np.asarray(figures).reshape(pp - 1, -1).max(axis=1) if pp > 1 else np.zeros(0)


def _walk(problem: PlanningProblem, chosen: list[Candidate], start: Ranked, seed: int) -> Iterator[Ranked]:
    """The strategies that the random walk accepts, (2)."""
    rng, at, per_node = np.random.default_rng(seed), start, np.unique(problem.links.gpus_per_node)
    if len(per_node) > 1:
        return
    for step in range(STEPS):
        here = at.strategy.candidate
        kept = "dp" if rng.random() < 0.5 else "tp"
        near = [each for each in chosen if getattr(each, kept) == getattr(here, kept)]
        candidate = near[rng.integers(len(near))]
        degrees = candidate.pp, candidate.tp, candidate.dp
        devices = sample_domino(rng, int(per_node[0]), problem.links.num_nodes, degrees)
        if devices is None:
            continue
        temperature = HOT * start.cost * (1.0 - step / STEPS)
        for ranked in _strategies(problem, candidate, devices):
            same = ranked.strategy.recompute == at.strategy.recompute[:1] * candidate.pp
            if same and rng.random() < np.exp(min(at.cost - ranked.cost, 0.0) / temperature):
                at = ranked
                yield ranked
