r"""
Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

Keys and values are made from :math:`r_{kv}` channels a token, queries from :math:`r_q` (or from the layer's input).
Each of a heads has keys and queries of :math:`d_n + d_r` channels, of which the :math:`d_r` with rotary positions are
one key for all heads, and values of :math:`d_v`. In training every head has its own keys and values, as made. With
hidden size h,

(1) parameters that every tensor rank has: :math:`h r_q + h (r_{kv} + d_r)`, and the norms' :math:`r_q + r_{kv}`;
(2) parameters that tensor ranks share by heads: :math:`r_q a (d_n + d_r) + r_{kv} a (d_n + d_v) + a d_v h`; without
    :math:`r_q` the first is :math:`h a (d_n + d_r)`;
(3) FLOP of the attention core: :math:`2 s w a (d_n + d_r + d_v)`, as of plain heads with the mean of the two widths.
"""

from taut.data.layers.sizes import Count
from taut.data.spec import Spec


class LatentSpec(Spec):
    """Sizes of latent attention, under the names of Hugging Face; without ``q_lora_rank`` queries are plain."""

    q_lora_rank: Count | None = None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count

    @property
    def key_dim(self) -> int:
        """Channels of a head's queries and keys."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def core_dim(self) -> float:
        """Channels of a plain head whose attention core has as many FLOP, (3)."""
        return (self.key_dim + self.v_head_dim) / 2

    @property
    def compressed(self) -> int:
        """Channels a token that queries, keys and values are made from."""
        return (self.q_lora_rank or 0) + self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def normed(self) -> int:
        """Of these the channels that pass a norm, one parameter each."""
        return (self.q_lora_rank or 0) + self.kv_lora_rank

    def matrix_parameters(self, hidden: int, heads: int, tp: int = 1) -> int:
        """
        Matrix parameters of the attention on one of ``tp`` tensor ranks, (1) and (2).

        ``hidden``, ``heads``: hidden size and heads of the layer.
        """
        made = (self.q_lora_rank or hidden) * self.key_dim
        made += self.kv_lora_rank * (self.qk_nope_head_dim + self.v_head_dim) + self.v_head_dim * hidden
        return hidden * self.compressed + heads * made // tp
