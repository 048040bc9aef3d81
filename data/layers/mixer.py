r"""
What mixes the tokens of a layer other than attention: linear attention, a state space, or a short convolution.

A token's h channels make m columns (queries, keys, values, gates, decays), which tensor ranks share by heads, and
:math:`m_w` columns that every rank makes whole. Columns may pass a short convolution of c channels and k taps. Each of
a heads then has a state of :math:`d_k \times d_v` numbers that a token decays, adds to and reads, and the
:math:`a d_v` channels read are mapped back to h.

(1) parameters: :math:`h m_w + (h m + p + c k + a d_v h) / t` on one of t tensor ranks, with p those of second products
    of the :math:`m_w` columns (Kimi Linear's decay and gate of low rank); decays and norms of heads are left out;
(2) kernels take chunks of C tokens (GLA, arXiv 2312.06635, section 4; Mamba-2, arXiv 2405.21060, section 6): scores
    and values within a chunk are :math:`2 C (d_k + d_v)` FLOP a token and head, reading and updating the state
    :math:`4 d_k d_v`. The delta rule (Gated DeltaNet, arXiv 2412.06464; Kimi Linear, arXiv 2510.26692) takes
    :math:`4 C d_k + 2 C d_v + 2 d_k d_v` more: products of keys with keys, and keys and values of the chunk's
    transformation. Attention to w tokens takes :math:`4 w d_v`, so that this is attention to

    .. math:: w = \tfrac{C}{2} (1 + d_k / d_v) + d_k \big[ + C (d_k / d_v + \tfrac{1}{2}) + d_k / 2 \big]

    tokens, the bracket with the delta rule alone, rounded to the nearest whole number. A short convolution by itself
    takes 2 k FLOP a channel and is attention to k / 2 tokens, rounded down, one at least;
(3) a layer keeps for its backward pass the columns made, what the convolution makes of them, and the channels read
    before and after their norm and gate. Kernels compute states again. Mamba-2's kernel computes the convolution again
    too (``MambaSplitConv1dScanCombinedFn`` of state-spaces/mamba saves the columns and the channels before their gate).
    In Megatron-LM its norm is a kernel of its own (``megatron/core/ssm/mamba_mixer.py``), so that channels are kept
    before their gate, behind it, and behind the norm as the product takes them.

Mamba-1 (arXiv 2312.00752, section 3.3) has a state of N numbers for each of :math:`a d_v` channels, a decay for each of
these numbers, and steps of low rank. Its kernel scans the tokens and takes no chunks. It has

(4) :math:`a d_v N` parameters of decays, and :math:`9 a d_v N` FLOP a token (a step's decay, update and sum), as of
    attention to the next whole number of tokens above :math:`9 N / 4`. They run at the rate of vector units, not of
    matrix products, which is counted as :math:`N / 2` further numbers moved for a channel: at 67 of 989 TFLOP/s and
    3.35 TB/s of an H100, 9 N operations and N exponentials take as long.

Attention whose matrices are neither plain nor latent attention's (DeepSeek-V4's, to compressed tokens) is a mixer that
``attends`` to a stated number of tokens. Without ``output`` the product back to h is one of the layer's further ones.

(5) Context ranks have all tokens of a share of the heads between two all-to-alls, one of the columns made (of low rank,
    of what the second products make of :math:`d_k` each) and one of the channels read (Megatron-LM,
    ``megatron/core/ssm/mamba_context_parallel.py``): :math:`(m + p / d_k + a d_v) / t` numbers a token. A state that
    groups of heads share is sent once. flash-linear-attention passes states instead (``fla/ops/cp``), :math:`4 a d_k
    (d_k + d_v)` bytes a rank in a gather each way; no stack of taut's does.

Kernels that take chunks have 2.5 times the seconds of attention to w tokens (``taut.data.analytic.routed_layers``). The
factor was chosen on runs of Mamba-2 and is taken for linear attention too. No kernel of this kind was measured.
"""

