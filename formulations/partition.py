r"""
Division of the layers into stages, with recompute per stage.

Sets: stages x = 0..pp-1, layers 0..L-1, patterns q (below), recompute r.
Data: seconds of a range under each pattern and recompute, bytes of a range, :math:`m` micro-batches, edge[j] seconds
for a cut before layer j, tail[j] seconds that depend on stage 0 ending at layer j.
Variables: ends :math:`0 = e_{-1} < e_0 < ... < e_{pp-1} = L`, recompute and pattern of every stage.

(1) minimise  sum_x low(x) + (m - 1) max_x high(x) + sum_{x < pp-1} edge[e_x] + tail[e_0];
(2) every stage fits its memory: fixed + in_flight[x] * activation <= budget[q];
(3) gradient bytes of every stage <= gradient_cap.

In the latency model ``step`` the step ends when the last stage has reduced its gradients, so (1) becomes

(1') minimise  (m - 1) max_x high(x) + max_x U_x + optimizer max_x P_x,  with
     U_0 = sum_x low(x) + sum edge[e_x] + tail[e_0],
     U_x = sum_{y < x} (forward(y) + edge'[e_y]) + sum_{y >= x} (low(y) + edge[e_y]) + R(x) + each_x + others, x > 0,

     since stage x ends before stage 0 by the backward passes and hops of the stages before it. edge' is a hop without
     its way back, R(x) the stage's reduction and P_x its parameters. With overlap of reductions and one class of device
     R(x) = ring_x max(unhidden(x), exchanged(x) - (low(x) - forward(x)) / ring_x), otherwise ring_x exchanged(x).

With one device type there is one pattern, and low = high = seconds.

**Two classes of device**: the slowest type, and all other types at the pace of the fastest of them. Let n_1 blocks be
of the slow class. A stage's dp replicas are all fast (q = 0), all slow (1) or mixed (2). A pipeline passes each stage
on one of its replicas, so low(x) has the fastest class in the stage, and high(x) the slowest. In a single stage one
replica is a whole pipeline, so low has the slowest class too. The numbers of slow and mixed stages satisfy

(4) dp * #slow + #mixed <= n_1 <= dp * #slow + (dp - 1) * #mixed.

A block that spans nodes is as slow as its slowest device, so one slow device makes it slow. With n slow nodes that hold
s devices, and blocks of b devices, (4) holds for some n_1 from s / b, rounded up, to n. What a block takes less its
backward pass is the slow class's forward pass where no type's backward pass is longer, or else the lesser of both.

The problem is a relaxation: the pipeline that meets the slowest stage may take the fastest replica elsewhere. It is
exact if no stage is mixed. If stages are mixed,

(5) low of one mixed stage has the slow class. Proof: if the slowest stage is mixed, a pipeline that meets it takes a
    slow replica of it. If it is not mixed, its replicas are equal, and every pipeline meets the slowest stage. One of
    the pipelines takes a slow replica of a mixed stage.

(6) If one stage is all fast and another all slow, every pipeline makes a hop between blocks of both classes. What this
    hop adds at least to the least hop comes on top of (1). Let y be the first stage of the class that comes second. In
    (1') U_x takes it in full for x < y, and without its way back from y on. If a mixed stage stands between the first
    stages of both classes, the hop may lie before it, so U_x of this stage takes it without its way back. By (5) the
    pipeline takes a slow replica of the only mixed stage after slow stages, if the slow class passes no stage quicker.
    The hop then comes later.

(7) For a single pipeline the class of every block is known, and so are its seconds, its hops between classes, and the
    rings of its stages. n_1 says which pipelines a placement must have (``taut.solver.layer_division.divide``).

The blocks of a candidate are priced at the best links that their device type offers. Seconds of a pass with what its
gathers add (``taut.formulations.sharding`` (2)) grow with the rate of the gathers and with the computation that hides
them, so the least of both bounds them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.divisions import families_of, listed
from taut.formulations.gradient_reductions import seconds_of_best, seconds_within
from taut.formulations.problem import PlanningProblem
from taut.formulations.sharding import NO_GATHERS, GatherRates, exposed_by_range
from taut.formulations.space import Candidate
from taut.formulations.tables.memory import stage_memory
from taut.formulations.terms import gathers_of


@dataclass(frozen=True)
class PartitionProblem:
    """
    Arrays of one candidate's partition problem of ``pp`` stages, ``dp`` replicas and m micro-batches.

    ``low`` and ``high`` (patterns, recompute, L+1, L+1) are seconds on the fastest and the slowest class present,
    infinite where a recompute is not allowed; ``forward`` (patterns, L+1, L+1) those of the forward pass on the
    fastest. Bytes of ranges are ``fixed``, and ``activation`` for each micro-batch in flight, (recompute, L+1, L+1);
    ``in_flight`` (pp,) are the most of every stage; ``budget`` (patterns,) bounds them. ``update`` (L+1, L+1) are bytes
    in the optimizer's step, if these may be more, and ``during_passes`` is ``fixed`` without them
    (``taut.formulations.tables.memory``). n_1 of (4) is ``slow_groups`` at least, and ``more_slow_groups`` more at
    most. A division is in one of the ``families`` of least and most layers (families, pp, 2), or any where there are
    none. ``growing`` says that no range takes less with a further layer at its end.
    """

    pp: int
    dp: int
    micro_batches: int
    low: Floats
    high: Floats
    fixed: Ints
    activation: Ints
    in_flight: Ints
    budget: Ints
    gradients: Floats
    slow_groups: int
    forward: Floats | None = None
    growing: bool = True
    more_slow_groups: int = 0
    families: Ints | None = None
    update: Ints | None = None
    during_passes: Ints | None = None

    @property
    def by_family(self) -> Iterator["PartitionProblem"]:
        """The problems of each family alone; itself where any division may be."""
        if self.families is None:
            yield self
            return
        yield from (replace(self, families=one[None]) for one in self.families)

    @property
    def held(self) -> Ints:
        """Bytes of every range during the passes whatever is in flight, (recompute, L+1, L+1)."""
        return self.fixed if self.during_passes is None else self.during_passes

    @property
    def need(self) -> Ints:
        """Bytes of every stage and range, (pp, recompute, L+1, L+1)."""
        passes = self.held + self.in_flight[:, None, None, None] * self.activation
        return np.asarray(passes if self.update is None else np.maximum(passes, self.update))

    def updates_within(self, budget: Ints) -> Flags:
        """Whether the optimizer's step of every range fits so many bytes by pattern, (patterns, 1, L+1, L+1)."""
        step = np.zeros_like(self.fixed[0]) if self.update is None else self.update
        return np.asarray(step <= budget[:, None, None])[:, None]

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return int(self.gradients.shape[0]) - 1

    def with_mixed(self, *classes: int) -> "PartitionProblem":
        """The same with a pattern for every way of pricing a mixed stage, by its own low seconds or a class's, (5)."""
        kinds, own = [0, 1, *classes], [0, 1, *(2 for _ in classes)]
        forward = None if self.forward is None else self.forward[kinds]
        return replace(self, low=self.low[kinds], forward=forward, high=self.high[own], budget=self.budget[own])


