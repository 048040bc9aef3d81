r"""
Compiled price of gathers and scatters in the passes: ``taut.solver.placement.annealing.prices`` (5).

A replica's passes wait for the ring of the replicas that it gathers from (``taut.formulations.sharding`` (2)), so a
change of one of them changes the price of all.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.compiled import jit
from taut.formulations.gradient_reductions import by_device_of
from taut.formulations.pair_table import PairTable
from taut.formulations.placement import PlacementProblem
from taut.formulations.sharding import gather_slowdown, sharded_passes
from taut.formulations.terms import gathers_of


class GatherPrices(NamedTuple):
    """
    Arrays of what passes gather and scatter; S sites.

    ``replicas`` that gather from each other, 0 without gathers; ``share`` of an all-reduce that a gather takes, times
    its coefficient; ``slowdown`` of kernels beside gathers; ``sent`` (4, pp) bytes forward alone and beside
    computation, backward alone and beside it; ``site_seconds`` (2, pp, S) of that computation, which include the
    all-reduces where a site is a whole tensor group, else ``ring_bytes`` and ``ring_steps`` (2, pp) are added.
    """

    replicas: int
    share: float
    slowdown: float
    sent: Floats
    site_seconds: Floats
    ring_bytes: Floats
    ring_steps: Floats


def gather_prices(problem: PlacementProblem, inverse: PairTable, latency: PairTable) -> GatherPrices:
    """
    Build the arrays of a placement problem; of several chunks a device they are sums.

    ``problem``: the strategy to place; ``inverse``, ``latency``: seconds per byte and seconds of links inside tensor
    groups.
    """
    planning, candidate, links = problem.problem, problem.candidate, problem.links
    gathers = gathers_of(planning.terms(candidate))
    if not gathers:
        none, sites = np.zeros((4, candidate.pp)), np.zeros((2, candidate.pp, links.num_sites))
        return GatherPrices(0, 0.0, 0.0, none, sites, none[:2], none[:2])
    of = sharded_passes(planning, problem.strategy)
    # All terms count in the ring of the first, whose members are blocks.
    anywhere, ring_bytes, steps, sent = (
        by_device_of(candidate, figures.T).T
        for figures in (*of.traffic.by_place(links, candidate.block), of.sent.sum(axis=0))
    )
    types = planning.type_of_node[links.node_of_site]
    seconds = np.stack([by_device_of(candidate, each.T)[:, types] for each in of.seconds]) + anywhere[..., None]
    if problem.ranks == 1:
        seconds = seconds + ring_bytes[..., None] * inverse.by_site() + steps[..., None] * latency.by_site()
        ring_bytes, steps = np.zeros_like(ring_bytes), np.zeros_like(steps)
    group, share = gathers[0].rings[0]
    return GatherPrices(
        replicas=group.in_blocks(candidate.width)[0],
        share=share,
        slowdown=gather_slowdown(planning),
        sent=np.ascontiguousarray(sent),
        site_seconds=np.ascontiguousarray(seconds),
        ring_bytes=np.ascontiguousarray(ring_bytes),
        ring_steps=np.ascontiguousarray(steps),
    )


@jit
def exposed_seconds(
    gathers: GatherPrices, backward: int, x: int, site: int, rate: float, link: float, steps: float
) -> float:
    """
    Seconds that gathers and scatters add to the forward (0) or backward (1) pass of a stage on a site.

    ``gathers``: arrays of the placement problem; ``backward``, ``x``, ``site``: the pass, the stage and its site;
    ``rate``: seconds per byte of a gather; ``link``, ``steps``: seconds per byte and latency of the slowest link of the
    tensor group. Returns seconds.
    """
    sent = gathers.sent
    seconds = gathers.site_seconds[backward, x, site]
    seconds += gathers.ring_bytes[backward, x] * link + gathers.ring_steps[backward, x] * steps
    beside = rate * sent[2 * backward + 1, x]
    return float(rate * sent[2 * backward, x] + max(beside - seconds, gathers.slowdown * beside))
