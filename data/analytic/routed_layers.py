r"""
Work and kept bytes of layers with experts or latent attention, on one of t tensor ranks.

A micro-batch has n tokens of hidden size h. Sizes of experts and latent attention are those of
``taut.data.layers.experts`` (E experts of which k take a token, widths :math:`f_e` and :math:`f_s`) and
``taut.data.layers.layer`` (a heads, ranks :math:`r_q, r_{kv}`, channels :math:`d_n, d_r, d_v`), elements have e bytes.

(1) Products, of rows x sums with sums x columns: the router's n x h with h x E on every rank; the shared experts' two
    of width :math:`f_s / t`; and the experts' two of width :math:`f_e / t`, in one kernel each: of
    :math:`G = \min(E, k n)` experts each takes :math:`k n / G` tokens. Routing is even unless an imbalance factor is
    stated: rows of experts, and what is kept of them, are then times that factor on the fullest of several expert
    ranks.
(2) Latent attention has :math:`h \times (r_q + r_{kv} + d_r)` on every rank, and by heads
    :math:`r_q \times (d_n + d_r) a / t`, :math:`r_{kv} \times (d_n + d_v) a / t` and :math:`d_v a / t \times h`. Ranks
    that repeat a product repeat it for all tokens, as without sequence parallelism.
(3) Beside norms, sums and functions, :math:`e n (10 h + 4 (k f_e + f_s) / t)` bytes, routing moves
    :math:`4 e n k h`: rows are read and written in the order of experts before them, and back behind them; the router
    12 n E bytes of scores in single precision. The 4 is what fused kernels move (``row_moves``). torchtitan's
    (``models/common/token_dispatcher.py``) move 7 forward: 2 to put rows in order, 2 to weigh outputs by scores, 3 to
    add them into rows that are read again; and 8 backward: 2, 3 with the gradients of scores, and 3. A pass has 7.5.
    Latent attention moves :math:`e n (4 (r_q + r_{kv} + d_r) + 2 a (d_n + d_r) / t)` to norm what is compressed and put
    keys together. Counted, not fitted.
    Biased experts (``taut.data.layers.experts`` (5)) whose biases and activation are no part of their products' kernels
    take a kernel of PyTorch for every step, as in Megatron-LM (megatron/core/transformer/moe/experts.py). For each of
    their k n rows these move :math:`e (30 f_e + 14 h)` bytes forward: 8 f to add the first bias and join the rows,
    4 f to clamp gate and value, 12 f for x sigmoid(1.702 x) (1 + y), 6 f to weigh by the router's score in single
    precision and cast back; 14 h to add the weighed second bias in single precision, join the rows and cast back.
    Where the activation is fused the second bias alone is added by kernels of its own, as in Megatron-LM.
    Backward they move twice that: each kernel reads the gradient and its inputs and writes their gradients.
(4) Kept: the inputs of the two norms and of attention and feed-forward part, scores of 12 n E bytes, what is
    compressed and its norm; by tensor ranks queries and keys, both twice where they have a norm, values, the
    attention's output, and the feed-forward parts before and after their function, :math:`(g - 1) (k f_e + f_s)` and
    :math:`k f_e + f_s` wide. The experts' inputs, :math:`k h` a token, lie whole on every tensor rank, sequence
    parallelism or not: each has a part of every expert, and so all of its tokens.

An indexer of latent attention has :math:`h \times (d_i + a_i)` and :math:`r_q \times a_i d_i` on every rank, and keeps
what they make. A gate of u columns joins the product that makes queries; it is kept, and moves :math:`e n (2 a d_v + u)
/ t` bytes. Where a layer mixes tokens otherwise (``taut.data.layers.mixer``: m and :math:`m_w` columns, c channels of a
convolution, a states of :math:`d_k d_v` numbers for every chunk of C tokens), products are :math:`h \times (m / t +
m_w)`, second products of the :math:`m_w` columns and :math:`a d_v / t \times h`; it moves :math:`e n (2 c + 3 a d_v +
2 a d_k d_v / C) / t` bytes.

Tokens are gathered before the experts and summed behind them as for a dense layer (Megatron-LM's all-gather
dispatcher), so that tensor ranks exchange what they do for a dense one. With e > 1 expert ranks of x tensor ranks each
(``ep`` and ``etp``) ranks exchange tokens all to all instead, and each has its own 1/t of the n tokens before that:

(5) the router has n / t rows; a rank has E / e experts of width :math:`f_e / x`, which take k n x / t rows in all;
    putting rows in order moves :math:`4 e n k h (1 + x) / t` bytes, before and after either exchange, of which the
    first 4 is ``row_moves``; and of the experts' inputs a rank keeps x / t. What else is kept does not change: ranks
    trade tokens for tokens. Where all tokens of the ranks are gathered they are in order before, and outputs are added
    into rows for all of them that begin as 0: :math:`x (4 k + r) / t` rows of e h bytes a token with r ranks (the
    buffers are counted with messages, ``taut.formulations.tables.stage_tables`` (4)). Where outputs are summed in
    another format, numbers of s bytes (``taut.data.layers.experts``), each of the r x rows is cast to it before, and
    the sum back behind, which moves :math:`(e + s) h` bytes a row.
"""

