r"""
What shards of weights and gradients add to the passes of a micro-batch in the latency model ``step``.

Sets: ranges of layers i..j-1 as stages or chunks; replicas z, whose shards make up one copy under ZeRO-2 and 3.
Data: w and g bytes of a weight and a gradient; P parameters of a range on one tensor rank, of which
:math:`P_i` those of its first layer and :math:`P_{j-1}` of its last; F, B seconds of one micro-batch's forward and
backward pass, tensor-parallel time included, :math:`F'` without the last layer.

(1) Gathering M bytes of the replicas that share a copy, or scattering their sums, is half an all-reduce among them:
    :math:`\rho M` seconds, with :math:`\rho` half of the hierarchical ring's seconds per byte
    (``taut.formulations.rings`` (2) and (3)), of the slowest tensor rank. Experts that fewer devices hold than the rest
    are shared by those of a copy that hold the same ones (``taut.formulations.degrees`` (3)), with a ring and a rate
    :math:`\rho_e` of their own: these are the terms of the passes (``taut.formulations.terms``). One gather follows
    the other, so with :math:`P'` of P parameters in such experts
    :math:`\rho P` stands for :math:`\rho (P - P') + \rho_e P'` below.
(2) A layer's weights are gathered during the computation of the layer before it, and its gradients are scattered
    during that of the layer after it, in the order of the pass. The first gather and the last scatter of a pass have
    none beside them. So a micro-batch waits beyond its computation, under ZeRO-3,

    .. math::
        E_F = \rho w P_i + \max(0, \rho w (P - P_i) - F'), \\
        E_B = \rho w P_{j-1} + \rho g P_i + \max(0, \rho w (P - P_{j-1}) + \rho g (P - P_i) - B),

    and under ZeRO-2, which scatters gradients alone, :math:`E_B = \rho g P_i + \max(0, \rho g (P - P_i) - B)`. Layers
    that several further tokens pass (``taut.data.model`` (4)) are gathered for each of them, and scattered once.
    Collectives take multiprocessors and memory bandwidth from the kernels beside them, which run at :math:`1 - \sigma`
    of their pace meanwhile (``taut.data.calibration``, 0 where runs with shards were fitted). So in G seconds beside
    computation of F, :math:`(1 - \sigma) G` of it are done: both take :math:`\max(F + \sigma G, G)`, and every
    :math:`\max(0, G - F)` of (2) becomes :math:`\max(\sigma G, G - F)`.
(3) Each device hides behind its own computation, so the slowest of a tensor group is the one whose pass with (2) is.
(4) After the last pass ZeRO-2 gathers the updated weights, those of experts next, and ZeRO-3 nothing; where groups have
    a copy each, these sum their gradients (``taut.formulations.mechanisms.shards`` (5)).

The papers' models have no such overlap: they price all gathers and scatters after the pipeline.

References
----------
Rajbhandari et al. (2020), ZeRO: Memory optimizations toward training trillion parameter models, section 7: volumes.
Zhao et al. (2023), PyTorch FSDP: Experiences on scaling fully sharded data parallel, section 3.3: prefetching, (2).
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.gradient_reductions import ring_rates
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.formulations.tables.block_traffic import BlockSeconds, Traffic, block_link
from taut.formulations.terms import Group, Load, Term, gathers_of


class PassFigures(NamedTuple):
    """Bytes or seconds of (2) that a pass over every range gathers and scatters, alone and beside computation."""

    forward_alone: Floats
    forward_beside: Floats
    backward_alone: Floats
    backward_beside: Floats


class GatherRates(NamedTuple):
    """Seconds per byte of a gather, (1): of what all holders of a stage share, and of experts that fewer hold."""

    common: Floats | float = 0.0
    experts: Floats | float = 0.0


NO_GATHERS = GatherRates()
"""Rates where nothing is gathered, or nothing is known of the rings."""


def gather_slowdown(problem: PlanningProblem) -> float:
    """Share of their pace that kernels lose beside gathers and scatters, (2); 0 without a calibration."""
    return 0.0 if problem.calibration is None else problem.calibration.gather_slowdown


def gather_rates(terms: Iterable[Term], price: Callable[[Group], float]) -> GatherRates:
    """Seconds per byte of gathers at a price for each group, (1)."""
    return GatherRates(**{term.load: float(term.rate(price)) for term in gathers_of(terms)})


def pass_bytes(problem: PlanningProblem, candidate: Candidate) -> tuple[PassFigures, PassFigures]:
    """Bytes (L+1, L+1) that passes gather and scatter: of what all holders share, and of experts, (1) and (2)."""
    none = PassFigures(*(np.zeros_like(problem.tables(candidate).parameters, dtype=float) for _ in range(4)))
    found: dict[Load, PassFigures] = {"common": none, "experts": none}
    for term in gathers_of(problem.terms(candidate)):
        tables = problem.tables(candidate)
        found[term.load] = _sent(term, *(each(term.load).astype(float) for each in (tables.gathered, tables.carried)))
    return found["common"], found["experts"]


def pass_seconds(problem: PlanningProblem, candidate: Candidate, gather: GatherRates) -> PassFigures:
    """Seconds (L+1, L+1) of the gathers and scatters of every range at some rates, (1) and (2)."""
    common, experts = pass_bytes(problem, candidate)
    return PassFigures(*(gather.common * a + gather.experts * b for a, b in zip(common, experts, strict=True)))


def _sent(term: Term, gathered: Floats, parameters: Floats) -> PassFigures:
    """Bytes of (2) of some of the parameters of every range, of which passes gather some more than once."""
    ahead, one = np.diagonal(gathered, 1), np.diagonal(parameters, 1)
    first, last = np.append(ahead, 0.0)[:, None], np.append(0.0, ahead)[None, :]
    summed = np.append(one, 0.0)[:, None]
    return PassFigures(
        forward_alone=term.weight * first + 0.0 * last,
        forward_beside=term.weight * (gathered - first),
        backward_alone=term.weight * last + term.gradient * summed,
        backward_beside=term.weight * (gathered - last) + term.gradient * (parameters - summed),
    )


def exposed(alone: Floats, beside: Floats, seconds: Floats, slowdown: float) -> Floats:
    """Seconds that gathers and scatters of so many seconds add to a pass at a slowdown sigma, (2)."""
    return np.asarray(alone + np.maximum(beside - seconds, slowdown * beside))


def exposed_by_range(
    problem: PlanningProblem, candidate: Candidate, gather: GatherRates, within: BlockSeconds, types: Ints | None = None
) -> tuple[Floats, Floats]:
    """Seconds that gathers and scatters add to both passes beside ``within``, (n, recompute, L+1, L+1) each, (2)."""
    passes, sent, slow = problem.passes(candidate), pass_seconds(problem, candidate, gather), gather_slowdown(problem)
    of = np.arange(len(problem.device_types)) if types is None else types
    forward = passes.forward[of]
    backward = (passes.input_gradient + passes.weight_gradient)[of] + within.both - within.forward
    before = np.zeros_like(forward)
    before[..., 1:] = (forward + within.forward)[..., :-1]
    return (
        exposed(sent.forward_alone, sent.forward_beside, np.triu(before, 2), slow),
        exposed(sent.backward_alone, sent.backward_beside, backward, slow),
    )


class ShardedPasses(NamedTuple):
    """What (2) is made of, by stage or chunk X: bytes (2, 4, X), seconds (2, types, X), and traffic (2, X)."""

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
        sent=np.array([[each[first, end] for each in part] for part in pass_bytes(problem, candidate)]),
        seconds=np.stack([several * passes.forward[:, recompute, first, before], backward]),
        traffic=Traffic(*(np.stack(figures) for figures in zip(forward, later, strict=True))),
    )


def exposed_by_worker(problem: PlanningProblem, strategy: Strategy, rank: Ints, devices: Ints) -> tuple[Floats, Floats]:
    """Seconds that gathers and scatters add to passes of workers, (..., X, dp, tp cp) each, of rank (X,), (2)."""
    candidate, of = strategy.candidate, sharded_passes(problem, strategy)
    hosts, chunk = devices[..., rank, :, :], np.arange(len(rank))[:, None, None]
    types = problem.type_of_node[problem.links.node_of[hosts]]
    forward, backward = (seconds[types, chunk] for seconds in of.seconds)
    if candidate.width > 1:
        link = block_link(problem.links, hosts, candidate.block)
        before, after = (of.traffic.at(np.array(k), chunk[..., 0]).seconds(link)[..., None] for k in (0, 1))
        forward, backward = forward + before, backward + after
    common, experts = (rates[..., rank, :, None] for rates in rates_by_worker(problem, candidate, devices))
    alone, beside, backward_alone, backward_beside = (
        common * a + experts * b for a, b in zip(*of.sent[..., None, None], strict=True)
    )
    slow = gather_slowdown(problem)
    return exposed(alone, beside, forward, slow), exposed(backward_alone, backward_beside, backward, slow)


def rates_by_worker(problem: PlanningProblem, candidate: Candidate, devices: Ints) -> tuple[Floats, Floats]:
    """Seconds per byte of a gather on every stage and pipeline, and of one of experts, (..., pp, pipelines), (1)."""
    none = np.zeros((*devices.shape[:-2], candidate.pipelines))
    found: dict[Load, Floats] = {"common": none, "experts": none}
    for term in gathers_of(problem.terms(candidate)):
        rates = term.rate(lambda group: ring_rates(problem, group, devices))
        found[term.load] = rates.repeat(candidate.pipelines // rates.shape[-1], axis=-1)
    return found["common"], found["experts"]
