r"""
The feed-forward part of a layer as a mixture of experts.

A router scores E experts for every token, of which the k best take it; each is a feed-forward part of width
:math:`f_e`. Shared experts, together of width :math:`f_s`, take every token. With hidden size h and g matrices of a
feed-forward part (3 if gated, else 2),

(1) matrix parameters: :math:`h E + g h (E f_e + f_s)`, of which a token uses :math:`h E + g h (k f_e + f_s)`;
(2) of t tensor ranks each has 1/t of the width of the shared experts and the whole router. Of the others it has 1/t of
    the width of each, or, with expert parallelism, 1/x of the width of 1/e of them: e = ep and x = etp, as Megatron-LM
    calls them;
(3) tokens are routed evenly: :math:`k / E` of them to every expert, the imbalance factor 1. None is dropped;
(4) of r ranks with E / r experts each, one takes a token with probability
    :math:`1 - \binom{E - E / r}{k} / \binom{E}{k}`;
(5) ``biased`` experts add biases to their products and clamp what their activation function takes, as GPT-OSS does;
    the biases' parameters are left out.
"""

from math import comb
from typing import Annotated

from pydantic import Field, model_validator

from taut.data.layers.sizes import Count
from taut.data.spec import Spec


class ExpertsSpec(Spec):
    """Experts of a layer, of which ``experts_per_token`` take a token; shared experts take every token."""

    num_experts: Count
    experts_per_token: Count
    expert_ffn_hidden: Count
    shared_ffn_hidden: Annotated[int, Field(ge=0, le=10_000_000, strict=True)] = 0
    biased: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> "ExpertsSpec":
        if self.experts_per_token > self.num_experts:
            raise ValueError(
                f"experts_per_token is {self.experts_per_token}, expected at most num_experts ({self.num_experts})"
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
        """
        Probability that one of ``ranks`` equal shares of the experts takes a token, (4).

        Parameters
        ----------
        ranks
            A divisor of the number of experts.
        """
        others = self.num_experts - self.num_experts // ranks
        return 1.0 - comb(others, self.experts_per_token) / comb(self.num_experts, self.experts_per_token)

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` tensor ranks can share the width of every expert evenly, (2)."""
        return self.expert_ffn_hidden % tp == 0 and self.shared_ffn_hidden % tp == 0

    def matrix_parameters(self, hidden: int, matrices: int, tp: int = 1) -> int:
        """
        Matrix parameters on one of ``tp`` tensor ranks, (1) and (2).

        Parameters
        ----------
        hidden
            Hidden size of the layer.
        matrices
            Matrices of a feed-forward part.
        tp
            Tensor degree.
        """
        return hidden * self.num_experts + matrices * hidden * self.width // tp