import math
from typing import NamedTuple

import numpy as np

from taut.data.analytic.device_rates import KEPT_BLOCK, Rates
from taut.data.analytic.layer_work import LayerShape, Passes, Product, passes_of
from taut.data.arrays import Floats
from taut.data.layers.layer import LayerSpec
from taut.data.layers.mixer import MixerSpec

SCORE_BYTES = 12
"""Bytes of an expert's score of a token: logit, probability and choice in single precision."""

BIASED_WIDTHS, BIASED_HIDDEN = 30, 14
"""Numbers that biases and clamped activation move for a row, in widths of an expert and in hidden sizes, (3)."""


CHUNKED = 2.5
"""
Seconds of kernels that take chunks of tokens over those of attention to as many tokens. At 2.5 the published runs of
Nemotron 3 Nano are predicted at 0.82 (H100) to 1.12 (B200) of their speed and at 0.99 in the mean, at 1 at 0.88 to
1.24. It was chosen on these five systems. Mamba-2's kernels are as fast as FlashAttention-2 at 2,048 tokens (arXiv
2405.21060, section 9.3), of which one token sees 1,024 in the mean: 3.2 or 2 times the tokens of (2) in
``taut.data.layers.mixer`` with chunks of 256 tokens and states of 64 or 128 by 64 numbers.
"""


class ExpertRanks(NamedTuple):
    """Expert degree, and the tensor ranks of an expert where it is above 1, (5)."""

    ep: int = 1
    etp: int = 0

    def share(self, tp: int) -> float:
        """Share of the rows of all tokens that a rank's experts take."""
        return self.etp / tp if self.ep > 1 else 1.0


TOGETHER = ExpertRanks()
"""All experts on every replica, split over its tensor ranks."""


class Kept(NamedTuple):
    """Bytes that sequence parallelism shares, that tensor ranks share anyhow, and that each has whole."""

    replicated: int
    split: int
    whole: int


def routed_passes(layer: LayerSpec, shape: LayerShape, tp: int, rates: Rates, ranks: ExpertRanks = TOGETHER) -> Passes:
    """Terms of the passes of a layer with experts or latent attention, (1) to (3), (5), on a rank's share ``shape``."""
    tokens = shape.batch * shape.seq
    ffn = feed_forward_products(layer, shape, tp, tokens, ranks, rates.imbalance)
    products = [*attention_products(layer, shape, tp, tokens), *ffn]
    moved = rates.element * tokens * (beside_width(layer) + 4.0 * shape.ffn + 4.0 * layer.normed_hidden / tp)
    if layer.latent:
        moved = moved + rates.element * tokens * (
            4.0 * layer.latent.compressed + 2.0 * layer.heads * layer.latent.key_dim / tp
        )
    shared = mixed_width(layer) + 2.0 * sum(each.columns for each in layer.worked if each.split)
    moved = moved + rates.element * tokens * shared / tp
    moved = moved + routing_bytes(layer, shape, tp, rates, ranks)
    biased = biased_bytes(layer, tokens, tp, rates, ranks)
    cores = CHUNKED if layer.mixer and layer.mixer.takes_chunks else 1.0
    return passes_of(shape, rates, products, moved, biased, has_core=layer.mixes, cores=cores)


