r"""
The planning problem: what is given, and the arrays that every candidate is priced with.

One object holds model, cluster, cost table, memory model, latency model and space; candidates, stage tables and stage
memory are derived from it and kept.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

from taut.data.analytic.device_rates import ELEMENT_BYTES
from taut.data.arrays import Floats, Ints
from taut.data.calibration import Calibration
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable, Recompute
from taut.data.device import core_inverse
from taut.data.memory import MemoryModel, ParameterBytes
from taut.data.model import ModelSpec
from taut.formulations.candidates import candidates
from taut.formulations.links import Links, links
from taut.formulations.mechanisms.context_ranks import ContextKinds
from taut.formulations.mechanisms.expert_ranks import hides_exchange, recompute_beside_overlap
from taut.formulations.mechanisms.latency_models import LATENCY_MODELS, LatencyModel, LatencyName
from taut.formulations.mechanisms.muon import (
    Matrices,
    least_update,
    matrix_tables,
    padding_terms,
    ranks_of,
    rates_of,
    suits_muon,
)
from taut.formulations.mechanisms.offload import (
    links_key,
    memory_key,
    moved_activations,
    recompute_beside_hosts,
    seconds_by_type,
    with_share,
    within_hosts,
)
from taut.formulations.mechanisms.recompute import recompute_of
from taut.formulations.rings import RingRates, ring_rates
from taut.formulations.runs import beyond_seconds
from taut.formulations.schedules.orders import ON_V, GivenOrder
from taut.formulations.space import TERMS, Candidate, StrategySpace, beside_chunks
from taut.formulations.tables.block_traffic import Traffic, traffic_tables
from taut.formulations.tables.memory import budgets, in_flight
from taut.formulations.tables.priced_layers import PassTables, PricedLayers, pass_tables
from taut.formulations.tables.stage_tables import RangeFigures, StageTables
from taut.formulations.terms import Load, Term, gradient_bytes

Value = TypeVar("Value")


class Recent:
    """
    Values by key, of those asked for last as many as have room for their arrays, and at least one.

    They may be made ``of`` some inputs.

    Examples
    --------
    >>> recent = Recent(16)
    >>> [int(recent.get(n, lambda: np.full(1, n * n))[0]) for n in (1, 2, 3)]
    [1, 4, 9]
    >>> 1 in recent, 3 in recent
    (False, True)
    """

    def __init__(self, most_bytes: int, of: tuple[object, ...] = ()) -> None:
        self._most, self._bytes, self.of = most_bytes, 0, of
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made where it is not kept; values of other types have other keys."""
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
            return cast("Value", found[0])
        value = make()
        self._keep(key, value)
        return value

    def _keep(self, key: Hashable, value: Any) -> None:
        size = array_bytes(value)
        self._values[key] = value, size
        self._bytes += size
        while self._bytes > self._most and len(self._values) > 1:
            _, (_, freed) = self._values.popitem(last=False)
            self._bytes -= freed


def array_bytes(value: object) -> int:
    """
    Bytes of the arrays in a value, its fields and entries; a view counts no more than it shows.

    Examples
    --------
    >>> array_bytes((np.zeros(3), [np.zeros(1), "text"])), array_bytes(np.broadcast_to(0.0, (4, 4)))
    (32, 8)
    """
    found, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, np.ndarray):
            base = each.base
            found += min(each.nbytes, base.nbytes) if isinstance(base, np.ndarray) else each.nbytes
        elif isinstance(each, (list, tuple)):
            waiting += each
        elif fields_of := getattr(each, "__dataclass_fields__", None):
            waiting += [getattr(each, name) for name in fields_of]
    return found


MOST_KEPT = 96 * 2**20
"""Bytes of tables that a problem keeps, twice: 25 sets of 126 layers each, or a thousand of 32. Over 39,177 candidates
on 256 devices 192 MiB save a hundredth of the processor time, and take 166 MiB more at the peak."""
Key = tuple[object, ...]