from typing import Annotated, Literal

from pydantic import Field

from taut.data.spec import LATER, Count, GrownSpec

Whole = Annotated[int, Field(ge=0, le=1_000_000_000, strict=True)]
"""A size that may be 0."""
Mixing = Literal["attention", "sparse-attention", "linear-attention", "delta-rule", "scan", "convolution"]
"""
Ways of mixing tokens, whose kernels differ: attention to all tokens of a sequence or window; attention to tokens that
an indexer chooses or that are compressed; chunks of linear attention or of Mamba-2; chunks with the delta rule; a scan,
(4); and a short convolution. A window has the kernel of attention to all, with less work: GPT-OSS
has one in every second layer, and its runs are predicted as well as those of other models.
"""


class MixerSpec(GrownSpec):
    """
    Sizes of linear attention, a state space, a convolution, or attention with matrices of its own.

    ``key_dim``, ``value_dim``: :math:`d_k` and :math:`d_v`; ``made``, ``made_whole``: columns m and :math:`m_w`;
    ``second_parameters``: p; ``convolved``, ``taps``: c and k; ``chunk``: C, 0 without chunks; ``scanned``: N, 0 unless
    scanned; ``attends``: tokens, 0 unless stated. Of ``attends``, ``scanned`` and ``chunk`` the first above 0 decides
    the FLOP; a mixer with none is a short convolution.
    """

    key_dim: Count
    value_dim: Count
    made: Count
    made_whole: Whole = 0
    second_parameters: Whole = 0
    convolved: Whole = 0
    taps: Whole = 0
    chunk: Whole = 0
    delta_rule: bool = False
    scanned: Annotated[Whole, LATER] = 0
    attends: Annotated[Whole, LATER] = 0
    output: Annotated[bool, LATER] = True

    @property
    def takes_chunks(self) -> bool:
        """Whether its kernels take chunks of tokens."""
        return self.chunk > 0 and not self.scanned and not self.attends

    @property
    def convolves_again(self) -> bool:
        """
        Whether its kernel computes the convolution again in the backward pass, as Mamba-2's, (3).

        Of the families that are read Mamba-2 alone has a convolution before chunks without the delta rule: lightning
        attention and xLSTM convolve nothing, and gated DeltaNet and Kimi Delta Attention have the delta rule.
        """
        return self.takes_chunks and not self.delta_rule and self.convolved > 0

    @property
    def mixing(self) -> Mixing:
        """How it mixes tokens, (2) to (4)."""
        if self.attends:
            return "sparse-attention"
        if self.scanned or not self.chunk:
            return "scan" if self.scanned else "convolution"
        return "delta-rule" if self.delta_rule else "linear-attention"

    @property
    def reach(self) -> int:
        """Tokens of plain attention with as many FLOP, (2) and (4)."""
        if self.attends:
            return self.attends
        if self.scanned:
            return 9 * self.scanned // 4 + 1
        if not self.chunk:
            return max(self.taps // 2, 1)
        keys, values, chunk = self.key_dim, self.value_dim, self.chunk
        flop = 2 * chunk * (keys + values) + 4 * keys * values
        if self.delta_rule:
            flop += 4 * chunk * keys + 2 * chunk * values + 2 * keys * values
        return max((flop + 2 * values) // (4 * values), 1)

    def exchanged(self, heads: int, tp: int = 1) -> int:
        """Numbers a token that context ranks exchange there and back on one of ``tp`` tensor ranks, (5)."""
        return (self.made + self.second_parameters // self.key_dim + heads * self.value_dim) // tp

    def matrix_parameters(self, hidden: int, heads: int, tp: int = 1) -> int:
        """Matrix parameters on one of ``tp`` tensor ranks, (1)."""
        shared = hidden * (self.made + heads * self.value_dim * self.output) + self.second_parameters
        shared += self.convolved * self.taps + heads * self.value_dim * self.scanned
        return hidden * self.made_whole + shared // tp