def beside_width(layer: LayerSpec) -> float:
    """Numbers a token that norms, sums, further streams and what further products read and make move, on every rank."""
    streams = 3.0 * layer.parts * layer.streams if layer.streams > 1 else 0.0
    return (5.0 * layer.parts + streams) * layer.hidden + 2.0 * sum(
        each.columns for each in layer.worked if not each.split
    )


def mixed_width(layer: LayerSpec) -> float:
    """Numbers a token that a gate of attention, or a mixer beside its products, moves on all tensor ranks."""
    if layer.attention_gate:
        return 2.0 * layer.query_hidden + layer.attention_gate
    if (mixer := layer.mixer) is None:
        return 0.0
    if mixer.scanned:
        return 2.0 * mixer.convolved + (3.0 + mixer.scanned / 2) * layer.query_hidden
    states = layer.heads * mixer.key_dim * mixer.value_dim / mixer.chunk if mixer.chunk else 0.0
    return 2.0 * mixer.convolved + 3.0 * layer.query_hidden + 2.0 * states


def routing_bytes(layer: LayerSpec, shape: LayerShape, tp: int, rates: Rates, ranks: ExpertRanks) -> Floats | float:
    """Bytes that putting rows in order and scores move forward, (3) and (5)."""
    if layer.experts is None:
        return 0.0
    row, chosen = rates.element * layer.row, layer.experts.experts_per_token
    if ranks.ep == 1:
        own, rows = 1.0, rates.row_moves * chosen
    else:
        own, rows = 1.0 / tp, _rows_in_order(chosen, rates, ranks)
    return np.asarray(shape.batch * shape.seq * own * (rows * row + SCORE_BYTES * layer.experts.num_experts))


def _rows_in_order(chosen: int, rates: Rates, ranks: ExpertRanks) -> float:
    """Rows of a token that putting rows in order moves on several expert ranks, (5)."""
    if not rates.summed:
        return (rates.row_moves + 4.0 * ranks.etp) * chosen
    cast = (ranks.etp * ranks.ep + 1) * (1 + rates.summed / rates.element) * (rates.summed != rates.element)
    return ranks.etp * (rates.row_moves * chosen + ranks.ep) + cast


def biased_bytes(layer: LayerSpec, tokens: Floats, tp: int, rates: Rates, ranks: ExpertRanks) -> Floats | float:
    """Bytes that biases and clamped activation of experts move forward, (3)."""
    experts = layer.experts
    if experts is None or not experts.biased:
        return 0.0
    rows = rates.imbalance * experts.experts_per_token * tokens * ranks.share(tp)
    width = experts.expert_ffn_hidden / (ranks.etp if ranks.ep > 1 else tp)
    inner = 0.0 if rates.fused_experts else BIASED_WIDTHS * width
    return np.asarray(rates.element * rows * (inner + BIASED_HIDDEN * layer.hidden))


def attention_products(layer: LayerSpec, shape: LayerShape, tp: int, tokens: Floats) -> list[Product]:
    """Products of the attention but its core, (2), or of what takes its place; latent products are last."""
    widths = ((product.columns / (tp if product.split else 1), float(product.sums)) for product in layer.worked)
    further = [Product(tokens, np.asarray(columns), np.asarray(sums)) for columns, sums in widths]
    return further + (_mixing_products(layer, shape, tp, tokens) if layer.mixes else [])


