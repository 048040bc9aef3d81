"""
The least and the longest that a hop between stages can take, whichever devices of their types they are on.

Source of the rules: ``taut.solver.meshes.bound`` (3).
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.meshes.choice import Mesh
from taut.formulations.meshes.crossing import common_shares
from taut.formulations.pair_table import PairTable
from taut.formulations.problem import PlanningProblem


class HopRange(NamedTuple):
    """Seconds of a hop there and back at least, and back at most, by the layer after the cut (L+1,)."""

    least: Floats
    most_back: Floats


def hop_range(problem: PlanningProblem, here: Mesh, there: Mesh, inverse: PairTable, message: Floats) -> HopRange:
    """
    Bound the hops between two stages.

    ``problem``: links of the cluster; ``here``, ``there``: meshes of the stages; the same one for stages of one mesh;
    ``inverse``: seconds per byte between sites; ``message``: bytes of one rank of the first stage by the layer after
    the cut, (L+1,).
    """
    i, j = _sites(problem, here.kind)[:, None], _sites(problem, there.kind)[None, :]
    latency = problem.links.latency
    ways = [(latency[a, b], inverse[a, b]) for a, b in ((i, j), (j, i))]
    if here == there:
        apart = np.ones(ways[0][0].shape, bool) if problem.links.by_node else i != j
        (wait, each), (wait_back, each_back) = ways
        return HopRange(
            _extreme(wait + wait_back, each + each_back, message, apart)[0],
            _extreme(wait_back, each_back, message, apart)[1],
        )
    every = np.ones(ways[0][0].shape, bool)
    ratio = here.tp * here.dp / (there.tp * there.dp)
    least = sum(_extreme(wait, each, message * max(1.0, ratio), every)[0] for wait, each in ways)
    pieces = _most_pieces(here, there)
    most = _extreme(pieces * ways[1][0], ways[1][1], message * max(1.0, ratio), every)[1]
    return HopRange(np.asarray(least), most)


def _most_pieces(here: Mesh, there: Mesh) -> int:
    """The most pieces that a rank of either stage exchanges."""
    shares = common_shares(here.dp, there.dp) > 0, common_shares(here.tp, there.tp) > 0
    return max(int(np.prod([each.sum(axis=axis).max() for each in shares])) for axis in (0, 1))


def _extreme(wait: Floats, each: Floats, message: Floats, chosen: Flags) -> tuple[Floats, Floats]:
    """Least and most seconds of messages over chosen links with so many seconds of latency and seconds per byte."""
    pairs = np.unique(np.stack([wait[chosen], each[chosen]]), axis=1)
    seconds = pairs[0] + message[:, None] * pairs[1]
    return np.asarray(seconds.min(axis=1)), np.asarray(seconds.max(axis=1))


def _sites(problem: PlanningProblem, kind: int) -> Ints:
    """Sites on nodes of a type."""
    return np.flatnonzero(problem.type_of_node[problem.links.node_of_site] == kind)
