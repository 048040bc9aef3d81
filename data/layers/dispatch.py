"""
How expert ranks exchange tokens: what a stack's dispatcher sends, in which format, and what hides it.

``flex`` sends a token once to each node that has experts for it, and within a node once to each GPU, as DeepEP and
HybridEP do; ``alltoall`` sends every token's row to each of its experts; ``allgather`` gathers all tokens of an expert
group on each of its GPUs, whatever experts they chose, and sums and scatters the experts' outputs. With ``fp8`` rows
are dispatched forward as products in fp8 take them, one scale for 128 numbers (DeepSeek-V3, arXiv 2412.19437, section
3.3.2); what is combined, and gradients, stay in bf16. ``imbalance`` is the load of the fullest rank over the mean, 1
where routing is forced to be even, as in published benchmarks. With ``overlap`` the exchanges of one micro-batch run
beside the computation of another one (Megatron-LM's ``--overlap-moe-expert-parallel-comm``), which has it, as fp8, but
beside ``allgather`` (megatron/core/transformer/transformer_config.py). ``router_dtype`` is the format of the router's
scores, that of the activations unless stated (Megatron-LM's ``--moe-router-dtype``): a gather sends the scores of all
experts beside every token, and sums the experts' outputs in their format; what other dispatchers send does not depend
on it.
"""

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from taut.data.spec import Spec

Dispatcher = Literal["flex", "alltoall", "allgather"]
DISPATCHERS: tuple[Dispatcher, ...] = get_args(Dispatcher)
RouterFormat = Literal["fp32", "fp64"]
ROUTER_FORMATS: tuple[RouterFormat, ...] = get_args(RouterFormat)
SCORE_BYTES = {"fp32": 4, "fp64": 8}
NARROW = 132 / 256
"""Bytes of a row in fp8 with a scale of 4 bytes for 128 numbers, of those in bf16."""


class DispatchSpec(Spec):
    """How expert ranks exchange tokens: dispatcher, format, imbalance, overlap, format of the scores."""

    dispatcher: Dispatcher = "flex"
    fp8: bool = False
    imbalance: Annotated[float, Field(ge=1, le=1000)] = 1.0
    overlap: bool = False
    router_dtype: RouterFormat | None = None

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
        """The same as far as the costs of layers depend on it: the imbalance, and what is gathered."""
        return self if self.gathers else DispatchSpec(imbalance=self.imbalance)

    def score_bytes(self, element: int) -> int:
        """Bytes of a router's score, where an activation's number has so many."""
        return element if self.router_dtype is None else SCORE_BYTES[self.router_dtype]


USUAL_DISPATCH = DispatchSpec()
"""Even routing in bf16 by a flex dispatcher, nothing hidden."""
