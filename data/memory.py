r"""
How memory is accounted: bytes per parameter, what the framework takes, and the margin.

Bytes per parameter of the mixed-precision Adam of Megatron-LM, (weights, main gradients, optimizer states); with
ZeRO-1 (its distributed optimizer) the states are divided by the data degree:

==========  =======  =========  ======
precision   weights  gradients  states
==========  =======  =========  ======
bf16        2        4          12
fp16        2        2          16
fp32        4        4          8
fp8         2        4          12
==========  =======  =========  ======

Source: Megatron-LM documentation, "Distributed optimizer" (fp16: 20 or 4 + 16/d, bf16: 18 or 6 + 12/d, fp32: 16 or
8 + 8/d bytes); fp8 keeps bf16 weights (Transformer Engine). Gradients are summed over the replicas in the type they
are kept in.
"""

from typing import Annotated, NamedTuple

from pydantic import Field

from taut.data.device import Precision
from taut.data.spec import Spec
from taut.data.units import GIB, MOST_GIB


class ParameterBytes(NamedTuple):
    """Bytes that one parameter takes on a device."""

    weight: int
    gradient: int
    state: int

    def exchanged(self, zero: int, num_micro_batches: int) -> float:
        """
        Bytes per parameter that all-reduces of a step carry, or what does as much.

        A reduce-scatter and an all-gather are half an all-reduce each. Stages 0 and 1 sum the gradients once a step;
        stage 2 scatters them after every micro-batch and gathers the weights once; stage 3 gathers the weights for
        both passes of every micro-batch (Rajbhandari et al., arXiv 1910.02054, section 7).
        """
        if zero == 3:
            return num_micro_batches * (self.gradient + 2 * self.weight) / 2
        if zero == 2:
            return (num_micro_batches * self.gradient + self.weight) / 2
        return float(self.gradient)


PARAMETER_BYTES: dict[Precision, ParameterBytes] = {
    "bf16": ParameterBytes(2, 4, 12),
    "fp16": ParameterBytes(2, 2, 16),
    "fp32": ParameterBytes(4, 4, 8),
    "fp8": ParameterBytes(2, 4, 12),
}


class MemoryModel(Spec):
    """
    The analytic memory model's assumptions.

    ``overhead_gib`` is what CUDA, NCCL and the framework hold on every device; ``margin`` is the share of a device's
    memory that stays free because predictions err.
    """

    name: str = "analytic"
    precision: Precision = "bf16"
    overhead_gib: Annotated[float, Field(ge=0, le=MOST_GIB)] = 2.0
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.05

    @property
    def parameter_bytes(self) -> ParameterBytes:
        """Bytes per parameter in this precision."""
        return PARAMETER_BYTES[self.precision]

    @property
    def overhead_bytes(self) -> int:
        """Bytes that the framework holds on every device."""
        return round(self.overhead_gib * GIB)

    def margin_kib(self, capacity_kib: int) -> int:
        """KiB that stay free on a device with this capacity, rounded up."""
        return -int(-self.margin * capacity_kib // 1)