def _mixing_products(layer: LayerSpec, shape: LayerShape, tp: int, tokens: Floats) -> list[Product]:
    latent, hidden, gate = layer.latent, shape.hidden, (layer.attention_gate or 0) / tp
    if mixer := layer.mixer:
        return _mixer_products(layer, mixer, shape, tp, tokens)
    if latent is None and (layer.kv_matrices != 2 or layer.value_head_dim):
        columns = np.asarray(layer.queries(tp) + layer.kv_made(tp) + gate, float)
        return [Product(tokens, columns, hidden), Product(tokens, hidden, np.asarray(float(layer.output(tp))))]
    if latent is None:
        query, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        return [Product(tokens, query + 2 * kv + gate, hidden), Product(tokens, hidden, query)]
    made = [
        *([(latent.index_heads * latent.index_dim, latent.q_lora_rank or hidden)] if latent.index_heads else []),
        (latent.compressed + latent.indexed + gate, hidden),
        (layer.heads * latent.key_dim / tp, latent.q_lora_rank or hidden),
        (layer.heads * (latent.qk_nope_head_dim + latent.v_head_dim) / tp, latent.kv_lora_rank),
        (hidden, layer.heads * latent.v_head_dim / tp),
    ]
    return [Product(tokens, np.asarray(each, float), np.asarray(sums, float)) for each, sums in made]


def _mixer_products(layer: LayerSpec, mixer: MixerSpec, shape: LayerShape, tp: int, tokens: Floats) -> list[Product]:
    """Products of what makes a mixer's columns, of what it makes of those of low rank, and of its output."""
    made: list[tuple[float | Floats, float | Floats]] = [(mixer.made / tp + mixer.made_whole, shape.hidden)]
    if mixer.second_parameters:
        rank = max(mixer.made_whole / 2, 1.0)
        made.append((mixer.second_parameters / rank / tp, rank))
    if mixer.output:
        made.append((shape.hidden, layer.query_hidden / tp))
    return [Product(tokens, np.asarray(columns, float), np.asarray(sums, float)) for columns, sums in made]


def feed_forward_products(
    layer: LayerSpec, shape: LayerShape, tp: int, tokens: Floats, ranks: ExpertRanks, imbalance: float = 1.0
) -> list[Product]:
    """Products of router, shared experts and experts, or of the dense feed-forward part, (1) and (5)."""
    experts, hidden = layer.experts, shape.hidden
    if not layer.feeds:
        return []
    if experts is None:
        return _up_and_down(tokens, shape, shape.ffn)
    apart = ranks.ep > 1
    found = [Product(tokens / tp if apart else tokens, np.asarray(float(experts.num_experts)), hidden)]
    if experts.shared_ffn_hidden:
        found += shared_products(layer, shape, tp, tokens)
    rows = imbalance * experts.experts_per_token * tokens * ranks.share(tp)
    groups = np.minimum(experts.num_experts / ranks.ep, rows)
    width = np.asarray(experts.expert_ffn_hidden / (ranks.etp if apart else tp))
    return found + _up_and_down(rows / groups, shape, width, groups, layer.row)


def shared_products(layer: LayerSpec, shape: LayerShape, tp: int, tokens: Floats) -> list[Product]:
    """Products of the shared experts, (1)."""
    width = layer.experts.shared_ffn_hidden if layer.experts else 0
    return _up_and_down(tokens, shape, np.asarray(width / tp))


def _up_and_down(
    rows: Floats, shape: LayerShape, width: Floats, groups: Floats | float = 1.0, row: int = 0
) -> list[Product]:
    taken = np.asarray(float(row)) if row else shape.hidden
    return [Product(rows, shape.up * width, taken, groups), Product(rows, taken, width, groups)]


