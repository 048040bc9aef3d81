r"""
The feed-forward part of a layer as a mixture of experts, and how its expert ranks exchange tokens.

A router scores E experts for every token, of which the k best take it; each is a feed-forward part of width
:math:`f_e`. Shared experts, together of width :math:`f_s`, take every token. With hidden size h and g matrices of a
feed-forward part (3 if gated, else 2),

(1) matrix parameters: :math:`h E + g h (E f_e + f_s)`, of which a token uses :math:`h E + g h (k f_e + f_s)`;
(2) of t tensor ranks each has 1/t of the width of the shared experts and the whole router. Of the others it has 1/t of
    the width of each, or, with expert parallelism, 1/x of the width of 1/e of them: e = ep and x = etp, as Megatron-LM
    calls them;
(3) tokens are routed evenly: :math:`k / E` of them to every expert, the imbalance factor 1. None is dropped;
(4) of r ranks with :math:`n = E / r` experts each, one after another, one takes a token with probability
    :math:`1 - \binom{E - n}{k} / \binom{E}{k}`;
(5) a router may keep a token within K of G groups of :math:`g = E / G` experts, one after another (node-limited
    routing: DeepSeek-V3, arXiv 2412.19437, section 2.1.2; group-limited routing of Megatron-LM,
    ``--moe-router-num-groups`` and ``--moe-router-group-topk``). All choices of K groups are taken to be as likely, and
    then all of k of their :math:`E' = K g` experts. A rank with a_1, ..., a_m experts of the groups that it touches,
    :math:`\sum_i a_i = n`, takes a token with probability

    .. math:: 1 - \sum_{I \subseteq \{1..m\}} \binom{G - m}{K - |I|} \binom{E' - \sum_{i \in I} a_i}{k} \Big/
        \binom{G}{K} \binom{E'}{k},

    which is :math:`\frac{K}{G} \big( 1 - \binom{E' - n}{k} / \binom{E'}{k} \big)` within a group and
    :math:`1 - \sum_j \binom{m}{j} \binom{G - m}{K - j} \binom{E' - j g}{k} / \binom{G}{K} \binom{E'}{k}` of m whole
    groups. Where ranks and groups overlap otherwise ranks are hit unequally, and (4) is their mean. With K = G it is
    (4). Routers choose the groups of the best scores, in which chosen experts lie more evenly than this: of
    independent scores, DeepSeek-V3's router hits 9 % more of eight ranks and 2 % more of 64;
(6) ``biased`` experts add biases to their products and clamp what their activation function takes, as GPT-OSS does;
    the biases' parameters are left out;
(7) experts may take and give rows of :math:`l < h` channels (``latent_hidden``, Nemotron 3 Super): l stands for h in
    their matrices, in what ranks exchange and in what is kept for them. The two products between h and l are a
    layer's further ones (``taut.data.layers.layer`` (12)).

What a stack's dispatcher sends, in which format, and what hides it: ``flex`` sends a token once to each node that has
experts for it, and within a node once to each GPU, as DeepEP and HybridEP do; ``alltoall`` sends every token's row to
each of its experts; ``allgather`` gathers all tokens of an expert group on each of its GPUs, whatever experts they
chose, and sums and scatters the experts' outputs. With ``fp8`` rows are dispatched forward as products in fp8 take
them, one scale for 128 numbers (DeepSeek-V3, arXiv 2412.19437, section 3.3.2); what is combined, and gradients, stay in
bf16. ``imbalance`` is the load of the fullest rank over the mean, 1 where routing is forced to be even, as in published
benchmarks. With ``overlap`` the exchanges of one micro-batch run beside the computation of another one (Megatron-LM's
``--overlap-moe-expert-parallel-comm``), which has it, as fp8, but beside ``allgather``
(megatron/core/transformer/transformer_config.py). ``router_dtype`` is the format of the router's scores, that of the
activations unless stated (Megatron-LM's ``--moe-router-dtype``): a gather sends the scores of all experts beside every
token, and sums the experts' outputs in their format; what other dispatchers send does not depend on it.
"""

from collections import Counter
from functools import cache
from math import comb
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from taut.data.spec import LATER, Count, GrownSpec


