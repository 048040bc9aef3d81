"""A placement found, by whatever algorithm: exact, annealed or constructed."""

from dataclasses import dataclass

from taut.data.arrays import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlacement:
    """
    A placement of one strategy: its seconds, and the sites of every position.

    ``seconds`` are those of a step without the optimizer; ``positions`` (pp * dp, R) as in
    ``taut.formulations.placement``.
    """

    seconds: float
    positions: Ints