def routed_kept(layer: LayerSpec, recompute: str, tokens: int, rates: Rates, *, exchanged: bool = False) -> Kept:
    """
    Bytes that a layer with experts, latent attention or normed queries keeps of ``tokens``, (4).

    Its input under full recompute, and where selective recompute keeps every second product
    (``taut.data.analytic.layer_costs`` (3)) also what torchtitan's ``_get_default_save_ops`` keeps: outside the
    experts, and the rows that ranks exchange.
    """
    element, hidden = rates.element, layer.hidden
    chosen = layer.experts.experts_per_token if layer.experts else 0
    if recompute == "full":
        return Kept(element * tokens * layer.streams * hidden, 0, 0)
    queries, keys, values = widths_of(layer)
    if recompute == "selective" and rates.selective_products:
        width = layer.experts.shared_ffn_hidden if layer.experts else layer.ffn
        unfolded = layer.heads * layer.latent.qk_nope_head_dim if layer.latent else 0
        replicated = hidden * (1 + (layer.gated_mlp and width > 0)) * layer.streams
        replicated += sum(each.columns for each in layer.worked if not each.split)
        split = queries + unfolded + values + layer.query_hidden + width
        split += sum(each.columns for each in layer.worked if each.split)
        rows = math.ceil(rates.imbalance * 2 * element * tokens * chosen * layer.row) if exchanged else 0
        return Kept(element * tokens * replicated, element * tokens * split, rows)
    compressed, normed = (layer.latent.compressed, layer.latent.normed) if layer.latent else (0, 0)
    if layer.latent and layer.latent.index_heads:
        compressed += layer.latent.indexed + layer.latent.index_heads * layer.latent.index_dim
    scores = SCORE_BYTES * layer.experts.num_experts if layer.experts else 0
    inputs = cast_bytes(tokens * (layer.parts * hidden + normed), rates)
    compressed += sum(each.columns for each in layer.worked if not each.split)
    outer = layer.parts * (2 * element * layer.streams + layer.masks) // 2
    replicated = tokens * (hidden * outer + element * compressed + scores) + inputs
    widths = (
        layer.normed_hidden + queries + keys + values + layer.query_hidden + (layer.ffn_matrices - 1) * layer.used_ffn
    )
    widths += sum(each.columns for each in layer.worked if each.split)
    apart = rates.casts or (layer.mixer is not None and layer.mixer.convolves_again)
    cast = layer.used_ffn + (layer.query_hidden if apart else 0)
    split = element * tokens * widths + cast_bytes(tokens * cast, rates)
    if recompute == "none" and not rates.fused_attention and layer.mixer is None and layer.mixes:
        split += (2 * element + 1) * layer.heads * layer.window * tokens
    if rates.imbalance > 1.0 and layer.experts:
        inner = tokens * chosen * layer.experts.expert_ffn_hidden
        more = element * (layer.ffn_matrices - 1) * inner + cast_bytes(inner, rates)
        split += math.ceil((rates.imbalance - 1) * more)
    return Kept(replicated, split, math.ceil(rates.imbalance * cast_bytes(tokens * chosen * layer.row, rates)))


def widths_of(layer: LayerSpec) -> tuple[int, int, int]:
    """Widths of queries, with a gate's, of keys and of values over all tensor ranks; a mixer's columns are queries."""
    gate = layer.attention_gate or 0
    if not layer.mixes:
        return 0, 0, 0
    if layer.mixer:
        kept = 0 if layer.mixer.convolves_again else layer.mixer.convolved
        return layer.mixer.made + kept, 0, layer.query_hidden
    if layer.latent is None:
        made, last = layer.kv_made(1), layer.kv_hidden if layer.kv_matrices == 2 else 0
        return layer.queries(1) + gate, min(layer.kv_hidden, made), made - last if last else 0
    return layer.heads * layer.latent.key_dim + gate, layer.heads * layer.latent.key_dim, layer.query_hidden


def cast_bytes(numbers: int, rates: Rates) -> int:
    """Bytes of so many inputs as products keep them, rounded up."""
    return -(-numbers * rates.kept // KEPT_BLOCK)
