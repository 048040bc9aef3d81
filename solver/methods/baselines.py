r"""
Other planners, written from their papers, with the prices and rules of the problem at hand.

Short procedures come first, then AMP and HETHUB. What a paper leaves open (recompute, ZeRO, sequence parallelism) is
decided by the evaluator in its favour: the quickest that fits. None yields a bound.

Megatron-LM's rule is the least model parallelism that fits, tensor parallelism in the node first, then replicas:

(1) Tensor parallelism "should generally be used up to degree g when using g-GPU servers, and then pipeline parallelism"
    (section 3.2, takeaway 1): of pairs with one product the one with the largest tp within the node;
(2) "a total model-parallel size of M = t p should be used so that the model's parameters and intermediate metadata fit
    in GPU memory; data parallelism can be used to scale up training" (takeaway 2): the least product that fits;
(3) the micro-batch is the quickest one (takeaway 3);
(4) even stages, and workers in rank order.

Fully sharded data parallelism is alone:

(5) One stage, no tensor or context ranks, and weights, gradients and optimizer states sharded over the replicas:
    ZeRO-3;
(6) all replicas share one copy, or groups of them where the space has hybrid sharding;
(7) the quickest micro-batch, recompute and group that fit.

Varuna chooses pipelines and replicas alone, with everything recomputed:

(8) No tensor parallelism: on commodity networks it is the traffic that hurts (section 2);
(9) every activation is recomputed in full (section 3.2), which is what makes deep pipelines of large models fit;
(10) pipelines of every depth P with D = devices / P replicas and every micro-batch are tried, and the quickest wins, as
    its simulator decides (section 4.4);
(11) even stages at its cut-points, and workers in rank order.

Its schedule, which fills bubbles as they come, is priced as the quicker of 1F1B and GPipe.

Pipette's procedure: every configuration that fits, each with its workers dedicated to devices by annealing.

For all (pp, tp, dp) with pp tp dp devices and every micro-batch that divides the mini-batch (algorithm 1):

(12) even stages; a configuration that does not fit the memory is left out (line 7);
(13) simulated annealing over the mapping of workers to devices, by the estimated latency (lines 9 to 15);
(14) the least latency of all wins.

The latency is the evaluator's, which under the latency model ``pipette`` is the paper's; the moves are those of
``taut.solver.placement.annealing.anneal``, the paper's three among them. The paper gives every configuration 10 s; here
each has ``MOVES`` moves, so that the same seed gives the same plan.

Random search says what chance finds in as many trials:

(15) A candidate, each as likely; cuts between the layers, each set of them as likely; one recompute for all stages;
    blocks on slots in an order that is drawn, each as likely.

``SAMPLES`` plans are drawn unless a work limit says how many; the same seed draws the same plans.

AMP: every strategy by its own cost model, divisions by its dynamic program, dominoes, and trials of the best.

(16) For all degrees and micro-batches: Megatron's placement, the layers by its dynamic program, and the cost of
    equation 4, which is the evaluator's latency model ``amp`` (algorithm 1).
(17) From the cheapest of them a random walk over degrees, micro-batches and tilings by dominoes, which accepts a dearer
    neighbour with probability :math:`e^{(cost - next) / t}` while t falls, relative to the cost; every accepted
    strategy joins the others (algorithm 2).
(18) The ``TRIALS`` cheapest strategies run, and the quickest run wins. Here a run is the evaluator of the problem,
    memory included: AMP has no memory model, and runs that do not fit end. Where none of them fits the next ones run.

Recompute is one kind for all stages, and each kind a strategy of its own. Layers cost what they do on the devices of
their stage, with the traffic of the best tensor group, as AMP's profiles have it.

Placements are tilings of a mesh by dominoes, one a stage (section 6.3). The mesh has the devices of a node below
each other and the nodes side by side. A domino holds the tp dp ranks of a stage: devices above each other in it form
tensor groups, those side by side replicas. It lies flat, tp high and dp wide, or stands, as many replicas above each
other as a node has room for. The mesh is cut into bands of whole nodes, each tiled by dominoes of one kind; the kind of
each band and the order of the bands are drawn.

HETHUB's search: a tree of three levels, with stages on devices of one type and layers by their speed.

(19) The first level cuts the model into stages across the types of device, the second shares a stage's nodes between
    replicas, the third splits layers over tensor ranks inside a node. So each of pp stages takes dp tp devices of one
    type, and all types have whole stages.
(20) Load balance: a stage has layers in proportion to the speed of its devices on the whole model, rounded so that the
    slowest stage is as quick as may be.
(21) Stage order: the types stand along the pipeline in every order, and the quickest is taken.
(22) A depth-first walk prices every leaf, and the least predicted time wins.

The predictor is the evaluator. Where there is one type, it is an even pipeline with every degree tried.

References
----------
D. Narayanan et al., Efficient large-scale language model training on GPU clusters using Megatron-LM, SC 2021.
Y. Zhao et al., PyTorch FSDP: experiences on scaling fully sharded data parallel, VLDB 2023. S. Rajbhandari et al.,
ZeRO: memory optimizations toward training trillion parameter models, SC 2020.
S. Athlur et al., Varuna: scalable, low-cost training of massive deep learning models, EuroSys 2022.
J. Yim et al., Pipette: automatic fine-grained large language model training configurator for real-world clusters,
DATE 2024.
D. Li et al., AMP: automatically finding model parallel strategies with heterogeneity awareness, NeurIPS 2022.
S. Xu et al., HETHUB: a distributed training system with heterogeneous cluster for large-scale models, arXiv 2405.16256,
section 3.3.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby, permutations
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.gradient_reductions import seconds_of_best
from taut.formulations.latency import step_time
from taut.formulations.placement import placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.branch_and_bound.stop import Listener, Progress, Stop
from taut.solver.layer_division.known_devices import divide
from taut.solver.methods.named import Outcome
from taut.solver.placement.annealing.anneal import MAX_LOOK_UPS, anneal, best_start, move_cost
from taut.solver.result import Incumbent, Limits
from taut.solver.signals import cut_short
from taut.solver.simple_plans import priced, rank_order, simple_plan


class Configuration(NamedTuple):
    """Degrees and micro-batch: what the papers vary."""

    pp: int
    tp: int
    dp: int
    micro_batch: int


def plain_candidates(problem: PlanningProblem) -> list[Candidate]:
    """Candidates that the papers know: 1F1B or GPipe, without context ranks and without sharded weights."""
    return [each for each in problem.closed_forms if each.of_tensor_groups and each.zero <= 1]


def configurations(candidates: Iterable[Candidate]) -> Iterator[tuple[Configuration, list[Candidate]]]:
    """Candidates by configuration, in ascending order."""
    for key, group in groupby(sorted(candidates, key=lambda each: (configuration(each), each)), key=configuration):
        yield key, list(group)


def configuration(candidate: Candidate) -> Configuration:
    """Degrees and micro-batch of a candidate."""
    return Configuration(candidate.pp, candidate.tp, candidate.dp, candidate.micro_batch)


def quickest(plans: Iterable[Incumbent | None]) -> Incumbent | None:
    """The plan of least seconds, the first of equal ones; None where there is none."""
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.seconds, default=None)


def tried(
    name: str,
    plans: Iterator[Incumbent | None],
    candidates: int,
    limits: Limits,
    progress: Listener | None = None,
    *,
    enough: Callable[[Incumbent], bool] = lambda plan: False,
) -> Outcome:
    """The quickest of plans, None for one that breaks a rule, until the time limit or a plan that is ``enough``."""
    best, is_cut_off = None, True
    with Stop(limits) as stop, cut_short():
        for plan in plans:
            taken = stop.seconds
            if plan is not None and (best is None or plan.seconds < best.seconds):
                best = plan
                if progress is not None:
                    progress(Progress(taken, best.seconds, -math.inf, f"{name}: {plan.strategy.candidate}"))
            if best is not None and enough(best):
                is_cut_off = False
                break
            if stop():
                break
        else:
            is_cut_off = False
    return Outcome(method=name, incumbent=best, candidates=candidates, wall_s=stop.seconds, is_cut_off=is_cut_off)


SAMPLES = 1000


def random_search(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> Outcome:
    """Plan by (15)."""
    chosen = problem.closed_forms
    return tried("random", _drawn(problem, chosen, limits), len(chosen), limits, progress)


def _drawn(problem: PlanningProblem, candidates: list[Candidate], limits: Limits) -> Iterator[Incumbent | None]:
    """The plans that are drawn."""
    rng = np.random.default_rng(limits.seed)
    for _ in range((limits.work_limit or SAMPLES) if candidates else 0):
        strategy = _strategy(problem, candidates[rng.integers(len(candidates))], rng)
        given = placement_problem(problem, strategy)
        yield priced(problem, strategy, given.devices(given.slots[rng.permutation(len(given.slots))]))


def _strategy(problem: PlanningProblem, candidate: Candidate, rng: np.random.Generator) -> Strategy:
    layers, names = len(problem.model.blocks), problem.recompute_of(candidate)
    cuts = np.sort(rng.choice(np.arange(1, layers), candidate.pp - 1, replace=False))
    recompute = RECOMPUTE.index(names[rng.integers(len(names))])
    ends = np.append(cuts, layers)
    return Strategy(candidate=candidate, division=Division.of_ends(ends, np.full(candidate.pp, recompute)))


def megatron(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> Outcome:
    """Plan by (1) to (4)."""
    count = len(plain_candidates(problem))
    return tried("megatron", _by_degrees(problem), count, limits, progress, enough=lambda plan: True)


def _by_degrees(problem: PlanningProblem) -> Iterator[Incumbent | None]:
    """The quickest plan of every pair of degrees, in the order of (1) and (2)."""
    within = [each for each in plain_candidates(problem) if each.tp <= problem.links.gpus_per_node.max()]
    for _, _, pp, tp in sorted({(each.tp * each.pp, -each.tp, each.pp, each.tp) for each in within}):
        yield quickest(simple_plan(problem, each) for each in within if (each.pp, each.tp) == (pp, tp))


def fsdp(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> Outcome:
    """Plan by (5) to (7)."""
    chosen = [each for each in problem.candidates if _is_sharded(each)]
    return tried("fsdp", (simple_plan(problem, each) for each in chosen), len(chosen), limits, progress)


def _is_sharded(candidate: Candidate) -> bool:
    """Whether a candidate is (5); a single replica has nothing to share."""
    alone = candidate.pp == candidate.width == 1
    return alone and (candidate.zero == 3 or candidate.dp == 1)


def varuna(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> Outcome:
    """Plan by (8) to (11)."""
    chosen = [each for each in plain_candidates(problem) if each.tp == 1]
    plans = (simple_plan(problem, each, recompute="full") for each in chosen)
    return tried("varuna", plans, len(chosen), limits, progress)


MOVES = 20_000
"""Of annealing for a configuration: about what the paper's program makes in half a second."""


