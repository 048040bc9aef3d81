r"""
Plans for packed sequences: a search at mean work, and a bound on the expected step of every plan of the space.

The drawn steps have mean features :math:`\bar x` a micro-batch (``taut.solver.packing.step_graph`` (1)), of which the
tokens are a share :math:`f = \bar x_0 \le 1` of its room.

(1) Mean work: the plan's cost table with every attention core times :math:`\bar x_w / f`, so that micro-batches full of
    tokens have the attention of the drawn lengths. The branch and bound over it finds a plan whose stages, recompute
    and degrees suit these lengths. Its step is that of equal micro-batches; the drawn steps then price it as packed.

Bound on the mean step of every plan, over the drawn steps, whatever its division, placement and packing. With
:math:`\ell_c` the seconds of a candidate's m micro-batches on all layers at mean work, quickest recompute and type of
device, with the traffic of tensor ranks on the best links:

(2) The busiest of pp stages has at least the mean, the slowest replica too, and launches do not shrink, so that the
    mean step is at least :math:`f \, m \, \ell_c / pp` plus the calibration's constant.
    Candidates that move activations to hosts have the constant alone, and exchanges that hide count as 0.
(3) With one stage, at most ZeRO-1 and no hidden reductions nothing hides behind the passes, and the mean step is at
    least f times the search's own bound of c at mean work: passes are linear in the features, rings show no less since
    :math:`\bar x_w \le f`, and the rest does not depend on the lengths.
(4) A candidate that the search has proven infeasible in memory counts no further. The bound of the space is the least
    of the larger of (2) and (3).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE, CostRow, CostTable, Key
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.tables.block_traffic import best_block
from taut.solver.packing.step_graph import core_seconds, shares_of, windows_of
from taut.solver.result import Limits, SearchResult, State
from taut.solver.search.search import search

PACKED = "-packed"
"""What the name of a cost table at mean work ends with."""
PASSES = "forward_s", "input_grad_s", "weight_grad_s"


@dataclass(eq=False)
class AttentionShares:
    r""":math:`\bar x_w / f` of drawn sequences, by degrees that it depends on; kept."""

    problem: PlanningProblem
    tokens: Ints
    _kept: dict[tuple[int, int, int], Floats] = field(default_factory=dict)

    def at(self, key: Key | Candidate) -> Floats:
        """Attention of the lengths over that of full sequences of as many tokens, by window (W,)."""
        of = key.tp, key.micro_batch, key.cp
        if of not in self._kept:
            seq = self.problem.model.blocks[-1].seq
            cores = core_seconds(self.problem, key, key.micro_batch * seq, windows_of(self.problem))
            distinct, counts = np.unique(self.tokens, return_counts=True)
            mean = counts @ cores(distinct.astype(float)) / float(counts @ distinct)
            self._kept[of] = mean * seq / cores(np.array([float(seq)]))[0]
        return self._kept[of]


class MeanWork(NamedTuple):
    """The search at mean work (1): its problem, the share of tokens f, attention, and what it found."""

    problem: PlanningProblem
    fill: float
    attention: AttentionShares
    result: SearchResult


def search_mean_work(problem: PlanningProblem, tokens: Ints, fill: float, limits: Limits) -> MeanWork:
    """Search the space at the mean work of drawn sequences (n,) that fill a share of the micro-batches."""
    attention = AttentionShares(problem, tokens)
    at_mean = problem.with_costs(mean_costs(problem, attention))
    return MeanWork(at_mean, fill, attention, search(at_mean, limits, adapts=False))


def mean_costs(problem: PlanningProblem, attention: AttentionShares) -> CostTable:
    """The cost table (1)."""
    kinds, windows = problem.model.kinds, windows_of(problem)

    def scaled(row: CostRow) -> CostRow:
        if row.kind not in kinds or row.device not in problem.device_types:
            return row
        of_window = dict(zip(windows, attention.at(row.key).tolist(), strict=True))
        parts = shares_of(problem, row.key, row.device, kinds[row.kind], row.recompute)
        less = [sum(share * (1.0 - of_window[w]) for w, share in cores.items()) for _, cores in parts]
        figures = {name: getattr(row, name) * (1.0 - gone) for name, gone in zip(PASSES, less, strict=True)}
        return row.model_copy(update=figures)

    rows = [scaled(row) for row in problem.costs.rows]
    return problem.costs.model_copy(update={"rows": rows, "name": f"{problem.costs.name}{PACKED}"})


def space_bound(found: MeanWork) -> float:
    """The bound (4) on the mean step of every plan of the space."""
    feasible = [each for each in found.result.bounds if each.state is not State.INFEASIBLE]
    bounds = []
    for each in feasible:
        least = balance_bound(found, each.candidate)
        if has_linear_step(found.problem, each.candidate):
            least = max(least, found.fill * each.lower_bound)
        bounds.append(least)
    return min(bounds, default=float("inf"))


def has_linear_step(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether (3) holds for a candidate."""
    tables = problem.tables(candidate)
    hides = problem.overlap_grad_reduce or tables.moved is not None or tables.traffic.expert_hidden.any()
    return candidate.pp == 1 and candidate.zero <= 1 and not hides


def balance_bound(found: MeanWork, candidate: Candidate) -> float:
    """The bound (2) of a candidate."""
    problem = found.problem
    tables, layers = problem.tables(candidate), problem.num_layers(candidate)
    if tables.moved is not None:
        return problem.constant_of(candidate)
    seconds = tables.seconds[:, :, 0, layers].min(axis=0)
    if candidate.width > 1 and not tables.traffic.expert_hidden.any():
        link = best_block(problem.links, np.ones(problem.links.num_nodes, dtype=bool), candidate.block)
        every = tables.traffic.at(slice(None), 0, layers)
        none = np.zeros_like(every.ring_bytes)
        without = every._replace(ring_bytes=none, ring_steps=none, ring_hidden=none)
        hidden = every.ring_hidden * float(found.attention.at(candidate)[-1])
        rings = np.maximum(every.ring_bytes * link.context_inverse - hidden, 0.0).sum(axis=-1)
        seconds = seconds + without.seconds(link) + rings
    allowed = [RECOMPUTE.index(kind) for kind in problem.recompute_of(candidate)]
    passes = candidate.num_micro_batches * float(seconds[allowed].min()) / candidate.pp
    return found.fill * passes + problem.constant_of(candidate)
