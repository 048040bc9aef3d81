r"""
Memory of a stage as a network predicts it, tabulated for the program.

A memory network (``taut.data.memory_network``) sees a candidate and its recompute, not a stage, so it stands for even
partitions alone: with L layers on pp stages a stage has :math:`\lfloor L / pp \rfloor` or
:math:`\lceil L / pp \rceil` of them. For candidate c, recompute r and range [i, j),

(1) bytes[r, i, j] = prediction(c, r) where j - i is one of those sizes, and more than any device has elsewhere, so
    that no other division is feasible;
(2) feasible on a device type: ceil(bytes / 1024) + margin <= capacity, in KiB, with the network's own margin.

The features are tabulated exactly over the finite domain (candidate, recompute), so the rows of the integer program and
the dynamic programming are linear in them. A stage that recomputes is predicted as if all stages did.
"""

import numpy as np

from taut.data.arrays import Floats
from taut.data.costs import RECOMPUTE
from taut.data.memory_network import MemoryNetwork
from taut.data.model import ModelSpec
from taut.data.units import KIB, MOST_BYTES
from taut.errors import FormulationError
from taut.formulations.space import Candidate
from taut.formulations.tables.memory import StageMemory


def network_stage_memory(
    network: MemoryNetwork,
    model: ModelSpec,
    candidate: Candidate,
    capacity_kib: list[int],
    *,
    margin: bool = True,
) -> StageMemory:
    """
    Memory of every range under a candidate, (1) and (2).

    ``model``: what is trained; its layers are of one kind; ``candidate``: degrees, micro-batch, schedule and ZeRO
    stage; ``capacity_kib``: capacity by device type; ``margin``: whether the margin is kept free. Raises
    ``FormulationError`` if the model has layers of several kinds, or with experts or latent attention.
    """
    layers = len(model.blocks)
    predicted = np.ceil(network.predict(candidate_features(network.names, model, candidate))).astype(np.int64)
    first, end = np.arange(layers + 1)[:, None], np.arange(layers + 1)[None, :]
    even = np.isin(end - first, (layers // candidate.pp, -(-layers // candidate.pp)))
    fixed = np.where(even[None], predicted[:, None, None], MOST_BYTES)
    free = [kib - (network.margin_kib(kib) if margin else 0) for kib in capacity_kib]
    budget = np.array([kib * KIB for kib in free], dtype=np.int64)
    return StageMemory(fixed, np.zeros_like(fixed), np.ones(candidate.pp, dtype=np.int64), budget)


def candidate_features(names: list[str], model: ModelSpec, candidate: Candidate) -> Floats:
    """Features of a candidate under each recompute, (recompute, names)."""
    if len(model.kinds) != 1:
        raise FormulationError(f"{model.name}: layers of {len(model.kinds)} kinds, expected one for a memory network")
    block, micro = model.blocks[0], candidate.micro_batch
    if block.experts or block.latent or block.mixer or not block.is_usual:
        part = "experts" if block.experts else "latent attention" if block.latent else "no plain attention"
        raise FormulationError(f"{model.name}: layers have {part}, expected dense ones for a memory network")
    known: dict[str, float] = {
        "n_gpus": candidate.pp * candidate.tp * candidate.dp,
        "layers": len(model.blocks),
        "hidden": block.hidden,
        "heads": block.heads,
        "tp": candidate.tp,
        "pp": candidate.pp,
        "dp": candidate.dp,
        "micro_batch": micro,
        "mini_batch": micro * candidate.num_micro_batches,
        "global_batch": micro * candidate.num_micro_batches * candidate.dp,
        "kv_heads": block.key_value_heads,
        "ffn_hidden": block.ffn,
        "seq": block.seq,
        "vocab": model.vocab or 0,
        "cp": 1,
        "vpp": candidate.vpp,
        "gpipe": candidate.schedule == "gpipe",
        "zero": candidate.zero,
    }
    rows = [{**known, "selective": kind == "selective", "full": kind == "full"} for kind in RECOMPUTE]
    return np.array([[float(row[name]) for name in names] for row in rows])
