r"""
One type of accelerator, and what it is assumed to reach when nothing was profiled.

The analytic cost of a layer (``taut.data.analytic.layer_costs``) needs peak rates, the share of the memory bandwidth
that traffic reaches, and the time that the host takes to launch a pass. Matrix products and attention follow an
operator model (``taut.data.analytic.operator_times``); a device without one reaches the stated shares of its peak. The
defaults are assumptions, printed with every plan.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from taut.data.spec import LATER, GrownSpec, NotNegative, Positive
from taut.data.units import GIB, GIGABYTE, KIB, MICROSECOND, MOST_GIB, TERA

Precision = Literal["bf16", "fp16", "fp32", "fp8", "fp8-blockwise", "mxfp8", "nvfp4"]
HALF: tuple[Precision, ...] = ("bf16", "fp16")
"""Precisions whose products run at one rate, so that one operator model and one calibration hold for both."""
QUANTIZED: frozenset[Precision] = frozenset({"fp8", "fp8-blockwise", "mxfp8", "nvfp4"})
"""Recipes by which matrix products run in a narrower format than the weights and activations between them."""
Fraction = Annotated[float, Field(gt=0, le=1)]


class DeviceSpec(GrownSpec):
    """
    A GPU type: memory, peak rates by precision, and efficiencies for the analytic cost.

    Figures are those of one GPU; peak rates are without sparsity, half of what data sheets state with it.
    Plans with tensors in the host's memory need ``host_link_gbytes``, of which transfers reach the share
    ``host_link_efficiency`` (``taut.formulations.mechanisms.offload``).
    """

    name: str
    memory_gib: Annotated[float, Field(gt=0, le=MOST_GIB, description="GiB of one GPU")]
    peak_tflops: Annotated[dict[Precision, Positive], Field(description="TFLOP/s of one GPU, without sparsity")]
    memory_bandwidth_gbytes: Annotated[Positive, Field(description="GB/s (1e9 bytes) of one GPU")]
    gemm_efficiency: Fraction = 0.7
    attention_efficiency: Fraction = 0.4
    memory_efficiency: Fraction = 0.8
    launch_us: NotNegative = 100.0
    host_link_gbytes: Annotated[
        Positive | None,
        Field(
            description="GB/s (1e9 bytes) in one direction between one GPU and its host's memory: PCIe, or NVLink-C2C"
        ),
        LATER,
    ] = None
    host_link_efficiency: Annotated[Fraction, LATER] = 0.77
    source: str = ""

    @property
    def half_tflops(self) -> float:
        """Peak rate of products in half precision, or of the first format that is stated, TFLOP/s."""
        return next(self.peak_tflops[each] for each in (*HALF, *self.peak_tflops) if each in self.peak_tflops)

    @property
    def capacity_kib(self) -> int:
        """Memory in KiB."""
        return int(self.memory_gib * GIB) // KIB

    def peak_flops(self, precision: Precision) -> float | None:
        """Peak rate in FLOP per second, or None where the device does not compute in this precision."""
        peak = self.peak_tflops.get(precision)
        return None if peak is None else peak * TERA

    def attention_flops(self, precision: Precision) -> float:
        """Peak FLOP per second of attention, bf16's where products run in a narrower format; 0 where there is none."""
        return self.peak_flops("bf16" if precision in QUANTIZED else precision) or 0.0

    @property
    def memory_bandwidth(self) -> float:
        """Peak memory bandwidth in bytes per second."""
        return self.memory_bandwidth_gbytes * GIGABYTE

    @property
    def host_link(self) -> float | None:
        """Bytes per second that transfers to the host, or from it, reach; None where it is not stated."""
        rate = self.host_link_gbytes
        return None if rate is None else self.host_link_efficiency * rate * GIGABYTE

    @property
    def launch(self) -> float:
        """Launch overhead of one pass over one layer, in seconds."""
        return self.launch_us * MICROSECOND


def core_inverse(devices: Iterable[DeviceSpec], precision: Precision) -> float:
    """Seconds of a FLOP of attention cores on the fastest of some devices, as they state; 0 if they state no rate."""
    fastest = max(device.attention_efficiency * device.attention_flops(precision) for device in devices)
    return 1.0 / fastest if fastest > 0.0 else 0.0


def usual_precision(devices: Iterable[DeviceSpec]) -> Precision:
    """The first of bf16, fp16 and fp32 in which every device computes; fp16 where there is none."""
    usual: tuple[Precision, ...] = ("bf16", "fp16", "fp32")
    computed = [device.peak_tflops for device in devices]
    return next((precision for precision in usual if all(precision in peaks for peaks in computed)), "fp16")
