r"""
Many ordinary configurations as columns, and the counts that follow from them.

A configuration is a chain of L equal layers divided over X = pp vpp chunks; the first chunk also holds the embedding,
the last one the final norm and the head, and either may hold no layers. Counts are those of one tensor and context
rank, as in ``taut.data.model``:

(1) tokens of a micro-batch: :math:`b s / cp`;
(2) parameters of a layer, of the embedding and of the head, the vocabulary padded to a multiple of 128 times tp; a tied
    head adds none where first and last chunk share a device;
(3) the even division: :math:`\lfloor L / X \rfloor` layers a chunk, and one more on each of the first L mod X, as
    DeepSpeed and ``numpy.array_split`` divide. Of interleaved stages embedding and head count as a layer each where
    that makes all chunks equal, as Megatron-LM's ``account_for_embedding_in_pipeline_split`` does.
"""

from dataclasses import dataclass, fields

import numpy as np

from taut.data.arrays import Flags, Ints
from taut.data.model import VOCABULARY_MULTIPLE
from taut.data.stack import SCHEDULES
from taut.formulations.schedules.orders import ON_V, ORDER_PRICED

GPIPE = SCHEDULES.index("gpipe")
ORDERED = np.array([kind in ORDER_PRICED for kind in SCHEDULES])
FOLDED = np.array([kind in ON_V for kind in SCHEDULES])
"""Schedules whose time is that of their order, and those whose first and last chunk share a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configurations:
    """
    Configurations as columns of equal length.

    ``recompute`` is 0 for none, 1 for selective, 2 for full; ``schedule`` an index into ``SCHEDULES`` and ``cp_comm``
    into ``CONTEXT_KINDS``; ``gated``, ``dropout``, ``sequence_parallel``, ``tied`` (embedding) and ``overlap`` (of
    gradient reductions with the last backward pass) are 0 or 1; ``kv_heads`` is the number of key-value heads;
    ``division`` (rows, most chunks) holds the layers of every chunk, 0 beyond the last.
    """

    hidden: Ints
    layers: Ints
    heads: Ints
    kv_heads: Ints
    ffn_hidden: Ints
    seq: Ints
    vocab: Ints
    gated: Ints
    dropout: Ints
    tp: Ints
    pp: Ints
    dp: Ints
    cp: Ints
    vpp: Ints
    micro_batch: Ints
    num_micro_batches: Ints
    schedule: Ints
    recompute: Ints
    zero: Ints
    sequence_parallel: Ints
    tied: Ints
    overlap: Ints
    cp_comm: Ints
    division: Ints

    def __len__(self) -> int:
        """Number of configurations."""
        return len(self.hidden)

    def take(self, rows: Ints) -> "Configurations":
        """The configurations at these rows."""
        return Configurations(**{column.name: getattr(self, column.name)[rows] for column in fields(self)})


def local_tokens(c: Configurations) -> Ints:
    """Tokens of a micro-batch on one context rank."""
    return np.asarray(c.micro_batch * c.seq // c.cp)


def matrix_parameters(c: Configurations) -> Ints:
    """Matrix parameters of a layer, (2)."""
    kv_width = c.hidden // c.heads * c.kv_heads // np.minimum(c.tp, c.kv_heads)
    gates = np.where(c.gated == 1, 3, 2)
    return np.asarray(2 * c.hidden**2 // c.tp + 2 * c.hidden * kv_width + gates * c.hidden * c.ffn_hidden // c.tp)


def layer_parameters(c: Configurations) -> Ints:
    """Parameters of a layer, (2)."""
    kv_width = c.hidden // c.heads * c.kv_heads // np.minimum(c.tp, c.kv_heads)
    biases = (c.hidden + c.ffn_hidden) // c.tp + 2 * kv_width + 2 * c.hidden
    small = np.where(c.gated == 1, 2 * c.hidden, biases + 4 * c.hidden)
    return np.asarray(matrix_parameters(c) + small)


def padded_vocabulary(c: Configurations) -> Ints:
    """Vocabulary after padding to a multiple of 128 times the tensor degree."""
    multiple = VOCABULARY_MULTIPLE * c.tp
    return np.asarray(-(-c.vocab // multiple) * multiple)


def table_parameters(c: Configurations) -> Ints:
    """Parameters of the embedding."""
    return np.asarray(padded_vocabulary(c) * c.hidden // c.tp)


def head_parameters(c: Configurations) -> Ints:
    """Parameters of the final norm and of a head that is no copy on the embedding's device, (2)."""
    norm = np.where(c.gated == 1, c.hidden, 2 * c.hidden) * (c.vocab > 0)
    shared = (c.tied == 1) & ((c.pp == 1) | FOLDED[c.schedule])
    return np.asarray(norm + np.where(shared, 0, table_parameters(c)))


def even_division(layers: Ints, chunks: Ints, several: Flags) -> Ints:
    """Layers of every chunk of even divisions, (rows, most chunks), (3); ``several``, whether stages have several."""
    chunk, last = np.arange(int(chunks.max(initial=1))), chunks[:, None] - 1
    # Embedding and head stand for a layer each where that makes the chunks of interleaved stages equal.
    edges = several & (layers % chunks > 0) & ((layers + 2) % chunks == 0) & (layers + 2 >= 2 * chunks)
    counted = layers + 2 * edges
    each, more = counted // chunks, counted % chunks
    found = each[:, None] + (chunk < more[:, None]) - (edges[:, None] & ((chunk == 0) | (chunk == last)))
    return np.where(chunk <= last, found, 0)


def device_parameters(c: Configurations) -> Ints:
    """Parameters of one tensor rank of every stage, its chunks together, (rows, stages)."""
    chunks, most, rows = c.pp * c.vpp, int(c.pp.max(initial=1)), np.arange(len(c))
    each = c.division * layer_parameters(c)[:, None]
    each[:, 0] += table_parameters(c)
    each[rows, chunks - 1] += head_parameters(c)
    several = np.flatnonzero(c.vpp > 1)
    found, some = each[:, :most].copy(), c.take(several)
    found[several] = 0
    for chunk in range(each.shape[1] if len(several) else 0):
        found[several, stage_of(some, chunk)] += each[several, chunk]
    return np.asarray(found)


def stage_of(c: Configurations, chunk: Ints | int) -> Ints:
    """Stage of a chunk in every row: round the stages, or back on the V."""
    return np.where(FOLDED[c.schedule] & (chunk >= c.pp), np.maximum(2 * c.pp - 1 - chunk, 0), chunk % c.pp)
