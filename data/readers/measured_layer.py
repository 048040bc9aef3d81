r"""
A layer that another tool measured, as a row of a cost table.

Such tools leave out some of what a plan needs. It follows from the FLOP of the layer's forward pass on one tensor rank,
:math:`G` in matrix products with weights and :math:`A` in the attention core (``taut.data.model``, eq. 3; the head is
one product, the embedding none). The input gradient takes :math:`G + 2 A`, the weight gradient :math:`G`:

(1) of a backward pass of :math:`b` seconds, measured as a whole, :math:`b G / (2 G + 2 A)` are weight gradient and the
    rest is input gradient; where there are no FLOP all of it is weight gradient;
(2) no product runs above the highest peak rate :math:`P` that the device states for 16 bits or more, or for what was
    profiled: :math:`G / P \le f` and :math:`2 G / P \le b`. The attention core is left out, as kernels may skip the
    masked half.

A row that breaks (2) was not measured on this model and device, or not as a whole, and is refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from taut.data.analytic.device_rates import ELEMENT_BYTES, KEPT_BYTES
from taut.data.analytic.layer_costs import activation_bytes
from taut.data.costs import CostRow, Recompute
from taut.data.device import DeviceSpec, Precision
from taut.data.layers.layer import EMBEDDING, HEAD, LayerSpec
from taut.data.model import ModelSpec
from taut.data.units import TERA
from taut.errors import DataError

Pass = tuple[float, float]
"""Seconds forward and backward."""


class Flop(NamedTuple):
    """FLOP of a layer's forward pass for one micro-batch on one rank; a backward pass has twice as many."""

    products: float = 0.0
    attention: float = 0.0

    @property
    def total(self) -> float:
        """Both together."""
        return self.products + self.attention

    @property
    def weight_share(self) -> float:
        """Share of the weight gradient in the backward pass, (1)."""
        return self.products / (2 * self.total) if self.total else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """What was profiled, and on what: a model of one layer kind, a device type, number format and attention kernel."""

    model: ModelSpec
    device: DeviceSpec
    precision: Precision
    fused_attention: bool

    def __post_init__(self) -> None:
        """Refuse a model whose profile cannot be told apart into embedding, equal blocks and head."""
        if len(self.model.kinds) != 1 or not self.model.vocab:
            raise DataError(f"model {self.model.name}: expected layers of one kind and a vocabulary")
        if self.block.experts or self.block.latent:
            part = "experts" if self.block.experts else "latent attention"
            raise DataError(f"model {self.model.name}: has {part}, expected dense layers with plain attention")

    @property
    def block(self) -> LayerSpec:
        """The shape of every layer."""
        return self.model.blocks[0]

    @property
    def output_bytes(self) -> int:
        """Bytes that a layer hands to the next for one sample."""
        return ELEMENT_BYTES[self.precision] * self.block.output_elements

    def flop(self, kind: str, tp: int, micro_batch: int) -> Flop:
        """FLOP of a layer's forward pass for one micro-batch on one rank: matrix products and attention core."""
        if kind == EMBEDDING:
            return Flop()
        tokens = float(micro_batch * self.block.seq)
        if kind == HEAD:
            return Flop(2.0 * tokens * (self.model.padded_vocab(tp) // tp) * self.block.hidden)
        return Flop(2.0 * tokens * self.block.matrix_parameters(tp), micro_batch * self.block.attention_flops() / tp)

    def kept_bytes(self, kind: str, tp: int, micro_batch: int, recompute: Recompute = "none") -> int:
        """Bytes of activations that stay on one rank, without sequence parallelism, by formula."""
        outputs = micro_batch * self.block.output_elements
        element = ELEMENT_BYTES[self.precision]
        if kind == EMBEDDING:
            return outputs
        if kind == HEAD:
            return 2 * element * outputs + 4 * micro_batch * self.block.seq * (self.model.padded_vocab(tp) // tp)
        tokens, kept = micro_batch * self.block.seq, KEPT_BYTES[self.precision]
        replicated, split = activation_bytes(self.block, recompute, tokens, element, self.fused_attention, kept)
        return replicated - (-split // tp)

    def row(
        self,
        kind: str,
        tp: int,
        micro_batch: int,
        seconds: Pass,
        where: str,
        *,
        kept: int | None = None,
        recompute: Recompute = "none",
        spread: float | None = None,
    ) -> CostRow:
        """
        Row of a layer from its passes without recomputation and communication; ``DataError`` names ``where``.

        Under ``full`` the forward seconds are added to the input gradient; bytes are by formula unless ``kept`` were
        measured. A figure out of range, or above what the device can reach (2), is refused.
        """
        forward, backward = seconds
        flop = self.flop(kind, tp, micro_batch)
        if not self.reachable(kind, tp, micro_batch, seconds):
            raise DataError(f"{where}: {self._too_fast(flop, seconds)}")
        values = {
            "device": self.device.name,
            "kind": kind,
            "tp": tp,
            "micro_batch": micro_batch,
            "seq": self.block.seq,
            "recompute": recompute,
            "forward_s": forward,
            "input_grad_s": backward * (1.0 - flop.weight_share) + (forward if recompute == "full" else 0.0),
            "weight_grad_s": backward * flop.weight_share,
            "activation_bytes": self.kept_bytes(kind, tp, micro_batch, recompute) if kept is None else kept,
            "spread": spread,
        }
        return CostRow.parse(values, where)

    def reachable(self, kind: str, tp: int, micro_batch: int, seconds: Pass) -> bool:
        """Whether the device can be that fast, (2): the products alone take no longer at the peak rate."""
        forward, backward = seconds
        least = self.flop(kind, tp, micro_batch).products / self._peak
        return forward >= least and backward >= 2 * least

    def above_own_peak(self, rows: Iterable[CostRow]) -> bool:
        """Whether a product ran above the peak rate of the number format itself, as fp32's in TF32 do."""
        peak = self.device.peak_flops(self.precision)
        return peak is not None and any(
            self.flop(row.kind, row.tp, row.micro_batch).products > peak * row.forward_s for row in rows
        )

    @property
    def _peak(self) -> float:
        rates = self.device.peak_tflops
        return max(rates[name] for name in rates if name in ("fp16", "bf16", "fp32", self.precision)) * TERA

    def _too_fast(self, flop: Flop, seconds: Pass) -> str:
        forward, backward = seconds
        least = flop.products / self._peak
        return (
            f"forward and backward are {forward:.3g} and {backward:.3g} s for {flop.products:.3g} and "
            f"{2 * flop.products:.3g} FLOP of {self.model.name}, expected at least {least:.3g} and {2 * least:.3g} s, "
            f"as {self.device.name} has a peak of {self._peak / TERA:g} TFLOP/s"
        )
