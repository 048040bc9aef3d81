r"""
Micro-batches of replicas that sampled plans begin from, where replicas divide the batch unevenly.

(1) With :math:`T_z(m) = T_z(pp) + (m - pp) s_z` the seconds of replica z's pipeline, all end together after

    .. math:: T = \Big( \sum_z m_z + \sum_z T_z(pp) / s_z - dp\,pp \Big) \Big/ \sum_z 1 / s_z,

    and the counts are those of T rounded down to one at least; what is left over goes one each to the replicas that
    then end first, and what is too much is taken from those that end last.
(2) Beside these, the same with a micro-batch of a replica for another one.
"""

from collections.abc import Iterator

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.solver.certificate.reference.divisions import Stages
from taut.solver.certificate.reference.prices import pipelines
from taut.solver.certificate.reference.space import Case, Choice

Batches = tuple[int, ...]


def types_of_replicas(case: Case, choice: Choice) -> Ints:
    """Device type of every replica where those of one type follow each other, (dp,)."""
    kinds, size = _kinds(case), choice.pp * choice.block
    return np.repeat(np.arange(kinds.max() + 1), np.bincount(kinds) // size)


def by_type(case: Case, sequence: Ints) -> Ints:
    """Devices in another order: type by type, those of one type as before."""
    return sequence[np.argsort(_kinds(case)[sequence], kind="stable")]


def of_types(case: Case, choice: Choice, placements: Ints) -> Ints:
    """Those of some placements (n, pp, dp, block) that a choice may have: by type, one type after another."""
    if not choice.pipelines_by_type:
        return placements
    kinds, wanted = _kinds(case)[placements], types_of_replicas(case, choice)
    return np.asarray(placements[(kinds == wanted[:, None]).all(axis=(1, 2, 3))])


def _kinds(case: Case) -> Ints:
    names = list(case.cluster.devices)
    return np.repeat(
        [names.index(node.device.name) for node in case.cluster.node_list],
        [node.gpus_per_node for node in case.cluster.node_list],
    )


def batches(
    case: Case, choice: Choice, stages: Stages, recompute: tuple[str, ...], devices: Ints, rng: np.random.Generator
) -> Iterator[Batches]:
    """Micro-batches of every replica on a placement (pp, dp, block), (1) and (2); none where they are equal."""
    if not choice.pipelines_by_type:
        yield ()
        return
    plan = case, choice, stages, recompute, devices[None]
    at, more = (pipelines(*plan, np.full(choice.dp, m))[0] for m in (choice.pp, choice.pp + 1))
    pace = more - at
    counts = _together(at, pace, choice)
    yield tuple(counts.tolist())
    fewer, further = rng.permutation(choice.dp)[:2]
    if counts[fewer] > 1:
        counts[fewer] -= 1
        counts[further] += 1
        yield tuple(counts.tolist())


def _together(at: Floats, pace: Floats, choice: Choice) -> Ints:
    """Counts (1)."""
    total, dp, pp = choice.dp * choice.num_micro_batches, choice.dp, choice.pp
    if not (pace > 0).all():
        return np.full(dp, choice.num_micro_batches)
    end = (total + (at / pace).sum() - dp * pp) / (1 / pace).sum()
    counts: Ints = np.maximum(np.floor((end - at) / pace + pp), 1).astype(np.int64)
    while counts.sum() < total:
        counts[np.argmin(at + (counts + 1 - pp) * pace)] += 1
    while counts.sum() > total:
        counts[np.argmax(np.where(counts > 1, at + (counts - pp) * pace, -np.inf))] -= 1
    return counts
