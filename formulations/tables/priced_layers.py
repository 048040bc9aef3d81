r"""
Layers with their prices: sums over every range of layers at the degrees of a block, and one micro-batch.

Sets: layers :math:`l = 0..L-1` of kinds g, device types k, recompute :math:`r \in` {none, selective, full}; a range is
:math:`[i, j)`. The embedding belongs to layer 0, the final norm and head to layer :math:`L-1`. With :math:`n_{gij}` the
layers of kind g in a range, a figure x of layers, y of the embedding and z of the head sums to

.. math:: X_{ij} = y [i = 0] + z [j = L] + \sum_g n_{gij} x_g, \tag{1}

so equal ranges get equal floats. Where the first and the last chunk may have no layers (``ends``), ranges are of L + 2
parts in their place, embedding, layers and head. Figures are the cost table's; where it has no row, full recompute
follows from none: its gradient by the input takes the forward pass as well, and the layer's output is kept; selective
is then none (2).
"""

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property, lru_cache

import numpy as np

from taut.data.analytic.device_rates import ELEMENT_BYTES
from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE, CostTable, Key, LayerCost, Module
from taut.data.device import Precision
from taut.data.layers.experts import USUAL_DISPATCH, DispatchSpec
from taut.data.layers.layer import EMBEDDING, ENCODER, HEAD, LayerSpec
from taut.data.model import ModelSpec
from taut.formulations.degrees import BlockShape
from taut.formulations.mechanisms.offload import ActivationsOnHosts
from taut.formulations.space import Candidate

FULL = RECOMPUTE.index("full")