class Crossing(NamedTuple):
    """
    Seconds that hops add between classes, (6), with the way back and without it, and between nodes.

    ``room`` are the most blocks of a node, and ``alone`` says that stage 0 shares no node with another stage.
    """

    whole: float
    before: float
    further: float = 0.0
    room: int = 1
    alone: bool = False

    def beyond(self, pp: int) -> Floats:
        """Seconds that hops between nodes add to those that every pipeline has, by blocks of one class, (pp + 1,)."""
        of_one, others, fewest = np.arange(pp + 1), pp - self.alone, -(-(pp - self.alone) // self.room)
        # A stage 0 that is alone on its nodes is of the one class or of the other.
        nodes = [-(-(of_one - k) // self.room) - (-(others - of_one + k) // self.room) for k in range(1 + self.alone)]
        return np.asarray(self.further * np.maximum(np.min(nodes, axis=0) - fewest, 0) * (self.alone or fewest > 1))


NO_CROSSING = Crossing(0.0, 0.0)
"""Where hops between classes are as quick as others."""


@dataclass(frozen=True)
class LaterStages:
    """
    What stages after the first wait for, (1'): cuts ``edge`` (L+1,) without their way back, reductions, all else.

    ``ring`` (pp,) and ``class_ring`` (3,) are least seconds per byte by stage and by pattern, ``mixed_rings`` (n,)
    those of a mixed stage by its most fast blocks, those with more as the last. Ranges (L+1, L+1) reduce ``exchanged``
    bytes, of which ``overlap`` never hides ``unhidden``, and have ``parameters``, at ``optimizer`` seconds each.
    ``others`` are the seconds of all else, and ``each`` (pp,), or one figure, those beyond.
    """

    edge: Floats
    ring: Floats
    exchanged: Floats
    unhidden: Floats
    overlap: bool
    others: float
    parameters: Floats
    optimizer: float
    class_ring: Floats = field(default_factory=lambda: np.zeros(3))
    mixed_rings: Floats = field(default_factory=lambda: np.zeros(1))
    each: Floats = field(default_factory=lambda: np.zeros(1))


def stage_families(problem: PlanningProblem, candidate: Candidate) -> Ints | None:
    """Families of a closed form; None where any division is stated, and for orders, which divide into chunks."""
    return None if candidate.is_order_priced else families_of(problem, candidate)


def stated_divisions(problem: PlanningProblem, candidate: Candidate) -> Ints | None:
    """Layers of every chunk of all divisions that the space states (n, X); None where any are, or too many."""
    shape = candidate.schedule, candidate.pp, candidate.vpp
    return listed(problem.space.divisions, problem.num_layers(candidate), *shape)


def waits_for_later_stages(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether a closed form waits for more stages than the first, (1')."""
    return problem.latency.waits_for_every_stage and candidate.pp > 1 and not candidate.is_order_priced


def slowest_type(problem: PlanningProblem, candidate: Candidate) -> int:
    """The device type that takes longest for the whole model; it makes the slow class."""
    return int(np.argmax(problem.tables(candidate).seconds[:, 0, 0, -1]))


def classes_of(
    problem: PlanningProblem, seconds: Floats, budget: Ints, candidate: Candidate
) -> tuple[Floats, Floats, Ints, tuple[int, int]]:
    """Seconds (fastest and slowest class present) and budgets by pattern, and fewest and most slow blocks."""
    if len(budget) == 1:
        return seconds, seconds, budget, (0, 0)
    slowest = slowest_type(problem, candidate)
    others = np.arange(len(budget)) != slowest
    fast, slow = seconds[others].min(axis=0), seconds[slowest]
    high = np.stack([fast, slow, np.maximum(fast, slow)])
    low = high if candidate.pp == 1 else np.stack([fast, slow, np.minimum(fast, slow)])
    most = budget[others].max()
    budgets = np.array([most, budget[slowest], min(most, budget[slowest])])
    return low, high, budgets, slow_blocks(problem, candidate.width, slowest)


def slow_blocks(problem: PlanningProblem, width: int, slowest: int) -> tuple[int, int]:
    """Fewest and most blocks of so many devices that hold a device of the slowest type."""
    sizes = problem.links.gpus_per_node[problem.type_of_node == slowest]
    if width <= problem.links.gpus_per_node.max():
        blocks = int(sizes.sum()) // width
        return blocks, blocks
    return -(-int(sizes.sum()) // width), min(len(sizes), int(problem.links.gpus_per_node.sum()) // width)


def of_classes(problem: PlanningProblem, forward: Floats, seconds: Floats, candidate: Candidate) -> Floats:
    """Forward seconds on the fastest class present by pattern, as in ``classes_of``, from both passes' ``seconds``."""
    if len(forward) == 1:
        return forward
    slowest = slowest_type(problem, candidate)
    others = np.arange(len(forward)) != slowest
    fast, slow = forward[others].min(axis=0), forward[slowest]
    either = np.minimum(fast, slow)
    if candidate.width > problem.links.gpus_per_node.max():
        # Of a slow block on several nodes a fast device may have the longest backward pass, unless no type's is longer.
        backward = seconds - forward[:, None]
        last = (backward[slowest] >= backward[others]).all(axis=(0, 1)) & (not gathers_of(problem.terms(candidate)))
        slow = np.where(last, slow, either)
    return np.stack([fast, slow, either])


def partition_problem(
    problem: PlanningProblem,
    candidate: Candidate,
    *,
    margin: bool = True,
    cautious: bool = False,
    gather: GatherRates = NO_GATHERS,
) -> PartitionProblem:
    """The partition problem (1) to (4) of a candidate; a ``cautious`` one fits any placement, and is no bound."""
    memory = stage_memory(problem, candidate, margin=margin)
    sharded = gather != NO_GATHERS and bool(gathers_of(problem.terms(candidate)))
    seconds, forward = _seconds(problem, candidate, gather, sharded=sharded)
    by_class = _by_class(problem, candidate, seconds, forward, memory.budget, cautious=cautious)
    stages = PartitionProblem(
        pp=candidate.pp,
        dp=candidate.pipelines,
        micro_batches=candidate.num_micro_batches,
        low=by_class.low,
        high=by_class.high,
        fixed=memory.fixed,
        activation=memory.activation,
        in_flight=memory.in_flight,
        budget=by_class.budget,
        gradients=problem.gradient_bytes(candidate),
        slow_groups=by_class.slow_groups[0],
        more_slow_groups=by_class.slow_groups[1] - by_class.slow_groups[0],
        forward=by_class.forward,
        growing=not sharded,
        families=stage_families(problem, candidate),
        update=memory.update,
        during_passes=memory.during_passes,
    )
    if candidate.pipelines_by_type and memory.update is not None:
        above = np.maximum(memory.fixed, memory.update)
        return replace(stages, fixed=np.where(stages.updates_within(stages.budget)[0], memory.fixed, above))
    return stages if memory.update is None or len(stages.budget) == 1 else _without_updates(stages)


def _seconds(
    problem: PlanningProblem, candidate: Candidate, gather: GatherRates, *, sharded: bool
) -> tuple[Floats, Floats]:
    """Seconds of every range, infinite under recomputes not allowed, (types, recompute, L+1, L+1), and forward ones."""
    # Of blocks that exchange more than sums one may be the slowest forward, and another backward. A single stage may
    # divide its batch unevenly, so that not all of its blocks are as slow as the slowest.
    alike = (candidate.of_tensor_groups or not sharded) and not candidate.pipelines_by_type
    within = seconds_within(problem, candidate) if alike else seconds_of_best(problem, candidate)
    seconds = problem.tables(candidate).seconds + within.both
    forward = problem.passes(candidate).forward + within.forward
    if sharded:
        before, after = exposed_by_range(problem, candidate, gather, within)
        seconds, forward = seconds + before + after, forward + before
    allowed = np.array([name in problem.recompute_of(candidate) for name in RECOMPUTE])
    return np.where(allowed[None, :, None, None], seconds, np.inf), forward.min(axis=1)


class _ByClass(NamedTuple):
    """Seconds of both classes, those forward, and budgets, by pattern; slow blocks at least and at most."""

    low: Floats
    high: Floats
    forward: Floats
    budget: Ints
    slow_groups: tuple[int, int]


def _by_class(
    problem: PlanningProblem, candidate: Candidate, seconds: Floats, forward: Floats, budget: Ints, *, cautious: bool
) -> _ByClass:
    """Figures by device type (types, ...) as figures by pattern."""
    if cautious:
        slowest = seconds.max(axis=0)[None]
        return _ByClass(slowest, slowest, forward.max(axis=0)[None], budget.min()[None], (0, 0))
    if candidate.pipelines_by_type:
        fastest = seconds.min(axis=0)[None]
        return _ByClass(fastest, fastest, forward.min(axis=0)[None], budget.min()[None], (0, 0))
    low, high, budget, slow = classes_of(problem, seconds, budget, candidate)
    return _ByClass(low, high, of_classes(problem, forward, seconds, candidate), budget, slow)


def _without_updates(stages: PartitionProblem) -> PartitionProblem:
    """The same without ranges whose optimizer's step exceeds a class, where it fits another."""
    forbidden = ~stages.updates_within(stages.budget) & stages.updates_within(stages.budget.max()[None])
    low, high = (np.where(forbidden, np.inf, seconds) for seconds in (stages.low, stages.high))
    return replace(stages, low=low, high=high)
