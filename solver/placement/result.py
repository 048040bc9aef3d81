"""A placement found, by whatever algorithm: exact, annealed or constructed."""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.placement import PlacementProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlacement:
    """
    A placement of one strategy: its seconds, and the sites of every position.

    ``seconds`` are those of a step without the optimizer; ``positions`` (pp * dp, R) as in
    ``taut.formulations.placement``.
    """

    seconds: float
    positions: Ints


def found_placement(given: PlacementProblem, devices: Ints) -> FoundPlacement:
    """
    Sites of the positions whose workers have these devices.

    ``given``: the strategy that is placed; ``devices``: device of every worker, (pp, pipelines, width).
    """
    candidate = given.candidate
    blocks = devices.swapaxes(0, 1).reshape(candidate.pp * candidate.pipelines, candidate.width)
    sites = np.asarray(given.links.site_of[blocks][:, :: candidate.width // given.ranks])
    return FoundPlacement(seconds=given.cost(sites), positions=sites)
