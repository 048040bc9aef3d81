r"""
Groups of processes that a plan's degrees imply: who exchanges what with whom.

Processes are numbered as in ``taut.exports.job`` (1), N = tp cp dp of them on a stage. Within a stage the same numbers
count twice, once for attention and once for experts (``taut.formulations.degrees`` (1) and (3)):

(1) :math:`r = ((x \, dp + z) \, cp + c) \, tp + t`, tensor rank t, context rank c, replica z;
(2) :math:`r = ((x \, edp + w) \, ep + e) \, etp + u`, expert tensor rank u, expert rank e, copy w of the experts, with
    edp = N / (ep etp). Without expert ranks all tensor ranks share every expert: etp = tp.
(3) Where ``dp_shard`` replicas share a copy of the weights, a stage has C = dp cp / dp_shard copies, each of N / C
    consecutive processes.

A group is named after the one number that differs in it; ``dp_cp`` holds all processes with the same dense weights,
``expert`` those that hold one copy of all experts of a stage. Of a copy ``dp_shard`` and ``edp_shard`` are the parts of
``dp_cp`` and ``edp``, and ``dp_replicate`` holds processes with the same shards.
"""

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.space import Candidate
from taut.solver.certificate.document import StrategySection

Degrees = Candidate | StrategySection
"""What has the degrees: a candidate, and the strategy of a plan."""


def rank_groups(chosen: Degrees) -> dict[str, Ints]:
    """
    All groups by name, each (groups, processes of a group).

    Parameters
    ----------
    chosen
        Degrees of a plan or candidate.

    Examples
    --------
    >>> chosen = Candidate(1, 2, 4, 1, 1, 4, "1f1b", 1, True, ep=4, etp=1)
    >>> groups = rank_groups(chosen)
    >>> groups["dp"].tolist(), groups["ep"].tolist(), groups["edp"].tolist()
    ([[0, 2, 4, 6], [1, 3, 5, 7]], [[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 4], [1, 5], [2, 6], [3, 7]])
    """
    dense = np.arange(chosen.pp * chosen.dp * chosen.cp * chosen.tp).reshape(chosen.pp, chosen.dp, chosen.cp, chosen.tp)
    routed, copies = dense.reshape(chosen.pp, *_expert_grid(chosen)), num_copies(chosen)
    of_copies = dense.reshape(chosen.pp, copies, -1)
    return {
        "tp": _along(dense, 3),
        "cp": _along(dense, 2),
        "dp": _along(dense, 1),
        "dp_cp": _along(dense, 1, 2),
        "pp": _along(dense, 0),
        "etp": _along(routed, 3),
        "ep": _along(routed, 2),
        "expert": _along(routed, 2, 3),
        "edp": _along(routed, 1),
        "dp_shard": _along(of_copies.reshape(chosen.pp, copies, -1, chosen.tp), 2),
        "edp_shard": _along(of_copies.reshape(chosen.pp, copies, -1, routed[0, 0].size), 2),
        "dp_replicate": _along(of_copies, 1),
    }


def num_copies(chosen: Degrees) -> int:
    """Copies of what is sharded on a stage, (3)."""
    return chosen.dp * chosen.cp // chosen.dp_shard if chosen.dp_shard else 1


def _expert_grid(chosen: Degrees) -> tuple[int, int, int]:
    """Copies of the experts, expert ranks, and expert tensor ranks of a stage, (2)."""
    etp = chosen.etp or chosen.tp
    return chosen.dp * chosen.cp * chosen.tp // (chosen.ep * etp), chosen.ep, etp


def _along(grid: Ints, *axes: int) -> Ints:
    """Processes that differ in some axes alone, a group each row."""
    size = int(np.prod([grid.shape[axis] for axis in axes]))
    return np.moveaxis(grid, axes, range(-len(axes), 0)).reshape(-1, size)
