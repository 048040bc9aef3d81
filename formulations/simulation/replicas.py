r"""
What the operators of every replica cost, and which replicas are alike.

Sets: replicas z, or where an expert group goes over several of them, so many together, which run in step
(``taut.formulations.degrees`` (2)); chunks c on pipeline ranks d(c); workers as in ``taut.formulations.latency``.

(1) The seconds of a replica's tasks depend on the device types of its blocks, the slowest links of their groups, the
    transfers between its chunks, and the rates of its gathers, alone.
(2) Replicas for which all of (1) are equal have equal tasks and, until the step's first reduction, no task that waits
    for another replica. They run at equal times, and one of them stands for all: a reduction that waits for each of
    them waits for it.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.problem import PlanningProblem
from taut.formulations.sharding import rates_by_worker
from taut.formulations.strategy import Strategy
from taut.formulations.tables.block_links import BlockLink, block_link


@dataclass(frozen=True, eq=False)
class Replicas:
    """
    Prices of the replicas that are simulated, (1).

    ``simulated``: replica that each simulated pipeline stands in for, the first of its kind (n,); ``like``: simulated
    pipeline of every replica (dp,); ``types``: whether a device type occurs in a block, (pp, n, types); ``links``:
    figures of ``BlockLink`` by pipeline rank, (9, pp, n); ``forth``, ``back``: seconds of transfers from every chunk to
    the next, and back (C - 1, n); ``rate``: seconds per byte of gathers, and of those of experts, (2, pp, n); 0 without
    gathers.
    """

    simulated: Ints
    like: Ints
    types: Ints
    links: Floats
    forth: Floats
    back: Floats
    rate: Floats

    def link(self, rank: int, pipeline: int) -> BlockLink:
        """Slowest links of a block."""
        return BlockLink(*self.links[:, rank, pipeline].tolist())

    def kinds(self, rank: int, pipeline: int) -> tuple[int, ...]:
        """Device types of a block."""
        return tuple(np.flatnonzero(self.types[rank, pipeline]).tolist())


def replicas_of(
    problem: PlanningProblem,
    strategy: Strategy,
    device: Ints,
    devices: Ints,
    *,
    every: bool = False,
    apart: Ints | None = None,
) -> Replicas:
    """
    Prices of a placement, each kind of replica once, (2).

    ``device``: pipeline rank of every chunk (C,); ``devices``: device of every worker (pp, dp, tp cp); ``every``:
    whether replicas that are alike are kept apart; ``apart``: kinds of replicas (dp,), of which those of different ones
    are kept apart.
    """
    candidate = strategy.candidate
    of_workers = problem.type_of_node[problem.links.node_of[devices]]
    types = (of_workers[..., None] == np.arange(len(problem.device_types))).any(axis=-2)
    links = np.stack(block_link(problem.links, devices, candidate.block))
    forth, back = _transfers(problem, strategy, device, devices)
    pipelines = candidate.pipelines
    rate = np.stack(rates_by_worker(problem, candidate, devices))
    figures = [types.swapaxes(1, 2).reshape(-1, pipelines), links.reshape(-1, pipelines), forth, back]
    figures += [rate.reshape(-1, pipelines)]
    figures += [] if apart is None else [apart[None, :]]
    rows = np.concatenate(figures).T
    _, simulated, like = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    simulated, like = simulated.ravel(), like.ravel()
    if every:
        simulated = like = np.arange(pipelines)
    return Replicas(
        simulated,
        like,
        types[:, simulated],
        links[:, :, simulated],
        forth[:, simulated],
        back[:, simulated],
        rate[:, :, simulated],
    )


def _transfers(problem: PlanningProblem, strategy: Strategy, device: Ints, devices: Ints) -> tuple[Floats, Floats]:
    """Seconds from every chunk to the next and of the gradient back, the slowest rank's, (C - 1, dp) each."""
    links, weight = problem.links, problem.coefficient("pipeline")
    sites = links.site_of[devices]
    before, after = sites[device[:-1]], sites[device[1:]]
    message = problem.tables(strategy.candidate).message[strategy.division.ends[:-1]][:, None, None]
    inverse = 1.0 / links.pipeline_rate(strategy.candidate.width)
    forth = links.latency[before, after] + message * inverse[before, after]
    back = links.latency[after, before] + message * inverse[after, before]
    return weight * forth.max(axis=-1), weight * back.max(axis=-1)
