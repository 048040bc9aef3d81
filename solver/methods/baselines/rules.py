"""
Short procedures: Megatron-LM's rule of thumb, fully sharded data parallelism, Varuna's, Pipette's, random search.

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

References
----------
D. Narayanan et al., Efficient large-scale language model training on GPU clusters using Megatron-LM, SC 2021.
Y. Zhao et al., PyTorch FSDP: experiences on scaling fully sharded data parallel, VLDB 2023. S. Rajbhandari et al.,
ZeRO: memory optimizations toward training trillion parameter models, SC 2020.
S. Athlur et al., Varuna: scalable, low-cost training of massive deep learning models, EuroSys 2022.
J. Yim et al., Pipette: automatic fine-grained large language model training configurator for real-world clusters,
DATE 2024.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from taut.data.costs import RECOMPUTE
from taut.formulations.placement import placement_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.branch_and_bound.progress import Listener, Progress
from taut.solver.branch_and_bound.stop import Stop
from taut.solver.methods.named import Outcome
from taut.solver.placement.annealing.anneal import MAX_LOOK_UPS, anneal, best_start, move_cost
from taut.solver.result import Incumbent, Limits
from taut.solver.signals import cut_short
from taut.solver.simple_plans import priced, simple_plan


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
