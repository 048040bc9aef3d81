r"""
AMP's placements as tilings of a mesh by dominoes, one a stage (section 6.3).

The mesh has the devices of a node below each other and the nodes side by side. A domino holds the tp dp ranks of a
stage: devices above each other in it form tensor groups, those side by side replicas. It lies flat, tp high and dp
wide, or stands, as many replicas above each other as a node has room for. The mesh is cut into bands of whole nodes,
each tiled by dominoes of one kind; the kind of each band and the order of the bands are drawn.
"""

import numpy as np

from taut.data.arrays import Ints


def sample_domino(
    rng: np.random.Generator, gpus_per_node: int, nodes: int, degrees: tuple[int, int, int]
) -> Ints | None:
    """
    A random tiling as a placement.

    ``gpus_per_node``, ``nodes``: height and width of the mesh; ``degrees``: pp, tp and dp. Returns device of every
    worker, (pp, dp, tp); None where no domino fits the mesh.
    """
    pp, tp, dp = degrees
    shapes = _shapes(gpus_per_node, nodes, tp, dp)
    if not shapes:
        return None
    free, stages = rng.permutation(nodes).tolist(), []
    while free:
        fitting = [(above, wide) for above, wide in shapes if wide <= len(free)]
        # What is left of the mesh must hold whole dominoes of some kind.
        fitting = [shape for shape in fitting if (len(free) - shape[1]) % min(wide for _, wide in shapes) == 0]
        if not fitting:
            return None
        above, wide = fitting[rng.integers(len(fitting))]
        columns, free = sorted(free[:wide]), free[wide:]
        for row in range(0, gpus_per_node, tp * above):
            starts = [node * gpus_per_node + row + tp * z for node in columns for z in range(above)]
            stages.append(np.array(starts)[:, None] + np.arange(tp))
    return np.array(stages) if len(stages) == pp else None


def _shapes(gpus_per_node: int, nodes: int, tp: int, dp: int) -> list[tuple[int, int]]:
    """Replicas above each other and nodes side by side of a domino that lies flat, and of one that stands."""
    if gpus_per_node % tp:
        return []
    room = gpus_per_node // tp
    standing = max(above for above in range(1, min(room, dp) + 1) if room % above == 0 and dp % above == 0)
    return [(above, dp // above) for above in sorted({1, standing}) if dp // above <= nodes]
