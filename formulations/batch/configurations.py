r"""
Many ordinary configurations as columns, and the counts that follow from them.

A configuration is a stack of L equal layers divided over pp stages, the longest of :math:`\lceil L / pp \rceil` layers;
the first stage also holds the embedding, the last one the final norm and the head. Counts are those of one tensor and
context rank, as in ``taut.data.model``:

(1) tokens of a micro-batch: :math:`b s / cp`;
(2) parameters of a layer, of the embedding and of the head, the vocabulary padded to a multiple of 128 times tp.
"""

from dataclasses import dataclass, fields

import numpy as np

from taut.data.arrays import Flags, Ints
from taut.data.model import VOCABULARY_MULTIPLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Configurations:
    """
    Configurations as columns of equal length.

    ``recompute`` is 0 for none, 1 for selective, 2 for full; ``gpipe``, ``gated`` and ``sequence_parallel`` are 0 or 1;
    ``kv_heads`` is the number of key-value heads.
    """

    hidden: Ints
    layers: Ints
    heads: Ints
    kv_heads: Ints
    ffn_hidden: Ints
    seq: Ints
    vocab: Ints
    gated: Ints
    tp: Ints
    pp: Ints
    dp: Ints
    cp: Ints
    vpp: Ints
    micro_batch: Ints
    num_micro_batches: Ints
    gpipe: Ints
    recompute: Ints
    zero: Ints
    sequence_parallel: Ints

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


def longest_stage(c: Configurations) -> Ints:
    """Layers of the longest stage."""
    return np.asarray(-(-c.layers // c.pp))


def table_parameters(c: Configurations) -> Ints:
    """Parameters of the embedding, and of the head without its norm."""
    return np.asarray(padded_vocabulary(c) * c.hidden // c.tp)


def stage_parameters(c: Configurations, first: Flags, last: Flags) -> Ints:
    """Parameters of the longest stage, with the embedding where it is the first and the head where it is the last."""
    norm = np.where(c.gated == 1, c.hidden, 2 * c.hidden) * (c.vocab > 0)
    edges = np.where(first, table_parameters(c), 0) + np.where(last, table_parameters(c) + norm, 0)
    return np.asarray(longest_stage(c) * layer_parameters(c) + edges)


def first_stage_parameters(c: Configurations) -> Ints:
    """Parameters of stage 0: its layers, the embedding, and the head if it is the only stage."""
    return stage_parameters(c, np.ones(len(c), dtype=bool), c.pp == 1)