def pipette(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> Outcome:
    """Plan by (12) to (14)."""
    count = len(plain_candidates(problem))
    return tried("pipette", _dedicated(problem, limits), count, limits, progress)


def _dedicated(problem: PlanningProblem, limits: Limits) -> Iterator[Incumbent | None]:
    """The plan of every configuration before and after (13)."""
    for _, group in configurations(plain_candidates(problem)):
        plan = quickest(simple_plan(problem, each) for each in group)
        yield plan
        if plan is not None and plan.strategy.candidate.pp > 1:
            given = placement_problem(problem, plan.strategy)
            start = best_start(given, (0,) * given.candidate.pp)
            moves = min(MOVES, MAX_LOOK_UPS // move_cost(given))
            found = anneal(given, start, moves=moves, seed=limits.seed)
            yield priced(problem, plan.strategy, given.devices(found.positions))


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
"""Of the random walk (17); the public code makes 50."""
HOT = 0.1
"""First temperature as a share of the cost; it falls to nothing in equal steps."""


class Ranked(NamedTuple):
    """A strategy on devices with its cost in AMP's model."""

    cost: float
    strategy: Strategy
    devices: Ints


def amp(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> Outcome:
    """Plan by (16) to (18)."""
    chosen = plain_candidates(problem)
    return tried("amp", amp_trials(problem, limits.seed), len(chosen), limits, progress)


def dominoes(problem: PlanningProblem, limits: Limits) -> Outcome:
    """Plan by (17) and (18) alone: the walk begins at the first configuration, and only what it accepts is tried."""
    count = len(plain_candidates(problem))
    return tried("dominoes", amp_trials(problem, limits.seed, walk_alone=True), count, limits)


def amp_trials(problem: PlanningProblem, seed: int, *, walk_alone: bool = False) -> Iterator[Incumbent | None]:
    """The trials of (18), None for one that does not fit."""
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
    """The strategies of all configurations with their costs in seconds, (16)."""
    chosen = configurations(plain_candidates(problem))
    return [ranked for _, group in chosen for ranked in _strategies(problem, group[0])]


def _same(one: Candidate, other: Candidate) -> bool:
    """Whether two candidates are one strategy of AMP's, which knows no sharded states, no sp and no empty ends."""
    names = "zero", "sequence_parallel", "empty_ends"
    return replace(one, **{name: getattr(other, name) for name in names}) == other


def _strategies(problem: PlanningProblem, candidate: Candidate, devices: Ints | None = None) -> Iterator[Ranked]:
    """A configuration's strategies, one for each recompute, with their costs, (16)."""
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
    """The strategies that the random walk accepts, (17)."""
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


def hethub(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> Outcome:
    """Plan by (19) to (22)."""
    within = considered(problem)
    plans = (quickest(arranged(problem, each)) for each in within)
    return tried("hethub", plans, len(within), limits, progress)


def considered(problem: PlanningProblem) -> list[Candidate]:
    """Candidates of the tree, (19)."""
    return [each for each in plain_candidates(problem) if each.tp <= problem.links.gpus_per_node.min()]


def arranged(problem: PlanningProblem, candidate: Candidate, *, even: bool = False) -> Iterator[Incumbent | None]:
    """Plans by order of types and recompute, with ``even`` stages or balanced ones; None where one breaks a rule."""
    type_of = problem.type_of_node[problem.links.node_of]
    held = [np.flatnonzero(type_of == kind) for kind in range(len(problem.device_types))]
    share = candidate.dp * candidate.tp
    if any(len(devices) % share for devices in held):
        return
    for order in permutations(range(len(held))):
        devices = np.concatenate([held[kind] for kind in order]).reshape(candidate.pp, candidate.dp, candidate.tp)
        for name in problem.recompute_of(candidate):
            recompute = RECOMPUTE.index(name)
            whole = problem.tables(candidate).seconds[:, recompute, 0, -1]
            stages = whole[type_of[devices[:, 0, 0]]]
            ends = balanced(len(problem.model.blocks), np.ones_like(stages) if even else stages)
            if ends is not None:
                division = Division.of_ends(ends, np.full(candidate.pp, recompute))
                yield priced(problem, Strategy(candidate=candidate, division=division), devices)


def balanced(layers: int, whole: Floats) -> Ints | None:
    """Ends (pp,) of stages whose devices take ``whole`` seconds (pp,) for the model, (20); None for too few layers."""
    if len(whole) > layers:
        return None
    shares = layers / whole / np.sum(1.0 / whole)
    counts = np.maximum(np.floor(shares), 1.0)
    while counts.sum() > layers:
        counts[np.argmax(np.where(counts > 1, counts * whole, -np.inf))] -= 1
    while counts.sum() < layers:
        # One more layer where the stage is then least slow; inner stages first, as the ends have embedding and head.
        after = (counts + 1) * whole
        after[[0, -1]] *= 1 + 1e-9
        counts[np.argmin(after)] += 1
    return np.asarray(np.cumsum(counts), dtype=np.int64)
