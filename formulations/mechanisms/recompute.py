r"""
Recompute: what the backward pass computes again instead of keeping it.

(8) With ``recompute_by_stage`` every stage chooses its recompute, and ``uniform_recompute`` is empty. Without, there is
    a candidate for each recompute, which all its stages share. Schedules that split the backward pass exclude full
    recompute.
(33) With ``block_recompute``, and one recompute for all stages, a candidate of full recompute also exists with
    ``recompute_layers`` k for each :math:`1 \le k < \lceil L / (pp\,vpp) \rceil`: every chunk recomputes its first k
    layers and keeps what the others need, as Megatron-LM's ``--recompute-method block`` does
    (megatron/core/transformer/transformer_block.py, ``_checkpointed_forward``). From that k on an even division is full
    recompute. Models that predict further tokens have none, since their last layers are not recomputed there
    (megatron/core/transformer/multi_token_prediction.py), and neither have spaces with activations on hosts.

A chunk on the range [i, j) of layers with :math:`x_l` seconds, or bytes, without recompute and :math:`y_l` with all of
it has

.. math:: X_{ij} = \sum_{l=i}^{j-1} x_l + \sum_{l=i}^{\min(i+k,j)-1} (y_l - x_l). \tag{1}

Seconds rise with k, and bytes that stay for the backward pass fall. Recomputing brings back one layer at a time, so a
device holds for a moment the most that any of the first k layers kept no longer. If checkpoints and activations have
the coefficients :math:`c_y` and :math:`c_x` in the memory model, bytes of a layer that is kept count as
:math:`\lceil (c_x / c_y) x_l \rceil` of checkpoints (2).

Bounds know these ranges by their figures alone. Two things that hold elsewhere do not hold here. A range may take less
than the sum of its layers, each a range of its own, so bounds by single layers take the least of a layer that is kept
and one that is recomputed. A range that begins later may take longer, where a long layer comes among the first k.
Bounds that rely on the opposite take the least of a range and of all that hold it
(``taut.formulations.order_division``).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from taut.data.costs import MODULES, RECOMPUTE, Recompute
from taut.formulations.fields import (
    Compared,
    Field,
    Fix,
    Runs,
    Sentence,
    Variants,
    Words,
    chunk_count,
    named,
    one_of_names,
    some_of_names,
)
from taut.formulations.schedules.orders import SPLIT

if TYPE_CHECKING:
    from taut.formulations.space import Candidate, StrategySpace, Workload


def block_words(layers: int) -> str:
    """What recompute of so many first layers of a chunk is called; empty for none."""
    first = "first layer" if layers == 1 else f"first {layers} layers"
    return f"recompute of the {first} of a chunk" if layers else ""


def _layer_count(value: object, batch: int, devices: int) -> str | None:
    """Accept a whole number above 0."""
    return chunk_count(value, batch, devices) and "a number of layers of a chunk, from 1 on"


FIRST_LAYERS = Field(
    launched=True,
    meaning="Layers from the first on that every chunk recomputes; 0 where it is all of them, or none.",
    seldom=True,
    fix=Fix(16, int, _layer_count),
    grouped=True,
    words=Words(18, named("recompute_layers", 0), short=11),
    sentence=Sentence(1, 5, lambda strategy, space: block_words(strategy.recompute_layers)),
    compared=Compared(13, held=False, shown=False),
)
OF_ALL_STAGES = {
    "recompute": Fix(16, str, one_of_names(RECOMPUTE)),
    "recompute_modules": Fix(17, str, some_of_names(MODULES)),
}
"""What may be fixed of the recompute: that of every stage, and the modules of selective recompute."""


def with_recompute(workload: "Workload", candidate: "Candidate") -> Iterator["Candidate"]:
    """The candidate with each recompute that all stages share, or itself where each stage chooses, (8)."""
    if workload.space.recompute_by_stage:
        yield candidate
        return
    for name in recompute_of(workload.space, candidate.schedule):
        shared = candidate.changed(uniform_recompute=name)
        yield shared
        if name == "full":
            for layers in range(1, fewer_layers(workload, candidate)):
                yield shared.changed(recompute_layers=layers)


def fewer_layers(workload: "Workload", candidate: "Candidate") -> int:
    """The least number of layers of a chunk that is not recomputed in part, (33); at most 1 where none is."""
    if not workload.space.block_recompute or workload.space.activation_offload or workload.model.mtp_layers:
        return 1
    return -(-len(workload.model.blocks) // (candidate.pp * candidate.vpp))


def recompute_of(space: "StrategySpace", schedule: str) -> tuple[Recompute, ...]:
    """Recompute that a stage may choose under a schedule, in the order of ``RECOMPUTE``, (8)."""
    return tuple(name for name in RECOMPUTE if name in space.recompute and not (name == "full" and schedule in SPLIT))


SHARED_RECOMPUTE = Field(
    variants=Variants(4, with_recompute),
    launched=True,
    meaning="The recompute of every stage; empty where each stage has its own.",
    seldom=True,
    words=Words(17, lambda each: f"recompute={each.uniform_recompute}" if each.uniform_recompute else ""),
    runs=Runs(
        "recompute",
        1,
        lambda value: "no recompute" if value == "none" else f"{value} recompute",
        lambda candidate: candidate.uniform_recompute or None,
    ),
)


def in_part(candidate: "Candidate") -> bool:
    """Whether chunks recompute some of their layers and keep the others, (33)."""
    return candidate.recompute_layers > 0


def suits(candidate: "Candidate", kept: tuple[Recompute, ...]) -> bool:
    """Whether a candidate has a recompute among those that a mechanism leaves."""
    return candidate.uniform_recompute in kept or (bool(kept) and not candidate.uniform_recompute)
