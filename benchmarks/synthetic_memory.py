r"""
Synthetic memory campaigns: runs whose bytes come from the project's own formulas, and noise.

(1) bytes :math:`= \epsilon (\max_s \sum_k c_k x_{sk} + overhead + e)`, with the terms x of
    ``taut.formulations.batch.memory`` for the first and the last stage s, :math:`\ln \epsilon` normal with standard
    deviation 0.03, and coefficients c and an overhead that no model is told;
(2) e = 0, or in the campaign with effects that the formulas lack: buffers of communicators that grow with the
    logarithm of the data degree and with the stages, and fragments that grow with the micro-batch's tokens;
(3) a run exists if it fits an 80 GB device, as no other could have been measured.

Since a fit of the formulas has the right form in all but (2), these campaigns flatter it; what they show is how a
network that is told the same samples goes on where they end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.memory import MEMORY_TERMS, MemoryModel
from taut.data.samples import ConfigurationRow
from taut.data.units import GIB
from taut.errors import DataError
from taut.prediction.fitting import stage_terms
from taut.solver.calibration.memory import predicted

DEVICE, CAPACITY = "a100-80gb", 80 * GIB
SHAPES = [
    (1024, 24, 16),
    (1536, 24, 16),
    (1920, 24, 20),
    (1920, 64, 20),
    (2560, 32, 32),
    (3072, 64, 32),
    (3072, 96, 32),
    (4096, 48, 32),
    (5120, 40, 40),
    (6144, 48, 48),
    (8192, 64, 64),
    (10240, 80, 80),
    (12288, 96, 96),
]
"""Hidden size, layers and heads of GPT models; 1920 x 24 and x 64, and 3072 x 64 and x 96, are Pipette's."""
SMALL, LARGE = (1, 2, 4, 8, 16, 32), (64, 128, 256, 384)
"""Numbers of devices that train the models, and that they are asked about."""
STAGES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
NOISE = 0.03
TRUTH = {"activations": 1.1, "checkpoints": 1.15, "workspace": 1.3, "logits": 1.5}
OVERHEAD_GIB = 5.3


@dataclass(frozen=True)
class Runs:
    """Configurations and the bytes that were measured, (runs,)."""

    rows: list[ConfigurationRow]
    measured: Floats

    def take(self, indices: Ints) -> "Runs":
        """The runs at these indices."""
        return Runs([self.rows[index] for index in indices], self.measured[indices])


def formula_terms(rows: list[ConfigurationRow]) -> Floats:
    """Terms of the project's formulas at coefficient 1, (runs, stages, terms); the only use made of them."""
    precision = rows[0].precision or "bf16"
    return stage_terms(rows, MemoryModel(device=DEVICE, precision=precision))


def measured_runs(gpus: tuple[int, ...], count: int, seed: int, *, mixed: bool, effects: bool) -> Runs:
    """
    So many runs drawn from all that fit, (1) to (3).

    Parameters
    ----------
    gpus
        Numbers of devices.
    count, seed
        Runs to draw, and the seed of draw and noise.
    mixed
        Whether runs differ in recompute and ZeRO stage (0 and 1), instead of having neither.
    effects
        Whether bytes have what the formulas lack, (2).
    """
    rng, rows = np.random.default_rng(seed), list(configurations(gpus, mixed=mixed))
    true = np.array([*(TRUTH.get(term, 1.0) for term in MEMORY_TERMS), 0.0, OVERHEAD_GIB * GIB])
    clean = predicted(formula_terms(rows), true) + (_unmodelled(rows) if effects else 0.0)
    measured = clean * np.exp(rng.normal(0, NOISE, len(rows)))
    fitting = np.flatnonzero(measured <= CAPACITY)
    return Runs(rows, measured).take(rng.choice(fitting, min(count, len(fitting)), replace=False))


def _unmodelled(rows: list[ConfigurationRow]) -> Floats:
    """Bytes that no term of the formulas has, (2)."""
    dp, pp, tokens = np.array([(row.dp, row.pp, row.micro_batch * row.seq) for row in rows], dtype=float).T
    return np.asarray(GIB * (0.4 * np.log2(dp) + 0.15 * pp + 0.8 * np.sqrt(tokens / 2048)))


def configurations(gpus: tuple[int, ...], *, mixed: bool) -> Iterator[ConfigurationRow]:
    """Every even configuration of the shapes: tp to 8, micro-batch 1 to 8, global batch 128 to 512 (as in Pipette)."""
    kinds: list[dict[str, Any]] = [{}]
    if mixed:
        kinds = [{"recompute": kind, "zero": zero} for kind in ("none", "selective", "full") for zero in (0, 1)]
    for (hidden, layers, heads), number, tp, pp in product(SHAPES, gpus, (1, 2, 4, 8), STAGES):
        if number % (tp * pp) or layers % pp:
            continue
        degrees = {"n_gpus": number, "tp": tp, "pp": pp, "dp": number // tp // pp, "precision": "bf16"}
        shape = {"gpu": DEVICE, "hidden": hidden, "layers": layers, "heads": heads}
        for micro_batch, global_batch, kind in product((1, 2, 4, 8), (128, 256, 384, 512), kinds):
            batch = {"micro_batch": micro_batch, "global_batch": global_batch}
            try:
                yield ConfigurationRow.parse({**shape, **degrees, **batch, **kind}, "row")
            except DataError:
                continue
