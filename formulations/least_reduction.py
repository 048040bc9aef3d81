r"""
Least seconds of what blocks and devices exchange: in passes, and in a device's reduction after its last pass.

Sets: devices d of an order-priced candidate, each with v of the C chunks; ranges of layers.
Data: :math:`\rho` the least seconds of a reduction for each parameter; :math:`\beta` the parameters of a bucket; of
every range the parameters P and the most seconds b that its backward pass takes on any devices, for any recompute.

With overlap the reduction of a device with P parameters and a backward pass of B seconds shows
:math:`R = \max(\rho \min(P, \beta), \rho P - B)` at least (``taut.formulations.gradient_reductions`` (2)). Both terms
have an affine minorant :math:`a + s P`:

(1) every chunk has a layer, so :math:`P_0 \le P \le P_1`, where :math:`P_0` are v times the fewest parameters of a
    layer and :math:`P_1` are all but C - v times those. :math:`\rho \min(P, \beta)` is concave, and no less than its
    chord between the two;
(2) :math:`B \le \kappa P`, where :math:`\kappa` is the largest b / P of all ranges. So :math:`R \ge (\rho - \kappa) P`;
(3) in ``interleaved-1f1b`` no pass ends after the first device's last one, since every gradient goes back to the first
    chunk. So a tied embedding's exchange follows all passes, and its least seconds are a minorant with s = 0.

The one that is largest at an even share of the parameters is taken. Without overlap :math:`R = \rho P`, unless (3)
is more.

The traffic within blocks takes its least seconds wherever a candidate's stages are placed. A block exchanges no faster
than on the best links that nodes of its device type offer; a single stage is on all blocks, so it is as slow as the
best block of the slowest node.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats
from taut.data.costs import RECOMPUTE
from taut.formulations.degrees import BlockShape
from taut.formulations.gradient_reductions import bucket_parameters, overlaps
from taut.formulations.links import Links, PairTable
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.tables.block_traffic import (
    ALONE,
    FIGURES,
    BlockLink,
    BlockSeconds,
    Traffic,
    best_block,
    block_seconds,
    blocks_of_nodes,
)
from taut.formulations.tables.stage_tables import StageTables


def seconds_within(problem: PlanningProblem, candidate: Candidate) -> BlockSeconds:
    """Seconds of the traffic within blocks of every range, over the best block that nodes of each type offer."""
    if candidate.width == 1:
        return ALONE
    links, tables = problem.links, problem.tables(candidate)
    kinds = [problem.type_of_node == kind for kind in range(len(problem.device_types))]
    if candidate.pp == 1 and candidate.width <= links.gpus_per_node.max():
        every = [_at_slowest(tables, links, of_type, candidate.block) for of_type in kinds]
        return BlockSeconds(*(np.stack(figures) for figures in zip(*every, strict=True)))
    return seconds_of_best(problem, candidate)


def seconds_of_best(problem: PlanningProblem, candidate: Candidate) -> BlockSeconds:
    """Seconds of the traffic within blocks of every range, over the best block that nodes of each type offer."""
    if candidate.width == 1:
        return ALONE
    tables, kinds = problem.tables(candidate), range(len(problem.device_types))
    each = [best_block(problem.links, problem.type_of_node == k, candidate.block) for k in kinds]
    return block_seconds(tables.traffic, tables.forward, each)


def least_within(problem: PlanningProblem, candidate: Candidate, traffic: Traffic) -> Floats:
    """Seconds of some traffic within a block over the best block that nodes of any type offer."""
    if candidate.width == 1:
        return np.zeros(())
    kinds = range(len(problem.device_types))
    each = [best_block(problem.links, problem.type_of_node == k, candidate.block) for k in kinds]
    return np.asarray(np.min([traffic.seconds(link) for link in each], axis=0))


def _at_slowest(tables: StageTables, links: Links, of_type: Flags, block: BlockShape) -> tuple[Floats, Floats]:
    """Seconds of the slowest block on nodes of one type at least, where they hold a stage each: the slowest node's."""
    figures = np.unique(blocks_of_nodes(links, block).T[of_type], axis=0)
    each = block_seconds(tables.traffic, tables.forward, (BlockLink(*figure) for figure in figures.tolist()))
    return each.both.max(axis=0), each.forward.max(axis=0)


