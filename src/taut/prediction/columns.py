"""
Rows of configurations as columns: what the batch form prices.

What a row leaves open is its stack's: sequence parallelism of tensor ranks as its memory model was fitted, the overlap
of gradient reductions and the kind of context ranks as the framework has them.

A network that predicts memory sees features of these columns (``taut.data.memory_network``).
"""

from collections.abc import Sequence

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.data.memory import MemoryModel
from taut.data.memory_network import FEATURES
from taut.data.samples import ConfigurationRow
from taut.data.stack import CONTEXT_KINDS, SCHEDULES, ContextKind
from taut.formulations.batch.configurations import Configurations, even_division
from taut.formulations.schedules.plan_orders import ORDER_PRICED, SPLIT, chunks_of_device, is_defined


def network_features(rows: Sequence[ConfigurationRow], names: Sequence[str] = FEATURES) -> Floats:
    """What a ``MemoryNetwork`` sees of configurations, (rows, names); what is not named has to be the same in all."""
    return np.array([_figures(row, names) for row in rows], dtype=np.float64).reshape(len(rows), len(names))


def _figures(row: ConfigurationRow, names: Sequence[str]) -> list[float]:
    """Features of a configuration; heads and widths that it does not state take their defaults."""
    derived: dict[str, float] = {
        "heads": row.attention_heads,
        "kv_heads": row.key_value_heads,
        "ffn_hidden": row.ffn_hidden or 4 * row.hidden,
        "mini_batch": row.global_batch // row.dp,
        "gpipe": row.schedule == "gpipe",
        "selective": row.recompute == "selective",
        "full": row.recompute == "full",
    }
    return [derived[name] if name in derived else getattr(row, name) for name in names]


def columns_of(
    rows: list[ConfigurationRow],
    *,
    sequence_parallel: bool = False,
    overlap: bool = False,
    cp_comm: ContextKind = "p2p",
) -> Configurations:
    """Rows that ``refusal`` lets pass as columns; the options hold of rows that do not say."""

    def column(values: list[int]) -> Ints:
        return np.array(values, dtype=np.int64)

    return Configurations(
        hidden=column([row.hidden for row in rows]),
        layers=column([row.layers for row in rows]),
        heads=column([row.attention_heads for row in rows]),
        kv_heads=column([row.key_value_heads for row in rows]),
        ffn_hidden=column([row.ffn_hidden or 4 * row.hidden for row in rows]),
        seq=column([row.seq for row in rows]),
        vocab=column([row.vocab for row in rows]),
        gated=column([row.gated for row in rows]),
        dropout=_said([row.dropout for row in rows], np.array([not row.gated for row in rows], dtype=bool)),
        tp=column([row.tp for row in rows]),
        pp=column([row.pp for row in rows]),
        dp=column([row.dp for row in rows]),
        cp=column([row.cp for row in rows]),
        vpp=column([row.vpp for row in rows]),
        micro_batch=column([row.micro_batch for row in rows]),
        num_micro_batches=column([row.num_micro_batches for row in rows]),
        schedule=column([SCHEDULES.index(row.run_schedule) for row in rows]),
        recompute=column([RECOMPUTE.index(row.recompute) for row in rows]),
        zero=column([row.zero for row in rows]),
        sequence_parallel=_said([row.sequence_parallel for row in rows], sequence_parallel) * (_tensor(rows) > 1),
        tied=column([row.tied_embedding and row.vocab > 0 for row in rows]),
        overlap=_said([row.overlap_grad_reduce for row in rows], overlap),
        cp_comm=column([CONTEXT_KINDS.index(row.cp_comm or cp_comm) for row in rows]),
        division=_division(rows),
    )


def _tensor(rows: list[ConfigurationRow]) -> Ints:
    return np.array([row.tp for row in rows], dtype=np.int64)


def _said(values: list[bool | None], otherwise: bool | Flags) -> Ints:
    """What rows say, or what holds otherwise of all or of each, as 0 and 1."""
    given = zip(values, np.broadcast_to(otherwise, len(values)), strict=True)
    return np.array([other if value is None else value for value, other in given], dtype=np.int64)


def _division(rows: list[ConfigurationRow]) -> Ints:
    """Layers of every chunk, (rows, most chunks): as stated, or even."""
    layers, chunks = np.array([(row.layers, row.pp * row.vpp) for row in rows], dtype=np.int64).reshape(-1, 2).T
    found = even_division(layers, chunks, np.array([row.vpp > 1 for row in rows], dtype=bool))
    for index, row in enumerate(rows):
        if row.stages is not None:
            found[index, : len(row.stages)] = row.stages
    return found


def refusal(row: ConfigurationRow, memory: MemoryModel) -> str:
    """Why a row cannot be priced with a memory model, in one line; empty where it can."""
    kind, chunks = row.run_schedule, chunks_of_device(row.run_schedule, max(row.vpp, 2))
    if kind in ORDER_PRICED and row.pp == 1:
        return f"schedule is {kind}, expected 1f1b where pp is 1"
    if kind in ORDER_PRICED and row.vpp not in chunks:
        return f"vpp is {row.vpp}, expected {chunks[0]} under {kind}"
    if kind == "gpipe" and row.vpp > 1:
        return f"vpp is {row.vpp}, expected 1 under {kind}"
    if kind in ORDER_PRICED and not is_defined(kind, row.pp, row.num_micro_batches):
        return f"schedule is {kind}, expected another for {row.num_micro_batches} micro-batches and pp = {row.pp}"
    if kind in SPLIT and row.recompute == "full":
        return f"recompute is full, expected none or selective under {kind}"
    if not memory.is_sum_of_terms and (kind in ORDER_PRICED or row.stages is not None or row.layers % row.pp):
        return f"schedule is {kind}, expected 1f1b or gpipe in even stages, as {memory.name} knows no others"
    return ""
