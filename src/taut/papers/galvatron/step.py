r"""
Seconds and memory of a whole plan, as Galvatron's ``pipeline_costmodel`` has them.

Let stage i of p have layers of :math:`a_l` seconds in the last micro-batch and :math:`b_l` in others, and :math:`o_i`
of embedding and head, :math:`C_i = \sum_l b_l + o_i`, :math:`S_i = \sum_l a_l`. With m micro-batches

(1) :math:`R_1 = \sum_i C_i + (m - 1) C_{p-1}`,
(2) :math:`R_2 = \max(\min(p - 1, m - 1) C_0, \sum_{i > 0} C_i) + (m + 1 - p) C_0`,
(3) :math:`T = \max(R_1, R_2) + \max(0, \max_i S_i - \sum_{j \le i} C_j)`,

the last being reductions that no later stage hides. On one stage :math:`T = \max(m C, (m - 1) C + S)`. Redistribution
between layers over different ways is in the search's dynamic program and not in the time that it reports; here, too.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats
from taut.data.readers.galvatron.plans import Split
from taut.papers.galvatron.layers import layer_mib, layer_price
from taut.papers.galvatron.problem import GalvatronProblem, Setting
from taut.papers.galvatron.vocabulary import buffer_mib, vocabulary_mib, vocabulary_seconds


@dataclass(frozen=True, slots=True)
class GalvatronPrice:
    """Seconds of a step, and whole MiB by stage."""

    seconds: float
    mib: tuple[int, ...]


def price(problem: GalvatronProblem, setting: Setting, layers: tuple[Split, ...], ends: Split) -> GalvatronPrice:
    """
    Price a plan.

    ``problem``, ``setting``: what is planned, at which numbers of micro-batches and stages; ``layers``, ``ends``: how
    each layer, and embedding and head, are spread.
    """
    ways = max(split.ways for split in (*layers, ends))
    buffer = buffer_mib(problem, setting, ways) if any(split.tp > 1 for split in (*layers, ends)) else 0
    held = vocabulary_mib(problem, setting, ends)
    last, others = np.zeros(setting.pp), np.array(vocabulary_seconds(problem, setting, ends))
    first = 0
    for stage, count in enumerate(problem.division(setting.pp)):
        for split in layers[first : first + count]:
            seconds = layer_price(problem, setting, split)
            last[stage] += seconds.last
            others[stage] += seconds.others
            held[stage] += layer_mib(problem, setting, split, stage)
        first += count
    return GalvatronPrice(step_seconds(last, others, setting.chunks), tuple(mib + buffer for mib in held))


def step_seconds(last: Floats, others: Floats, chunks: int) -> float:
    """Seconds of a step by those of the stages, S and C, (3)."""
    hidden = float(np.max(last - np.cumsum(others)))
    return pipeline_seconds(others, chunks) + max(0.0, hidden)


def pipeline_seconds(others: Floats, chunks: int) -> float:
    """Seconds without the last reductions, the larger of (1) and (2)."""
    stages = len(others)
    first = float(others.sum() + others[-1] * (chunks - 1))
    filled = max(min(stages - 1, chunks - 1) * others[0], others[1:].sum())
    return max(first, float(filled + others[0] * max(0, chunks + 1 - stages)))
