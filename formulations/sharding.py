r"""
What shards of weights and gradients add to the passes of a micro-batch in the latency model ``step``.

Sets: ranges of layers i..j-1 as stages or chunks; replicas z, whose shards make up one copy under ZeRO-2 and 3.
Data: w and g bytes of a weight and a gradient; P parameters of a range on one tensor rank, of which
:math:`P_i` those of its first layer and :math:`P_{j-1}` of its last; F, B seconds of one micro-batch's forward and
backward pass, tensor-parallel time included, :math:`F'` without the last layer.

(1) Gathering M bytes of the replicas that share a copy, or scattering their sums, is half an all-reduce among them:
    :math:`\rho M` seconds, with :math:`\rho` half of the hierarchical ring's seconds per byte
    (``taut.formulations.rings`` (2) and (3)), of the slowest tensor rank.
(2) A layer's weights are gathered during the computation of the layer before it, and its gradients are scattered
    during that of the layer after it, in the order of the pass. The first gather and the last scatter of a pass have
    none beside them. So a micro-batch waits beyond its computation, under ZeRO-3,

    .. math::
        E_F = \rho w P_i + \max(0, \rho w (P - P_i) - F'), \\
        E_B = \rho w P_{j-1} + \rho g P_i + \max(0, \rho w (P - P_{j-1}) + \rho g (P - P_i) - B),

    and under ZeRO-2, which scatters gradients alone, :math:`E_B = \rho g P_i + \max(0, \rho g (P - P_i) - B)`.
(3) Each device hides behind its own computation, so the slowest of a tensor group is the one whose pass with (2) is.
(4) After the last pass ZeRO-2 gathers the updated weights, and ZeRO-3 nothing; where groups have a copy each, these sum
    their gradients (``taut.formulations.gradient_reductions`` (2)).

The papers' models have no such overlap: they price all gathers and scatters after the pipeline.

References
----------
Rajbhandari et al. (2020), ZeRO: Memory optimizations toward training trillion parameter models, section 7: volumes.
Zhao et al. (2023), PyTorch FSDP: Experiences on scaling fully sharded data parallel, section 3.3: prefetching, (2).
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.gradient_reductions import by_copy, hierarchical_ring, holders
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.formulations.tables.block_links import block_link
from taut.formulations.tables.block_traffic import BlockSeconds, Traffic


class PassBytes(NamedTuple):
    """Bytes of (2) that a pass over every range gathers and scatters: alone, and beside computation (L+1, L+1)."""

    forward_alone: Floats
    forward_beside: Floats
    backward_alone: Floats
    backward_beside: Floats


def has_shards(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether the passes of a candidate wait for gathers or scatters, (2)."""
    return problem.latency_model == "step" and candidate.zero >= 2 and candidate.dp_cp > 1


def half_ring(problem: PlanningProblem, ring: Floats | float) -> Floats:
    """Seconds per byte of a gather or scatter, of those of an all-reduce, (1), times its coefficient."""
    return np.asarray(0.5 * problem.coefficient("gather") * ring)


def pass_bytes(problem: PlanningProblem, candidate: Candidate) -> PassBytes:
    """Bytes that the passes over every range gather and scatter, (2)."""
    parameters = problem.tables(candidate).parameters.astype(float)
    one = np.diagonal(parameters, 1)
    first, last = np.append(one, 0.0)[:, None], np.append(0.0, one)[None, :]
    weight, gradient, _ = problem.memory.parameter_bytes
    gathered = weight if candidate.zero == 3 else 0
    return PassBytes(
        forward_alone=gathered * first + 0.0 * last,
        forward_beside=gathered * (parameters - first),
        backward_alone=gathered * last + gradient * first,
        backward_beside=gathered * (parameters - last) + gradient * (parameters - first),
    )


def exposed(rate: Floats | float, alone: Floats, beside: Floats, seconds: Floats) -> Floats:
    """Seconds that gathers and scatters add to a pass of so many seconds, (2)."""
    return np.asarray(rate * alone + np.maximum(rate * beside - seconds, 0.0))


