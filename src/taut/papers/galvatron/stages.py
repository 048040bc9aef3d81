r"""
A lower bound on plans with a pipeline, and a plan.

By (1) to (3) of ``taut.papers.galvatron.step`` the time of p stages is at least

(1) :math:`\max(R_1, R_2)`,
(2) :math:`\sum_{j > i} C_j + (m - 1) C_{p-1} + S_i` for every stage i,
(3) :math:`\max(\min(p - 1, m - 1) C_0, \sum_{i > 0} C_i) + (m - p) C_0 + S_0`,

as the reduction that is counted is not below that of one stage, nor below 0. All three grow with every :math:`C_i` and
:math:`S_i`, whose least values within the memory of a stage are each found by ``taut.papers.galvatron.packing``.
The bound may stay below every plan, since no plan need have all least values at once.
"""

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.papers.galvatron.step import pipeline_seconds


def pipeline_bound(last: Floats, others: Floats, chunks: int) -> float:
    """
    The largest of (1) to (3).

    ``last``, ``others``: least S and C by stage, infinite where nothing fits; ``chunks``: micro-batches of a step, as
    many as stages at least.
    """
    if not (np.isfinite(last).all() and np.isfinite(others).all()):
        return np.inf
    stages = len(others)
    behind: Floats = np.append(np.cumsum(others[:0:-1])[::-1], 0.0)
    second = float(np.max(behind + last)) + (chunks - 1) * float(others[-1])
    filled = max(min(stages - 1, chunks - 1) * float(others[0]), float(behind[0]))
    third = filled + (chunks - stages) * float(others[0]) + float(last[0])
    return max(pipeline_seconds(others, chunks), second, third)


def in_order(counts: Ints) -> list[int]:
    """Ways of spreading by layer, those of one kind together."""
    return [kind for kind, number in enumerate(counts) for _ in range(int(number))]
