r"""
Divisions whose larger chunks lie in a row: good ones at once where layers do not divide evenly.

With C chunks and a, b = 0 or 1 layers fewer in the model's first and last chunk, beside which embedding and head are,
let :math:`L + a + b = q C + k`. Then

(1) :math:`k` consecutive chunks :math:`s, \dots, s + k - 1` have q + 1 layers and all others q, less a in the first
    chunk and b in the last.

A device waits in the beginning for the first chunks before its own, and at the end for their backward passes, so small
chunks at both ends keep the fullest devices busy; and chunks of a round that are alike do not wait for each other. Of
126 layers in 48 chunks on 12 devices the best (1) is quicker than what three long runs of annealing find.
"""

from collections.abc import Callable, Iterator

import numpy as np

from taut.formulations.order_division import ChunkProblem
from taut.formulations.strategy import Division
from taut.solver.order_priced.master_rows import least_makespan

MOST_PASSES = 2_000_000
"""Passes that are priced at most for each recompute, of all (1) together: a tenth of a second."""


def bands(given: ChunkProblem, recompute: int) -> Iterator[Division]:
    """Divisions (1) with one recompute, evenly thinned where there are many."""
    every = list(dict.fromkeys(_bands(given)))
    most = max(MOST_PASSES // len(given.order.passes), 1)
    for layers in every[:: -(-len(every) // most)]:
        yield Division.of_ends(given.ends_of(np.array(layers)), np.full(len(layers), recompute, dtype=np.int64))


def _bands(given: ChunkProblem) -> Iterator[tuple[int, ...]]:
    """Layers of every chunk of (1); none in the first or the last where these have embedding or head alone."""
    chunks, least = given.num_chunks, np.ones(given.num_chunks, dtype=np.int64)
    least[[0, -1]] -= given.ends
    for a, b in ((0, 0), (1, 0), (0, 1), (1, 1)):
        each, more = divmod(given.num_layers - 2 * given.ends + a + b, chunks)
        for s in range(chunks - more + 1 if more else 1):
            layers = np.full(chunks, each)
            layers[s : s + more] += 1
            layers[0] -= a
            layers[-1] -= b
            if (layers >= least).all():
                yield tuple(layers.tolist())


def quickest_bands(given: ChunkProblem, excess: Callable[[Division], int], limit: float = np.inf) -> Iterator[Division]:
    """
    The quickest division (1) of each recompute that fits.

    ``excess``: bytes that a division lacks on the worst device; ``limit``: seconds beyond which a division is of no
    use.
    """
    for recompute in given.recomputes.tolist():
        found = list(bands(given, recompute))
        seconds = [least_makespan(given, division) for division in found]
        useful = (found[k] for k in np.argsort(seconds, kind="stable").tolist() if seconds[k] < limit)
        fitting = next((division for division in useful if excess(division) == 0), None)
        if fitting is not None:
            yield fitting