@dataclass(frozen=True, kw_only=True, eq=False)
class PricedLayers:
    """
    A model's layers with their prices at a block's degrees and one micro-batch, device types as axis k.

    ``node_size`` are the devices of the largest node; ``modules`` those of selective recompute, none for the attention
    core; ``core_inverse`` seconds of a FLOP of attention beside which rings of keys go, 0 beside none; ``hosts`` is
    what moves a share of activations; ``recorded`` says that CUDA graphs launch passes. Of the ``candidate`` block,
    micro-batch, empty ends and recomputed layers count.
    """

    model: ModelSpec
    costs: CostTable
    device_types: Sequence[str]
    precision: Precision
    candidate: Candidate
    node_size: int
    modules: tuple[Module, ...] = ()
    core_inverse: float = 0.0
    dispatch: DispatchSpec = USUAL_DISPATCH
    hosts: ActivationsOnHosts | None = None
    recorded: bool = False

    @cached_property
    def block(self) -> BlockShape:
        """Degrees of a block."""
        return self.candidate.block

    @property
    def micro_batch(self) -> int:
        """Sequences of a micro-batch."""
        return self.candidate.micro_batch

    @property
    def ends(self) -> bool:
        """Whether embedding and head are parts of their own."""
        return self.candidate.end_parts > 0

    @property
    def first_layers(self) -> int:
        """Layers of a range that full recompute is of, 0 for all (``taut.formulations.mechanisms.recompute`` (1))."""
        return self.candidate.recompute_layers

    @property
    def tp(self) -> int:
        """Tensor degree."""
        return self.block.tp

    @property
    def cp(self) -> int:
        """Context degree."""
        return self.block.cp

    @property
    def element(self) -> int:
        """Bytes of a number."""
        return ELEMENT_BYTES[self.precision]

    @cached_property
    def kinds(self) -> list[LayerSpec]:
        """One layer of each kind g."""
        return list(self.model.kinds.values())

    @property
    def count(self) -> Floats:
        """Layers of a kind in a range, n (kinds, L+1, L+1)."""
        return self._holds[0]

    @property
    def first(self) -> Floats:
        """Whether a range holds the embedding (L+1, L+1)."""
        return self._holds[1]

    @property
    def last(self) -> Floats:
        """Whether a range holds the head (L+1, L+1)."""
        return self._holds[2]

    @cached_property
    def _holds(self) -> tuple[Floats, Floats, Floats]:
        return self._held(self.model.further)

    def _held(self, further: Sequence[LayerSpec]) -> tuple[Floats, Floats, Floats]:
        """What ranges hold, with these layers for further tokens."""
        kinds, behind = (tuple(layer.kind for layer in layers) for layers in (self.model.blocks, further))
        return _held_by_ranges(kinds, self.ends, behind)

    def sums(self, per_kind: Sequence[float], at_first: float, at_last: float, *, weights: bool = False) -> Floats:
        """Sum (1) of a figure of layers, embedding and head over every range; ``weights`` in common count once."""
        total = np.zeros(self.first.shape)
        total[0] = at_first
        total[:, -1] += at_last
        count = self._held(self.model.further_held)[0] if weights else self.count
        for figure, times in zip(per_kind, count, strict=True):
            total += figure * times
        return np.asarray(total)

    @cached_property
    def again(self) -> Floats | None:
        """Layers of a kind that a range recomputes, (kinds, L+1, L+1); None where full recompute is of all of them."""
        if not self.first_layers:
            return None
        count = self._held(())[0]
        until = self.ends_of_first_layers
        return np.asarray(np.minimum(count, count[:, np.arange(len(until)), until][:, :, None]))

    @property
    def ends_of_first_layers(self) -> Ints:
        """Where the layers end that a range recomputes, if it is long enough, by its start (L+1,)."""
        places = np.arange(self.first.shape[0])
        # The embedding, where it is a part, is no layer.
        return np.asarray(np.minimum(places + self.first_layers + self.ends * (places == 0), places[-1]))

    def sums_of(self, per_kind: Sequence[Sequence[float]], at_first: float, at_last: float) -> Floats:
        """Sums of a figure by recompute and kind over every range, (recompute, L+1, L+1)."""
        found = np.array([self.sums(each, at_first, at_last) for each in per_kind])
        if self.again is not None:
            kept, full = np.array(per_kind[0]), np.array(per_kind[FULL])
            found[FULL] = found[0] + np.tensordot(full - kept, self.again, 1)
        return found

    @cached_property
    def whole_seconds(self) -> Floats:
        """Sums of the seconds of both passes over every range (types, recompute, L+1, L+1)."""
        return self.seconds(lambda cost: cost.seconds)

    def seconds(self, part: Callable[[LayerCost], float]) -> Floats:
        """Sums of a part of the costs over every range (types, recompute, L+1, L+1)."""
        edges = {device: self.edges(device) for device in self.device_types}
        return np.array(
            [
                self.sums_of(
                    [[part(cost) for cost in self.prices(device, r)] for r in RECOMPUTE], *map(part, edges[device])
                )
                for device in self.device_types
            ]
        )

    def seconds_of_layers(self) -> Floats:
        """Seconds of both passes of every single layer (types, recompute, L), without sums over ranges."""
        count, first, last = (np.diagonal(holds, 1, -2, -1) for holds in self._holds)
        edges = {device: [cost.seconds for cost in self.edges(device)] for device in self.device_types}
        priced = [
            [[cost.seconds for cost in self.prices(device, r)] for r in RECOMPUTE] for device in self.device_types
        ]
        beside = np.array([edges[device][0] * first + edges[device][1] * last for device in self.device_types])
        return np.asarray(beside[:, None] + np.array(priced) @ count)

    def prices(self, device: str, recompute: str) -> list[LayerCost]:
        """Cost of a layer of each kind."""
        plain = self.plain_prices(device, recompute)
        return plain if self.hosts is None else [self.hosts.price(device, cost) for cost in plain]

    def plain_prices(self, device: str, recompute: str) -> list[LayerCost]:
        """Cost of a layer of each kind whose activations stay on the device."""
        return [self._price(device, layer, recompute) for layer in self.kinds]

    def moved(self, recompute: str) -> list[int]:
        """Bytes of a layer of each kind that go to the host, the most of any device type."""
        if self.hosts is None:
            return [0] * len(self.kinds)
        costs = [self.plain_prices(device, recompute) for device in self.device_types]
        return [max(self.hosts.moved(cost) for cost in of_kind) for of_kind in zip(*costs, strict=True)]

    @property
    def hiding(self) -> float:
        """Least seconds of both passes of a layer with experts, without recompute, on any device type."""
        every = (zip(self.kinds, self.plain_prices(device, "none"), strict=True) for device in self.device_types)
        return min(cost.seconds for each in every for layer, cost in each if layer.experts)

    def edges(self, device: str) -> tuple[LayerCost, LayerCost]:
        """Costs of embedding and head; nothing for a model without vocabulary."""
        if not self.model.vocab:
            return LayerCost(0.0, 0.0, 0.0, 0, 0), LayerCost(0.0, 0.0, 0.0, 0, 0)
        blocks = self.model.blocks
        key = Key(device, EMBEDDING, self.tp, self.micro_batch, blocks[0].seq, "none", self.cp)
        key = self._as_launched(key)
        return self._with_images(self.costs.at(key), key), self._head(
            self.costs.at(key._replace(kind=HEAD, seq=blocks[-1].seq))
        )

    def _as_launched(self, key: Key) -> Key:
        """The key of passes that CUDA graphs launch, where the candidate has these and the table their price."""
        return self.costs.as_recorded(key) if self.recorded else key

    def _with_images(self, one: LayerCost, key: Key) -> LayerCost:
        """The embedding with the encoder of images before it."""
        if self.model.encoder is None:
            return one
        images = self.costs.at(key._replace(kind=ENCODER, seq=self.model.encoder.patches))
        return LayerCost(*(a + b for a, b in zip(astuple(one), astuple(images), strict=True)))

    def _head(self, one: LayerCost) -> LayerCost:
        """The head with those of further tokens, whose product of 2 h inputs keeps them and their norms' inputs."""
        further = self.model.mtp_layers
        if not further:
            return one
        times = 1 + further * self.model.mtp_head_share
        held = 4 * self.output_bytes(self.model.blocks[-1])
        return LayerCost(
            times * one.forward,
            times * one.input_grad,
            times * one.weight_grad,
            (1 + further) * one.activation_bytes + further * held,
            (1 + further) * one.activation_bytes_sp + further * -(-held // self.tp),
        )

    def parameters(self, layer: LayerSpec) -> int:
        """Parameters of a layer on one device."""
        whole, routed = layer.parameters(self.tp), layer.routed_parameters
        return whole - routed // self.tp + routed // (self.block.experts if self.block.ep > 1 else self.tp)

    def apart(self, layer: LayerSpec) -> int:
        """Parameters of a layer on one device that fewer devices hold than those of its attention."""
        return layer.routed_parameters // self.block.experts if self.block.experts > self.tp else 0

    def output_bytes(self, layer: LayerSpec) -> int:
        """Bytes that one device hands to the next layer, of its share of the tokens."""
        return self.element * self.micro_batch * layer.output_elements // self.cp

    def _price(self, device: str, layer: LayerSpec, recompute: str) -> LayerCost:
        """The table's cost, or what follows from it by (2)."""
        key = Key(device, layer.kind, self.tp, self.micro_batch, layer.seq, recompute, self.cp)
        if layer.experts and self.block.ep > 1:
            key = key._replace(ep=self.block.ep, etp=self.block.etp)
        key = self._as_launched(key)
        if self.costs.prices(key):
            return self.costs.at(key)
        plain = self.costs.at(self._as_launched(key._replace(recompute="none")))
        if recompute != "full":
            return plain
        kept = self.output_bytes(layer)
        grad = plain.input_grad + plain.forward
        return LayerCost(plain.forward, grad, plain.weight_grad, kept, -(-kept // self.tp))


@lru_cache(maxsize=16)
def _held_by_ranges(kinds: tuple[str, ...], ends: bool, further: tuple[str, ...]) -> tuple[Floats, Floats, Floats]:
    """Layers of each kind that ranges hold (kinds, L+1, L+1), and whether they hold the first and the last layer."""
    of_kind = np.array([[other == kind for other in kinds] for kind in dict.fromkeys(kinds)], dtype=float)
    of_kind = np.pad(of_kind, ((0, 0), (int(ends), int(ends))))
    before = np.concatenate([np.zeros((len(of_kind), 1)), np.cumsum(of_kind, axis=1)], axis=1)
    count = np.maximum(before[:, None, :] - before[:, :, None], 0.0)
    first, last = np.zeros((2, *count.shape[1:]))
    first[0, :], last[:, -1] = 1.0, 1.0
    # Layers that predict further tokens stand with the head.
    for kind in further:
        count[list(dict.fromkeys(kinds)).index(kind)] += last
    for figure in (count, first, last):
        figure.setflags(write=False)
    return count, first, last


@dataclass(frozen=True)
class PassTables:
    """Seconds of the passes of every range of layers on every type, without communication, (types, recompute, ...)."""

    forward: Floats
    input_gradient: Floats
    weight_gradient: Floats


def pass_tables(priced: PricedLayers) -> PassTables:
    """What a range takes forward, and for its gradients by input and weights, (1)."""
    return PassTables(
        forward=priced.seconds(lambda cost: cost.forward),
        input_gradient=priced.seconds(lambda cost: cost.input_grad),
        weight_gradient=priced.seconds(lambda cost: cost.weight_grad),
    )
