r"""
Compiled price of gathers and scatters under ZeRO-2 and 3 in ``step``: ``taut.solver.placement.annealing.prices`` (5).

A replica's passes wait for the ring of the replicas that share its copy (``taut.formulations.sharding`` (2)), so a
change of one of them changes the price of all.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.compiled import jit
from taut.formulations.gradient_reductions import by_device_of, weight_share
from taut.formulations.pair_table import PairTable
from taut.formulations.placement import PlacementProblem
from taut.formulations.sharding import gather_slowdown, half_ring, has_shards, sharded_passes


class ShardPrices(NamedTuple):
    """
    Arrays of what passes gather and scatter; S sites.

    ``replicas`` of a copy, 0 without shards, and whether there are ``several`` copies; ``half`` of a ring, times its
    coefficient; ``slowdown`` of kernels beside gathers; ``share`` of a gather at the end for each byte that copies sum;
    ``sent`` (4, pp) bytes forward alone and beside computation, backward alone and beside it; ``site_seconds``
    (2, pp, S) of that computation, which include the all-reduces where a site is a whole tensor group, else
    ``ring_bytes`` and ``ring_steps`` (2, pp) are added.
    """

    replicas: int
    several: bool
    half: float
    slowdown: float
    share: float
    sent: Floats
    site_seconds: Floats
    ring_bytes: Floats
    ring_steps: Floats


def shard_prices(problem: PlacementProblem, inverse: PairTable, latency: PairTable) -> ShardPrices:
    """
    Build the arrays of a placement problem; of several chunks a device they are sums.

    ``problem``: the strategy to place; ``inverse``, ``latency``: seconds per byte and seconds of links inside tensor
    groups.
    """
    planning, candidate, links = problem.problem, problem.candidate, problem.links
    if not has_shards(planning, candidate):
        return _without_gathers(problem)
    of = sharded_passes(planning, problem.strategy)
    # Experts that one device of a copy holds alone are not gathered, and others count in the ring of all.
    moved = of.sent.sum(axis=0) if candidate.expert_shards > 1 else of.sent[0]
    anywhere, ring_bytes, steps, sent = (
        by_device_of(candidate, figures.T).T for figures in (*of.traffic.by_place(links, candidate.block), moved)
    )
    types = planning.type_of_node[links.node_of_site]
    seconds = np.stack([by_device_of(candidate, each.T)[:, types] for each in of.seconds]) + anywhere[..., None]
    if problem.ranks == 1:
        seconds = seconds + ring_bytes[..., None] * inverse.by_site() + steps[..., None] * latency.by_site()
        ring_bytes, steps = np.zeros_like(ring_bytes), np.zeros_like(steps)
    return ShardPrices(
        replicas=candidate.shards * candidate.tp // candidate.width,
        several=candidate.dp_shard > 0,
        half=float(half_ring(planning, 1.0)),
        slowdown=gather_slowdown(planning),
        share=weight_share(planning, candidate) if candidate.dp_shard else 0.0,
        sent=np.ascontiguousarray(sent),
        site_seconds=np.ascontiguousarray(seconds),
        ring_bytes=np.ascontiguousarray(ring_bytes),
        ring_steps=np.ascontiguousarray(steps),
    )


def _without_gathers(problem: PlacementProblem) -> ShardPrices:
    """Prices of passes that gather nothing, of one copy or of several that share optimizer states (ZeRO-1)."""
    candidate, several = problem.candidate, problem.candidate.dp_shard > 0
    held = candidate.shards * candidate.tp // candidate.width if several else 0
    share = weight_share(problem.problem, candidate) if several else 0.0
    none = np.zeros((4, candidate.pp))
    sites = np.zeros((2, candidate.pp, problem.problem.links.num_sites))
    return ShardPrices(held, several, 0.0, 0.0, share, none, sites, none[:2], none[:2])


@jit
def exposed_seconds(
    shards: ShardPrices, backward: int, x: int, site: int, rate: float, link: float, steps: float
) -> float:
    """
    Seconds that gathers and scatters add to the forward (0) or backward (1) pass of a stage on a site.

    ``shards``: arrays of the placement problem; ``backward``, ``x``, ``site``: the pass, the stage and its site;
    ``rate``: seconds per byte of a gather; ``link``, ``steps``: seconds per byte and latency of the slowest link of the
    tensor group. Returns seconds.
    """
    sent = shards.sent
    seconds = shards.site_seconds[backward, x, site]
    seconds += shards.ring_bytes[backward, x] * link + shards.ring_steps[backward, x] * steps
    beside = rate * sent[2 * backward + 1, x]
    return float(rate * sent[2 * backward, x] + max(beside - seconds, shards.slowdown * beside))