class LeastReduction(NamedTuple):
    """Seconds a, and seconds s for each parameter of a device."""

    constant: float
    slope: float

    def at(self, parameters: float) -> float:
        """Seconds of a device with so many parameters."""
        return self.constant + self.slope * parameters


def least_reduction(
    problem: PlanningProblem, candidate: Candidate, ring: float, tied: float, hosted: int
) -> LeastReduction:
    """Minorant of a device's reduction at least seconds ``ring`` a parameter and ``tied``, of v ``hosted`` chunks."""
    even = float(problem.tables(candidate).parameters[0, -1]) / candidate.pp
    return max(minorants(problem, candidate, ring, tied, hosted), key=lambda each: each.at(even))


def minorants(
    problem: PlanningProblem, candidate: Candidate, ring: float, tied: float, hosted: int
) -> list[LeastReduction]:
    """Every affine minorant, (1) to (3), by the arguments of ``least_reduction``."""
    choices = [LeastReduction(0.0, ring)]
    if overlaps(problem, candidate):
        choices = [_of_last_bucket(problem, candidate, ring, hosted), _beyond_backward(problem, candidate, ring)]
    if candidate.schedule == "interleaved-1f1b":
        choices.append(LeastReduction(tied, 0.0))
    return choices


def _of_last_bucket(problem: PlanningProblem, candidate: Candidate, ring: float, hosted: int) -> LeastReduction:
    """Minorant (1)."""
    parameters = problem.tables(candidate).parameters
    layer, whole = float(np.diagonal(parameters, 1).min()), float(parameters[0, -1])
    most = whole - (candidate.pp - 1) * hosted * layer
    return chord_of_bucket(ring, hosted * layer, most, bucket_parameters(candidate))


def chord_of_bucket(ring: float, least: float, most: float, bucket: int) -> LeastReduction:
    r"""The chord of :math:`\rho \min(P, \beta)` between the least and the most parameters of a device, (1)."""
    low, high = ring * min(least, bucket), ring * min(most, bucket)
    slope = (high - low) / (most - least) if most > least else 0.0
    return LeastReduction(low - slope * least, slope)


def _beyond_backward(problem: PlanningProblem, candidate: Candidate, ring: float) -> LeastReduction:
    """Minorant (2)."""
    tables, backward = problem.tables(candidate), _most_backward(problem, candidate)
    rising = np.triu_indices(tables.num_layers + 1, 1)
    seconds, parameters = backward[rising], tables.parameters[rising]
    # A range without parameters has no rate: where its backward pass takes time, (2) says nothing.
    rate = np.where(seconds > 0, np.inf, 0.0)
    np.divide(seconds, parameters, out=rate, where=parameters > 0)
    return LeastReduction(0.0, max(ring - float(rate.max()), 0.0))


def _most_backward(problem: PlanningProblem, candidate: Candidate) -> Floats:
    """Most seconds of every range's backward pass, on any devices and with any recompute, (L+1, L+1)."""
    ranges, tables = problem.passes(candidate), problem.tables(candidate)
    allowed = [RECOMPUTE.index(name) for name in problem.recompute_of(candidate)]
    whole = (ranges.input_gradient + ranges.weight_gradient)[:, allowed].max(axis=(0, 1))
    if candidate.width == 1:
        return np.asarray(whole)
    within = tables.traffic.at(np.array(allowed)).less(tables.forward).seconds(_slowest(problem.links))
    return np.asarray(whole + within.max(axis=0))


def _slowest(links: Links) -> BlockLink:
    """Figures of a block that none has more of: the slowest pair or share of a node's cards, and largest latency."""
    inverse = max(_largest(1.0 / links.rate), float((links.gpus_per_node / links.cards).max()))
    waits = {name: _largest(links.latency) for name in BlockLink._fields if "latency" in name}
    return BlockLink(*[inverse] * FIGURES)._replace(**waits)


def _largest(figures: PairTable) -> float:
    """The largest figure of any two sites, or of one with itself."""
    return max(float(figures.present().max(initial=0.0)), float(figures.by_site().max()))