class ExpertsSpec(GrownSpec):
    """
    Experts of a layer, of which ``experts_per_token`` take a token; shared experts take every token.

    The router keeps a token within ``router_group_topk`` of ``router_num_groups`` groups, (5).
    """

    num_experts: Count
    experts_per_token: Count
    expert_ffn_hidden: Count
    shared_ffn_hidden: Annotated[int, Field(ge=0, le=10_000_000, strict=True)] = 0
    biased: bool = False
    router_num_groups: Annotated[Count, LATER] = 1
    router_group_topk: Annotated[Count, LATER] = 1
    latent_hidden: Annotated[Count | None, LATER] = None

    @model_validator(mode="after")
    def _consistent(self) -> "ExpertsSpec":
        if self.experts_per_token > self.num_experts:
            raise ValueError(
                f"experts_per_token is {self.experts_per_token}, expected at most num_experts ({self.num_experts})"
            )
        groups, kept = self.router_num_groups, self.router_group_topk
        if self.num_experts % groups:
            raise ValueError(f"router_num_groups is {groups}, expected a divisor of num_experts ({self.num_experts})")
        if kept > groups:
            raise ValueError(f"router_group_topk is {kept}, expected at most router_num_groups ({groups})")
        if self.experts_per_token > (left := self.num_experts // groups * kept):
            raise ValueError(
                f"router_group_topk is {kept}, expected groups with experts_per_token ({self.experts_per_token}) "
                f"experts, not {left}"
            )
        return self

    @property
    def width(self) -> int:
        """Width of all feed-forward parts together, :math:`E f_e + f_s`."""
        return self.num_experts * self.expert_ffn_hidden + self.shared_ffn_hidden

    @property
    def used_width(self) -> int:
        """Width that one token passes through, :math:`k f_e + f_s`."""
        return self.experts_per_token * self.expert_ffn_hidden + self.shared_ffn_hidden

    def reach(self, ranks: int) -> float:
        """Probability that one of ``ranks`` equal shares of the experts takes a token, (4) and (5)."""
        if self.router_group_topk < self.router_num_groups:
            return _reach_in_groups(self, ranks)
        others = self.num_experts - self.num_experts // ranks
        return 1.0 - comb(others, self.experts_per_token) / comb(self.num_experts, self.experts_per_token)

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` tensor ranks can share the width of every expert evenly, (2)."""
        return self.expert_ffn_hidden % tp == 0 and self.shared_ffn_hidden % tp == 0

    def matrix_parameters(self, hidden: int, matrices: int, tp: int = 1) -> int:
        """Matrix parameters on one of ``tp`` tensor ranks, (1) and (2), of feed-forward parts of so many matrices."""
        row, routed = self.latent_hidden or hidden, self.num_experts * self.expert_ffn_hidden
        return hidden * self.num_experts + matrices * (row * routed + hidden * self.shared_ffn_hidden) // tp


@cache
def _reach_in_groups(experts: ExpertsSpec, ranks: int) -> float:
    """Mean probability that a rank takes a token whose experts lie in some groups, (5)."""
    groups, kept, chosen = experts.router_num_groups, experts.router_group_topk, experts.experts_per_token
    size, group = experts.num_experts // ranks, experts.num_experts // groups
    missed = 0
    for touched, count in Counter(_touched(size * rank, size, group) for rank in range(ranks)).items():
        for (number, held), ways in _held(touched, kept).items():
            others = comb(groups - len(touched), kept - number)
            missed += count * ways * others * comb(group * kept - held, chosen)
    return 1.0 - missed / (ranks * comb(groups, kept) * comb(group * kept, chosen))


def _touched(first: int, size: int, group: int) -> tuple[int, ...]:
    """Experts in each group that a rank with ``size`` of them from ``first`` on touches."""
    places = range(first // group, (first + size - 1) // group + 1)
    return tuple(min(first + size, (at + 1) * group) - max(first, at * group) for at in places)


def _held(touched: tuple[int, ...], most: int) -> Counter[tuple[int, int]]:
    """Sets of at most so many of the groups that a rank touches, by their number and the rank's experts in them."""
    found = Counter({(0, 0): 1})
    for own in touched:
        found += Counter({(number + 1, held + own): ways for (number, held), ways in found.items() if number < most})
    return found


Dispatcher = Literal["flex", "alltoall", "allgather"]
DISPATCHERS: tuple[Dispatcher, ...] = get_args(Dispatcher)
RouterFormat = Literal["fp32", "fp64"]
ROUTER_FORMATS: tuple[RouterFormat, ...] = get_args(RouterFormat)
SCORE_BYTES = {"fp32": 4, "fp64": 8}
NARROW = 132 / 256
"""Bytes of a row in fp8 with a scale of 4 bytes for 128 numbers, of those in bf16."""


FUSED_MOVES = 4.0
"""Rows that fused kernels read and write: in order before experts, and back behind them."""


class DispatchSpec(GrownSpec):
    """
    How expert ranks exchange tokens: dispatcher, format, imbalance, overlap, format of the scores.

    ``row_moves`` are rows that a pass reads and writes for each row of an expert, with expert ranks or without, to put
    rows in the order of experts and to weigh and sum their outputs (``taut.data.analytic.routed_layers`` (3)).
    """

    dispatcher: Dispatcher = "flex"
    fp8: bool = False
    imbalance: Annotated[float, Field(ge=1, le=1000)] = 1.0
    overlap: bool = False
    router_dtype: RouterFormat | None = None
    row_moves: Annotated[float, Field(ge=0, le=100), LATER] = FUSED_MOVES

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.conflict:
            raise ValueError(f"dispatcher is {self.dispatcher}, {self.conflict}")
        return self

    @property
    def conflict(self) -> str:
        """Why the dispatcher does not go with the rest, empty where it does."""
        if self.gathers and (self.fp8 or self.overlap):
            lacking = "hides no exchange" if self.overlap else "gathers nothing in fp8"
            return f"which {lacking}, expected flex or alltoall"
        return ""

    @property
    def gathers(self) -> bool:
        """Whether every GPU of an expert group gets all of the group's tokens."""
        return self.dispatcher == "allgather"

    @property
    def dispatched(self) -> float:
        """Bytes of a row dispatched forward, of those in bf16."""
        return NARROW if self.fp8 else 1.0

    def of_layers(self) -> "DispatchSpec":
        """The same as far as the costs of layers depend on it: imbalance, kernels of rows, and what is gathered."""
        return self if self.gathers else DispatchSpec(imbalance=self.imbalance, row_moves=self.row_moves)

    def score_bytes(self, element: int) -> int:
        """Bytes of a router's score, where an activation's number has so many."""
        return element if self.router_dtype is None else SCORE_BYTES[self.router_dtype]


USUAL_DISPATCH = DispatchSpec()
"""Even routing in bf16 by a flex dispatcher, nothing hidden."""
