"""Divisions of the layers into stages, and recomputes of the stages, that sampled plans begin from."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from taut.solver.certificate.published_orders import order_for
from taut.solver.certificate.reference.divisions import Stages
from taut.solver.certificate.reference.layers import layers_of
from taut.solver.certificate.reference.memory import memory_bytes
from taut.solver.certificate.reference.space import Case, Choice

Recompute = tuple[str, ...]


def recomputes(case: Case, choice: Choice) -> list[str]:
    """Recomputes that a stage of a candidate may choose."""
    return case.recomputes(choice)


def between(cuts: Sequence[int], layers: int) -> Stages:
    """The division with these boundaries."""
    return tuple(pairwise([0, *cuts, layers]))


def even(layers: int, chunks: int) -> Stages:
    """The division into numbers of layers that differ by one at most."""
    return between([layers * c // chunks for c in range(1, chunks)], layers)


def balanced(case: Case, choice: Choice) -> Stages:
    """A division into about equal seconds on the first device type."""
    layers, chunks = choice.parts(case), choice.pp * choice.vpp
    seconds = np.cumsum(layers_of(case, choice).passes[:, 0, 0].sum(axis=0))
    cuts: list[int] = []
    for c in range(1, chunks):
        wanted = int(np.searchsorted(seconds, seconds[-1] * c / chunks, side="right"))
        cuts.append(min(max(wanted, (cuts[-1] if cuts else 0) + 1), layers - (chunks - c)))
    return between(cuts, layers)


def fitted(case: Case, choice: Choice, stages: Stages, budget: float) -> Recompute:
    """For every rank the first recompute within a budget of bytes, or the one that holds least."""
    kinds, order = recomputes(case, choice), order_for(case, choice)
    need = [memory_bytes(case, choice, stages, (kind,) * len(stages), order) for kind in kinds]
    chosen = []
    for rank in range(choice.pp):
        fits = [k for k in range(len(kinds)) if need[k][rank] <= budget]
        chosen.append(kinds[fits[0] if fits else min(range(len(kinds)), key=lambda k: need[k][rank])])
    return tuple(chosen[rank] for rank in choice.chunk_device)