@dataclass(frozen=True)
class PlanningProblem:
    """
    A planning problem: model, cluster, costs, memory model and space, with the tables that price a plan.

    ``taut.planning_problem`` makes one from a request. ``candidates`` lists the space. For a candidate, ``tables`` has
    seconds, bytes and messages of every range of layers, ``stage_memory`` (or ``device_memory`` if a device has several
    chunks) says what fits, and ``terms`` lists the collectives of weights and gradients. Tables are made on demand and
    kept.

    The ``calibration`` multiplies communication here; its other coefficients are in the cost table already. With
    ``overlap_grad_reduce`` the latency model ``step`` reduces gradients during the last backward pass.
    """

    model: ModelSpec
    cluster: ClusterSpec
    costs: CostTable
    memory: MemoryModel
    space: StrategySpace
    latency_model: LatencyName = "step"
    calibration: Calibration | None = None
    overlap_grad_reduce: bool = False
    _shared: Recent = field(default_factory=lambda: Recent(MOST_KEPT), repr=False, compare=False)
    _own: Recent = field(init=False, default_factory=lambda: Recent(MOST_KEPT), repr=False, compare=False)
    _kept: dict[str, Any] = field(init=False, default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A copy with another space or cluster keeps tables of layers; one with other inputs of these makes its own.
        inputs = self.model, self.costs, self.memory, self.calibration
        if not self._shared.of:
            self._shared.of = inputs
        elif any(mine is not theirs for mine, theirs in zip(inputs, self._shared.of, strict=True)):
            object.__setattr__(self, "_shared", Recent(MOST_KEPT, inputs))

    @cached_property
    def links(self) -> Links:
        """Bandwidth and latency between sites."""
        return links(self.cluster)

    @property
    def latency(self) -> LatencyModel:
        """What the latency model prices."""
        return LATENCY_MODELS[self.latency_model]

    def priced_by(self, name: LatencyName) -> "PlanningProblem":
        """The problem at the prices of a latency model."""
        return self if name == self.latency_model else replace(self, latency_model=name)

    @cached_property
    def rings(self) -> RingRates:
        """Rates of data-parallel rings, in the form and with the cards of the latency model."""
        latency = self.latency
        return ring_rates(self.links, by_members=latency.shares_cards_by_members, flat=latency.rings_are_flat)

    @cached_property
    def candidates(self) -> list[Candidate]:
        """Every candidate of the space."""
        element = ELEMENT_BYTES[self.memory.precision]
        kinds = ContextKinds(self.space, self.model, self.cluster, self.links, element, self._core_inverse)
        found = candidates(self.space, self.model, self.cluster, self.costs, kinds)
        if not self.prices_groups:
            found = [choice for choice in found if not choice.needs_step]
        if self.has_muon:
            size = min(group.gpus_per_node for group in self.cluster.nodes)
            found = [choice for choice in found if suits_muon(choice, size)]
        return found if self.prices_orders else [choice for choice in found if not choice.is_order_priced]

    @cached_property
    def has_muon(self) -> bool:
        """Whether the optimizer is Muon."""
        return self.memory.optimizer == "muon"

    @cached_property
    def closed_forms(self) -> list[Candidate]:
        """Candidates whose step time is a closed form, not that of an order."""
        return [choice for choice in self.candidates if not choice.is_order_priced]

    @property
    def prices_groups(self) -> bool:
        """Whether context and expert ranks, copies and uneven batches are priced, which memory of terms allows."""
        return self.latency.prices_mechanisms and self.memory.is_sum_of_terms

    def with_orders(self, orders: Iterable[GivenOrder]) -> "PlanningProblem":
        """The problem with further orders in its space; itself where there are none."""
        every = [*self.space.orders, *orders]
        same = len(every) == len(self.space.orders)
        return self if same else replace(self, space=self.space.model_copy(update={"orders": every}))

    def with_costs(self, costs: CostTable) -> "PlanningProblem":
        """The problem with other costs, and thus tables of its own."""
        return replace(self, costs=costs, _shared=Recent(MOST_KEPT))

    @property
    def prices_orders(self) -> bool:
        """Whether order-priced candidates can be priced, which memory of terms allows."""
        return self.latency.prices_orders and self.memory.is_sum_of_terms

    @cached_property
    def device_types(self) -> list[str]:
        """Names of the device types; their order is axis k everywhere."""
        return list(self.cluster.devices)

    @cached_property
    def type_of_node(self) -> Ints:
        """Device type of every node."""
        return np.array([self.device_types.index(node.device.name) for node in self.cluster.node_list], dtype=np.int64)

    @cached_property
    def capacity_kib(self) -> list[int]:
        """Memory by device type, in KiB."""
        return [device.capacity_kib for device in self.cluster.devices.values()]

    @cached_property
    def budget(self) -> Ints:
        """Largest bytes of a device that leave the margin free, by device type."""
        return budgets(self.memory, self.capacity_kib)

    def least_constant(self, candidate: Candidate) -> float:
        """Seconds that every plan of a candidate takes beside its passes and reductions: the constant, and Muon's."""
        if not self.has_muon:
            return self.constant_of(candidate)
        key = "update", *self._matrices_key(candidate), candidate.pp, candidate.vpp
        return self.constant_of(candidate) + self._own.get(
            key, lambda: least_update(self.tables(candidate).under_muon, candidate)
        )

    def memory_of(self, candidate: Candidate) -> MemoryModel:
        """The memory model with a candidate's share of optimizer states on hosts, and what its graphs keep."""
        memory = self.memory
        bare = memory.graph_gib > 0 and not (candidate.recorded and self.recompute_of(candidate) != ("full",))

        def make() -> MemoryModel:
            return with_share(memory.model_copy(update={"graph_gib": 0.0}) if bare else memory, candidate)

        return self._own.get(("memory", memory_key(candidate), bare), make)

    def records(self, candidate: Candidate) -> bool:
        """Whether CUDA graphs launch passes of a candidate: costs have such rows, and not all is recomputed whole."""
        return self.costs.records and candidate.recorded and self.recompute_of(candidate) != ("full",)

    def coefficient(self, term: str) -> float:
        """Coefficient of a communication term; below 1 where the runs hid some of it, 1 without a calibration."""
        return 1.0 if self.calibration is None else self.calibration[term]

    def constant_of(self, candidate: Candidate) -> float:
        """Seconds of a step that no term explains, with what a quantile adds for fields beyond all runs."""
        given = self.calibration
        if given is None or given.seen is None or not given.beyond_s:
            return self.constant_seconds
        seen, each = given.seen, given.beyond_s
        more = self.of_latest(candidate, ("constant",), lambda: beyond_seconds(seen, each, candidate))
        return more + self.constant_seconds

    @cached_property
    def constant_seconds(self) -> float:
        """Seconds of every step that no term explains; 0 without a calibration."""
        return 0.0 if self.calibration is None else self.calibration["constant"]

    def of_latest(self, candidate: Candidate, key: Key, make: Callable[[], Value]) -> Value:
        """A figure of the candidate that was asked for last, as those of one are asked for many times in a row."""
        latest: tuple[Candidate, dict[Key, Any]] | None = self._kept.get("latest")
        if latest is None or (latest[0] is not candidate and latest[0] != candidate):
            # Replaced at once, so that each thread writes to the figures of its own candidate.
            latest = self._kept["latest"] = candidate, {}
        if key not in latest[1]:
            latest[1][key] = make()
        return cast("Value", latest[1][key])

    def tables(self, candidate: Candidate) -> StageTables:
        """Seconds, bytes and messages of every range of layers under a candidate."""
        return self.of_latest(candidate, ("tables",), lambda: self._tables(candidate))

    def _tables(self, candidate: Candidate) -> StageTables:
        tables = self._stage_tables(candidate)
        if self.has_muon:
            return self._with_matrices(candidate, tables)
        if tables.moved is None:
            return tables
        memory = self.memory_of(candidate)
        return self._own.get(
            candidate, lambda: within_hosts(self.cluster, memory, candidate, tables, int(in_flight(candidate).max()))
        )

    def _with_matrices(self, candidate: Candidate, tables: StageTables) -> StageTables:
        """Tables with the matrices of every range."""

        def make() -> Matrices:
            (parameter,) = seconds_by_type(self.cluster, self.costs, self.memory).tolist()
            rates = rates_of(self.cluster, parameter, self.coefficient("tensor_parallel"))
            layers = self.priced_layers(candidate)
            return matrix_tables(layers.kinds, layers.count, tables.parameters, candidate, rates)

        found = self._own.get(("matrices", *self._matrices_key(candidate)), make)
        return replace(tables, matrices=found, padding=found.padding(candidate))

    def _matrices_key(self, candidate: Candidate) -> Key:
        """What figures of matrices depend on."""
        block, ends = candidate.block._replace(cp=1, cp_comm="p2p"), (candidate.pp == 1, _shares_head(candidate))
        return block, *ranks_of(candidate), candidate.end_parts, *ends

    def _stage_tables(self, candidate: Candidate) -> StageTables:
        return self._shared.get(
            ("stages", *self._stages_key(candidate)),
            lambda: self._range_figures(candidate).tables(
                sequence_parallel=candidate.sequence_parallel,
                single_stage=candidate.pp == 1,
                shared_head=_shares_head(candidate),
                traffic=self.traffic(candidate),
            ),
        )

    def _range_figures(self, candidate: Candidate) -> RangeFigures:
        """Figures of the layers that were asked for last, of which candidates with the same prices come in a row."""
        priced, latest = self.priced_layers(candidate), self._kept.get("ranges")
        if latest is None or latest[0] is not priced:
            fused = (self.calibration or self.memory).fused_loss
            latest = self._kept["ranges"] = priced, RangeFigures(priced, self.memory, fused)
        return cast("RangeFigures", latest[1])

    def kept(self, name: str) -> dict[Any, Any]:
        """Figures of candidates that are kept as long as the problem, by a name; whoever asks for them fills them."""
        return cast("dict[Any, Any]", self._kept.setdefault(name, {}))

    def recent(self, key: Key, make: Callable[[], Value]) -> Value:
        """A figure by key, kept while there is room."""
        return self._own.get(key, make)

    def shared(self, candidate: Candidate, name: Hashable, make: Callable[[], Value]) -> Value:
        """A figure of layers, of their recompute and of the traffic within blocks, which many candidates share."""
        return self._own.get((name, self.shared_key(candidate)), make)

    def shared_key(self, candidate: Candidate) -> object:
        """One object for all candidates that have a key of stages and recompute in common."""
        found = self.kept("keys").get(candidate)
        if found is None:
            key = self.recompute_of(candidate), *self._stages_key(candidate)
            found = self.kept("keys")[candidate] = self.kept("objects").setdefault(key, object())
        return found

    def alike(self, candidate: Candidate, name: str, make: Callable[[], Value]) -> Value:
        """A figure that candidates share which differ in chunks, order and recompute alone."""
        return self._own.get((name, *beside_chunks(candidate)), make)

    def _stages_key(self, candidate: Candidate) -> Key:
        """What figures of stages depend on."""
        shape = candidate.sequence_parallel, candidate.pp == 1, _shares_head(candidate)
        return *self._key(candidate), *shape, hides_exchange(self.space, self.model, candidate)

    def _key(self, candidate: Candidate) -> Key:
        """What prices of ranges depend on: the links to hosts as well where activations move."""
        return *self.layers_key(candidate), candidate.recompute_layers, *links_key(self.cluster, candidate)

    def layers_key(self, candidate: Candidate) -> Key:
        """What prices of layers depend on: also whether CUDA graphs launch them."""
        return *candidate.layers_key, self.records(candidate)

    def traffic(self, candidate: Candidate) -> tuple[Traffic, Traffic]:
        """Traffic within blocks of every range of layers, of both passes and of the forward pass."""
        hides = hides_exchange(self.space, self.model, candidate)
        coefficients = self.coefficient("tensor_parallel"), self.coefficient("exchange")
        return self._own.get(
            ("traffic", *self._key(candidate), hides),
            lambda: traffic_tables(self.priced_layers(candidate), *coefficients, hides=hides),
        )

    def passes(self, candidate: Candidate) -> PassTables:
        """Seconds of every range of layers by pass under a candidate."""
        key = "passes", *self._key(candidate)
        return self._shared.get(key, lambda: pass_tables(self.priced_layers(candidate)))

    def priced_layers(self, candidate: Candidate) -> PricedLayers:
        """Layers with their prices at a candidate's degrees."""
        return self._own.get(("priced", *self._key(candidate)), lambda: self._priced_layers(candidate))

    def _priced_layers(self, candidate: Candidate) -> PricedLayers:
        return PricedLayers(
            model=self.model,
            costs=self.costs,
            device_types=self.device_types,
            precision=self.memory.precision,
            candidate=candidate,
            node_size=int(self.links.gpus_per_node.max()),
            modules=tuple(self.space.recompute_modules),
            core_inverse=self._core_inverse,
            dispatch=self.space.dispatch,
            hosts=moved_activations(self.cluster, self.space, candidate),
            recorded=self.records(candidate),
        )

    @cached_property
    def _core_inverse(self) -> float:
        """Seconds of a FLOP of attention on the fastest device as stated, beside which rings of keys go; 0 if none."""
        devices, precision = self.cluster.devices.values(), self.memory.precision
        return core_inverse(devices, precision) if self.space.overlap_context else 0.0

    def num_layers(self, candidate: Candidate) -> int:
        """What a candidate divides: layers, with embedding and head where the end chunks may have none."""
        return len(self.model.blocks) + 2 * candidate.end_parts

    def recompute_of(self, candidate: Candidate) -> tuple[Recompute, ...]:
        """Recompute that a stage of a candidate may choose."""
        known = self.kept("recompute")
        found = known.get(candidate)
        if found is None:
            found = known[candidate] = self._recompute_of(candidate)
        return cast("tuple[Recompute, ...]", found)

    def _recompute_of(self, candidate: Candidate) -> tuple[Recompute, ...]:
        every = recompute_of(self.space, candidate.schedule)
        every = recompute_beside_overlap(self.space, self.model, candidate, every)
        every = recompute_beside_hosts(self.space, candidate, every)
        return tuple(name for name in every if candidate.uniform_recompute in ("", name))

    def gradient_bytes(self, candidate: Candidate, load: Load = "common") -> Floats:
        """Bytes of every range that reductions of a load carry, times their coefficient, (L+1, L+1)."""

        def make() -> Floats:
            carried = self.tables(candidate).carried(load)
            return np.asarray(carried * gradient_bytes(self.terms(candidate)), dtype=np.float64)

        return self.of_latest(candidate, ("gradients", load), make)

    def terms(self, candidate: Candidate) -> tuple[Term, ...]:
        """Collectives of weights and gradients that a step of a candidate waits for; the first is of all holders."""

        def make() -> tuple[Term, ...]:
            found: tuple[Term, ...] = ()
            for change in TERMS:
                found = change(self, candidate, found)
            return found + padding_terms(candidate, found[0].bytes) if self.has_muon else found

        return self.of_latest(candidate, ("terms",), lambda: self.alike(candidate, "terms", make))

    @cached_property
    def parameter_bytes(self) -> ParameterBytes:
        """Bytes of a parameter in the formats of the memory model."""
        return self.memory.parameter_bytes

    def transfer_weight(self, candidate: Candidate) -> float:
        """How often a step pays the trip through the pipeline, the factor on T_PP; of orders it is a mere guide."""
        return self.coefficient("pipeline") * self._trips(candidate)

    def _trips(self, candidate: Candidate) -> float:
        once = candidate.schedule == "gpipe"
        return 1.0 if once else self.latency.trips(candidate.num_micro_batches, candidate.pp)


def _shares_head(candidate: Candidate) -> bool:
    """Whether the first device has the last layers as well."""
    return candidate.pp == 1 or candidate.schedule in ON_V
