"""
How expert ranks exchange tokens: what a stack's dispatcher sends, in which format, and what hides it.

``flex`` sends a token once to each node that has experts for it, and within a node once to each GPU, as DeepEP and
HybridEP do; ``alltoall`` sends every token's row to each of its experts. With ``fp8`` rows are dispatched forward as
products in fp8 take them, one scale for 128 numbers (DeepSeek-V3, arXiv 2412.19437, section 3.3.2); what is combined,
and gradients, stay in bf16. ``imbalance`` is the load of the fullest rank over the mean, 1 where routing is forced to
be even, as in published benchmarks. With ``overlap`` the exchanges of one micro-batch run beside the computation of
another one (Megatron-LM's ``--overlap-moe-expert-parallel-comm``).
"""

from typing import Annotated, Literal, get_args

from pydantic import Field

from taut.data.spec import Spec

Dispatcher = Literal["flex", "alltoall"]
DISPATCHERS: tuple[Dispatcher, ...] = get_args(Dispatcher)
NARROW = 132 / 256
"""Bytes of a row in fp8 with a scale of 4 bytes for 128 numbers, of those in bf16."""


class DispatchSpec(Spec):
    """The dispatcher, its format, the imbalance factor, and whether exchanges overlap another micro-batch."""

    dispatcher: Dispatcher = "flex"
    fp8: bool = False
    imbalance: Annotated[float, Field(ge=1, le=1000)] = 1.0
    overlap: bool = False

    @property
    def dispatched(self) -> float:
        """Bytes of a row dispatched forward, of those in bf16."""
        return NARROW if self.fp8 else 1.0


USUAL_DISPATCH = DispatchSpec()
"""Even routing in bf16 by a flex dispatcher, nothing hidden."""