def exposed_by_range(
    problem: PlanningProblem, candidate: Candidate, rate: float, within: BlockSeconds, types: Ints | None = None
) -> tuple[Floats, Floats]:
    """
    Seconds that gathers and scatters add to the passes over every range, (2).

    They grow with the rate, and a pass together with them grows with its computation; but a longer range may take less,
    since its first gather and last scatter may be smaller.

    Parameters
    ----------
    problem, candidate
        What is priced.
    rate
        Seconds per byte of a gather, (1).
    within
        Seconds of the traffic within n blocks, or of one for all.
    types
        Device type of every block, (n,); by default every type once.

    Returns
    -------
    tuple
        Seconds forward and backward, (n, recompute, L+1, L+1) each.
    """
    passes, sent = problem.passes(candidate), pass_bytes(problem, candidate)
    of = np.arange(len(problem.device_types)) if types is None else types
    forward = passes.forward[of]
    backward = (passes.input_gradient + passes.weight_gradient)[of] + within.both - within.forward
    before = np.zeros_like(forward)
    before[..., 1:] = (forward + within.forward)[..., :-1]
    return (
        exposed(rate, sent.forward_alone, sent.forward_beside, np.triu(before, 2)),
        exposed(rate, sent.backward_alone, sent.backward_beside, backward),
    )


class ShardedPasses(NamedTuple):
    """
    What (2) is made of, by stage or chunk (X).

    ``sent`` bytes (4, X) as in ``PassBytes``; ``seconds`` (2, types, X) of the forward pass without its last layer and
    of the backward pass; ``traffic`` (2, X) within their blocks.
    """

    sent: Floats
    seconds: Floats
    traffic: Traffic


def sharded_passes(problem: PlanningProblem, strategy: Strategy) -> ShardedPasses:
    """What gathers and scatters of a strategy send, and what they hide behind, (2)."""
    candidate, (recompute, first, end) = strategy.candidate, strategy.ranges
    tables, passes = problem.tables(candidate), problem.passes(candidate)
    before = np.maximum(end - 1, first)
    # A range of one layer has none before its last.
    several = np.where(before > first, 1.0, 0.0)
    forward = tables.forward.at(first, before).times(several)
    later = tables.traffic.at(recompute, first, end).less(tables.forward.at(first, end))
    backward = (passes.input_gradient + passes.weight_gradient)[:, recompute, first, end]
    return ShardedPasses(
        sent=np.stack([each[first, end] for each in pass_bytes(problem, candidate)]),
        seconds=np.stack([several * passes.forward[:, recompute, first, before], backward]),
        traffic=Traffic(*(np.stack(figures) for figures in zip(forward, later, strict=True))),
    )


def exposed_by_worker(problem: PlanningProblem, strategy: Strategy, rank: Ints, devices: Ints) -> tuple[Floats, Floats]:
    """
    Seconds that gathers and scatters add to the passes of every worker, (2) and (3).

    Parameters
    ----------
    problem, strategy
        What is priced.
    rank
        Pipeline rank of every stage or chunk, (X,).
    devices
        Device of every worker, (..., pp, dp, tp cp).

    Returns
    -------
    tuple
        Seconds forward and backward, (..., X, dp, tp cp) each.
    """
    candidate, of = strategy.candidate, sharded_passes(problem, strategy)
    hosts, chunk = devices[..., rank, :, :], np.arange(len(rank))[:, None, None]
    types = problem.type_of_node[problem.links.node_of[hosts]]
    forward, backward = (seconds[types, chunk] for seconds in of.seconds)
    if candidate.width > 1:
        link = block_link(problem.links, hosts, candidate.block)
        before, after = (of.traffic.at(np.array(k), chunk[..., 0]).seconds(link)[..., None] for k in (0, 1))
        forward, backward = forward + before, backward + after
    alone, beside, backward_alone, backward_beside = of.sent[:, :, None, None]
    rate = shard_rates(problem, candidate, devices)[..., rank, :, None]
    return exposed(rate, alone, beside, forward), exposed(rate, backward_alone, backward_beside, backward)


def shard_rates(problem: PlanningProblem, candidate: Candidate, devices: Ints) -> Floats:
    """Seconds per byte of a gather on every stage and replica, (..., pp, dp), (1)."""
    copies = hierarchical_ring(problem, by_copy(holders(candidate, devices), candidate.shards))
    return half_ring(problem, np.repeat(copies, candidate.shards // candidate.cp, axis=-1))
