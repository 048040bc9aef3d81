r"""
Offload: shares of optimizer states and of activations in the memory of hosts.

(15) With ``optimizer_offload`` every candidate exists with each share of its optimizer states in the host's memory that
     goes with its ZeRO stage, or with any share where one device holds the weights.
(17) With ``activation_offload`` candidates exist with each share of their activations, or of the inputs of
     ``offload_modules``, in the host's memory. Shares above 0 need a schedule that does not split the backward pass,
     whose gradients by the weights keep what came back, and the recompute and pipelines that the space lists with the
     share. They are priced by the latency model ``step`` alone, where memory is a sum of terms.

**Optimizer states.** A share F of a device's parameters is updated by its host, the rest by the device, which takes o
seconds for a parameter (``taut.data.costs``). With B bytes a second that transfers reach on the device's link to its
host, in one direction, and H those that updates reach of a node's host memory, of which each of the node's G devices
has an equal part,

(1) gradients go to the host and weights come back in single precision, :math:`4 F / B` seconds a parameter each. Both
    frameworks convert on the device, whatever format they keep there: Megatron-LM,
    ``megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py``, whose copies are asynchronous (PyTorch then converts
    on the GPU, ``aten/src/ATen/native/cuda/Copy.cu``), and DeepSpeed, ``deepspeed/runtime/zero/stage_1_and_2.py``;
(2) the host reads the gradient and reads and writes weight and both moments: :math:`28 F G / H` seconds. Meanwhile the
    device updates the others, :math:`(1 - F) o`;
(3) :math:`o(F) = 8 F / B + \max(28 F G / H, (1 - F) o)`, as transfers wait for one another and for both updates
    (``--overlap-cpu-optimizer-d2h-h2d`` is not counted on). It is o at F = 0.

A parameter takes as long on every device of a type, so T_opt stays its seconds a parameter times the parameters of a
stage over the devices that share them, and all that is said of T_opt holds. Where nodes of one type of device differ,
the least H / G of them counts for all.

B and H are shares of the stated rates: 0.77 of the link, and of the memory 0.24, unless a cluster says otherwise.
NVIDIA measured an optimizer on two nodes of eight H100 (Megatron-Bridge,
``skills/nemo-mbridge-perf-cpu-offloading/card.yaml``): at F = 1 a step of Qwen3-30B-A3B took 3.193 s more, and 2.881 s
with transfers beside the update. With 1.9e9 parameters on a device, 63 GB/s of PCIe 5.0 and 614.4 GB/s of memory, the
312 ms of transfers are (1) at 0.77 and the rest (2) at 0.24 of these.

**Activations.** A share s of what every layer keeps for the backward pass, or of what its named modules do, goes to the
host while the layer's forward pass runs, and comes back while its backward pass does. With K bytes that a layer keeps
of a micro-batch under its recompute (none for the embedding and the head, which stay), of these H of the named modules
(all K where none are named, the cost table's ``offload_bytes`` otherwise), and B bytes a second that transfers reach on
a device's link to its host, in one direction (``taut.data.device``), forward f and backward seconds b of the layer
without communication become

(4) :math:`f' = \max(f, a / B)` and :math:`b' = \max(b, a / B)` with :math:`a = \lfloor s H \rfloor`, as each direction
    of the link has one pass's transfers beside its computation. What b' has more than b counts to the gradient by the
    input. Communication of a block hides nothing of a transfer here, so that the price is on the safe side;
(5) of a micro-batch in flight a device keeps :math:`K - a`, and beside these two layers' :math:`a`: the one that leaves
    or comes, and the one that runs;
(6) a host keeps :math:`q a` for every layer of a stage, with the most micro-batches in flight q of any stage, and the
    share F of the optimizer states that is there. A stage is feasible where these are no more than an equal part of
    its node's ``host_memory_gib`` for each GPU, the least of any node; of a device with several chunks each has an
    equal part of that. A range of more takes ``HOST_FULL`` bytes for a micro-batch, which no device has, so that all
    that is said of memory holds for hosts too.

Transfers of optimizer states come after the passes, so both shares of the link add up in the step.

This is the offload of Transformer Engine that Megatron-LM starts with ``--cpu-offloading-num-layers``
(megatron/core/transformer/transformer_block.py, ``get_cpu_offload_context``): of n among L layers, which it spreads
over the passes of all L, so that s = n / L; with one stage, without recompute, and n < L
(megatron/core/transformer/transformer_config.py). With modules it is that of ``--fine-grained-activation-offloading``
(megatron/core/pipeline_parallel/fine_grained_activation_offload.py), whose ``--activation-offload-fraction`` is of the
modules in the order of a pass: the share of a stage's bytes as here, the earlier layers' first. All that full recompute
keeps is what DeepSpeed's ``cpu_checkpointing`` moves, on a stream of its own since 2026
(deepspeed/runtime/activation_checkpointing/checkpointing.py, ``_ActivationOffloadEngine``).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import pydantic

from taut.data.arrays import Floats, Ints
from taut.data.catalog.builtin import catalog_stack
from taut.data.catalog.devices import catalog_section
from taut.data.cluster import ClusterSpec
from taut.data.costs import OFFLOAD_MODULES, CostTable, LayerCost, Recompute
from taut.data.memory import MemoryModel, OffloadFraction
from taut.data.spec import Spec
from taut.data.stack import ZeroStage
from taut.data.units import GIB
from taut.errors import DataError
from taut.formulations.fields import Columns, Field, Fix, Runs, Sentence, Variants, Words, some_of_names
from taut.formulations.mechanisms.recompute import recompute_of, suits
from taut.formulations.mechanisms.shards import held_bytes
from taut.formulations.schedules.orders import SPLIT
from taut.formulations.terms import MemoryTerm, bytes_of_moment

if TYPE_CHECKING:
    from taut.formulations.problem import PlanningProblem
    from taut.formulations.space import Candidate, StrategySpace, Workload
    from taut.formulations.tables.stage_tables import StageTables

SHARES = 0.0, 0.25, 0.5, 0.75, 1.0
"""Shares of the states that are tried where none is stated: seconds and bytes are linear in the share, up to the host's
update beside the device's, so that a finer grid changes a plan little."""
MOVED_BYTES = 8
"""Bytes of a gradient to the host and of a weight back, in single precision, (1)."""
HOST_BYTES = 28
"""Bytes of the host's memory that the update of a parameter reads and writes, (2)."""
HOST_FULL = 2**50
"""Bytes of a micro-batch that stand for a host that is full, (6): a pebibyte, which no device has."""
LEAST_COEFFICIENT = 1e-3
"""Least coefficient of activations beside which ``HOST_FULL`` bytes still exceed every device."""


class OptimizerOffload(Spec):
    """A share of the optimizer states that may be in the host's memory, and the ZeRO stages beside it, (15)."""

    fraction: OffloadFraction
    zero: Annotated[list[ZeroStage], pydantic.Field(min_length=1)]


class ActivationOffload(Spec):
    """A share of the activations that may be in the host's memory, with the recompute beside it, (17)."""

    fraction: OffloadFraction
    recompute: Annotated[list[Recompute], pydantic.Field(min_length=1)]
    pipelines: bool = True


def stated_share(memory: Mapping[str, Any]) -> float:
    """Share of all optimizer states on hosts, from the plain values of a memory model."""
    return float(memory.get("optimizer_offload_fraction", 0.0))


def states_share(strategy: Any, memory: Mapping[str, Any]) -> float:
    """Share of a plan's optimizer states on hosts: the strategy's own, or that of the memory model's plain values."""
    return float(strategy.optimizer_offload) or stated_share(memory)


def activations_share(strategy: Any) -> float:
    """Share of a strategy's activations, or of the inputs of modules, on hosts."""
    return float(strategy.activation_offload)


def states_on_hosts(share: float) -> str:
    """A share of the optimizer states on hosts in words, empty for none."""
    return f"{100 * share:.3g}% of the optimizer states on the host" if share else ""


def activations_on_hosts(strategy: Any, space: Mapping[str, Any]) -> str:
    """
    A strategy's share of the activations, or of the inputs of the modules that a space names; empty for none.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> strategy = SimpleNamespace(activation_offload=0.5)
    >>> activations_on_hosts(strategy, {"offload_modules": ["core_attn", "attn_proj"]})
    '50% of the inputs of core_attn, attn_proj'
    """
    share, modules = strategy.activation_offload, space.get("offload_modules")
    of = f"the inputs of {', '.join(modules)}" if modules else "the activations"
    return f"{100 * share:.3g}% of {of}" if share else ""


def _activation_words(strategy: Any, space: Mapping[str, Any]) -> str:
    """The share of the activations on hosts; empty for none."""
    words = activations_on_hosts(strategy, space)
    return f"{words} on the host" if words else ""


MODULES = "offload_modules"
OF_ALL_STAGES = {MODULES: Fix(18, str, some_of_names(OFFLOAD_MODULES))}
"""What may be fixed of the offload: the modules whose inputs go to the host."""


def with_states_on_hosts(workload: "Workload", candidate: "Candidate") -> Iterator["Candidate"]:
    """The candidate with each share of its optimizer states in the host's memory, (15)."""
    if not workload.space.optimizer_offload:
        yield candidate
    for each in workload.space.optimizer_offload:
        if candidate.dp_cp == 1 or candidate.zero in each.zero:
            yield replace(candidate, optimizer_offload=each.fraction) if each.fraction else candidate


def with_activations_on_hosts(workload: "Workload", candidate: "Candidate") -> Iterator["Candidate"]:
    """The candidate with each share of its activations in the host's memory, (17)."""
    space = workload.space
    if not space.activation_offload:
        yield candidate
    for each in space.activation_offload:
        if not each.fraction:
            yield candidate
        elif candidate.schedule not in SPLIT and (each.pipelines or candidate.pp == 1):
            moved = replace(candidate, activation_offload=each.fraction)
            if suits(candidate, recompute_beside_hosts(space, moved, recompute_of(space, candidate.schedule))):
                yield moved


def recompute_beside_hosts(
    space: "StrategySpace", candidate: "Candidate", every: tuple[Recompute, ...]
) -> tuple[Recompute, ...]:
    """Recompute that goes with a candidate's share of activations on hosts, (17)."""
    share = candidate.activation_offload
    listed = [each.recompute for each in space.activation_offload if each.fraction == share]
    return tuple(name for name in every if name in listed[0]) if share and listed else every


STATES_ON_HOSTS = Field(
    variants=Variants(7, with_states_on_hosts),
    check=lambda asked: _check_states(asked.cluster, asked.memory, asked.space),
    launched=True,
    meaning="Share of the optimizer states in the host's memory, where the space has several shares.",
    seldom=True,
    words=Words(15, lambda each: f"offload={each.optimizer_offload:g}" if each.optimizer_offload else "", short=9),
    sentence=Sentence(1, 3, lambda strategy, space: states_on_hosts(strategy.optimizer_offload)),
    columns=Columns(pareto=True),
    runs=Runs("optimizer_offload", 12, lambda value: states_on_hosts(value) or "no states on the host"),
)
ACTIVATIONS_ON_HOSTS = Field(
    variants=Variants(8, with_activations_on_hosts),
    check=lambda asked: _check_activations(asked.cluster, asked.memory, asked.space),
    launched=True,
    meaning="Share of the activations in the host's memory.",
    seldom=True,
    grouped=True,
    words=Words(
        16, lambda each: f"activation_offload={each.activation_offload:g}" if each.activation_offload else "", short=10
    ),
    sentence=Sentence(1, 4, _activation_words),
    columns=Columns(pareto=True),
    runs=Runs("activation_offload", 13, lambda value: f"{100 * value:.3g}% of the activations on the host"),
)


def optimizer_seconds(problem: "PlanningProblem", candidate: "Candidate") -> Floats:
    """Optimizer seconds per parameter by device type; 0 where not priced, and under Muon (``StageTables.matrices``)."""
    if not problem.latency.prices_orders or problem.has_muon:
        return np.zeros(len(problem.device_types))
    key, given = ("optimizer", memory_key(candidate)), (problem.cluster, problem.costs)
    return problem.recent(key, lambda: seconds_by_type(*given, problem.memory_of(candidate)))


def seconds_by_type(cluster: ClusterSpec, costs: CostTable, memory: MemoryModel) -> Floats:
    """Seconds of the optimizer for a parameter by device type of a cluster, (3); 0 where a device has no price."""
    fraction, priced = memory.optimizer_offload_fraction, costs.optimizer_s_per_parameter
    return np.array([offloaded_seconds(cluster, name, fraction, priced.get(name, 0.0)) for name in cluster.devices])


def with_share(memory: MemoryModel, candidate: "Candidate") -> MemoryModel:
    """The memory model with a candidate's share of states on hosts, its own where that is 0."""
    share = candidate.optimizer_offload
    return memory.model_copy(update={"optimizer_offload_fraction": share}) if share else memory


def memory_key(candidate: "Candidate") -> float:
    """What of a candidate a memory model and the optimizer's seconds depend on."""
    return candidate.optimizer_offload


def offloaded_seconds(cluster: ClusterSpec, device: str, fraction: float, own: float) -> float:
    """Seconds of the optimizer for a parameter of which a share is on hosts, beside the device's ``own``, (3)."""
    if not fraction:
        return own
    link = cluster.devices[device].host_link
    if link is None:
        raise _missing(
            cluster, f"device {device}: host_link_gbytes", "GB/s in one direction of a GPU's link to its host"
        )
    shares = [node.host_update for node in cluster.nodes if node.device.name == device]
    known = [share for share in shares if share is not None]
    if len(known) < len(shares):
        raise _missing(cluster, f"node of {device}: host_memory_gbytes", "GB/s of the memory of a node's hosts")
    return MOVED_BYTES * fraction / link + max(HOST_BYTES * fraction / min(known), (1 - fraction) * own)


def _missing(cluster: ClusterSpec, what: str, expected: str) -> DataError:
    return DataError(f"cluster {cluster.name}: {what}: missing, expected {expected} beside optimizer_offload_fraction")


@dataclass(frozen=True)
class ActivationsOnHosts:
    """The share s of activations, or of what named ``modules`` keep, on hosts, and the links that move it, B."""

    share: float
    sequence_parallel: bool
    links: Mapping[str, float]
    modules: bool = False

    def price(self, device: str, cost: LayerCost) -> LayerCost:
        """What a layer takes and keeps, (4) and (5)."""
        seconds = self.moved(cost) / self.links[device]
        without, with_sp = self._moved(cost)
        return LayerCost(
            max(cost.forward, seconds),
            max(cost.input_grad, seconds - cost.weight_grad),
            cost.weight_grad,
            cost.activation_bytes - without,
            cost.activation_bytes_sp - with_sp,
        )

    def moved(self, cost: LayerCost) -> int:
        """Bytes that go to the host, a."""
        return self._moved(cost)[self.sequence_parallel]

    def _moved(self, cost: LayerCost) -> tuple[int, int]:
        """These without and with sequence parallelism."""
        kept = cost.activation_bytes, cost.activation_bytes_sp
        of = (cost.offload_bytes, cost.offload_bytes_sp) if self.modules else kept
        return int(self.share * of[0]), int(self.share * of[1])


def moved_activations(
    cluster: ClusterSpec, space: "StrategySpace", candidate: "Candidate"
) -> ActivationsOnHosts | None:
    """What moves a candidate's share of activations; None where all stay."""
    share, modules = candidate.activation_offload, bool(space.offload_modules)
    return ActivationsOnHosts(share, candidate.sequence_parallel, host_links(cluster), modules) if share else None


def host_links(cluster: ClusterSpec) -> dict[str, float]:
    """Bytes a second of every device type's link to its host, of those that state it."""
    return {name: device.host_link for name, device in cluster.devices.items() if device.host_link is not None}


def links_key(cluster: ClusterSpec, candidate: "Candidate") -> tuple[tuple[str, float], ...]:
    """Links that the prices of a candidate's layers depend on; none where all activations stay."""
    return tuple(host_links(cluster).items()) if candidate.activation_offload else ()


def host_bytes(cluster: ClusterSpec) -> int:
    """Bytes of host memory for one GPU, the least of any node, (6); 0 where one does not state it."""
    return min(int((node.host_memory_gib or 0.0) * GIB) // node.gpus_per_node for node in cluster.nodes)


def host_terms(moved: Ints, tables: "StageTables", memory: MemoryModel, candidate: "Candidate") -> list[MemoryTerm]:
    """Memory terms of a device's part of its host, (6), of every range that moves so many bytes of all in flight."""
    held = held_bytes(tables.parameters, tables.largest, memory.held_parameter_bytes, candidate, tables.experts)
    states = np.ceil(memory.optimizer_offload_fraction * held[2]).astype(np.int64)
    return [MemoryTerm("activations", "always", moved), MemoryTerm("states", "always", states)]


def within_hosts(
    cluster: ClusterSpec, memory: MemoryModel, candidate: "Candidate", tables: "StageTables", in_flight: int
) -> "StageTables":
    """Tables in which ranges that a host does not hold fit no device, of most micro-batches in flight, (6)."""
    if tables.moved is None:
        return tables
    terms = host_terms(in_flight * tables.moved, tables, memory, candidate)
    full = bytes_of_moment(terms, "always") > host_bytes(cluster) // candidate.vpp
    return replace(tables, activation=np.where(full, HOST_FULL, tables.activation))


def has_activations_on_hosts(candidate: "Candidate") -> bool:
    """Whether a candidate has a share of its activations on hosts."""
    return candidate.activation_offload > 0


def exceeds_hosts(needed: int) -> bool:
    """Whether bytes of a device say that its host is full, (6)."""
    return needed >= LEAST_COEFFICIENT * HOST_FULL


def check_all_hosts(cluster: ClusterSpec, memory: MemoryModel, space: "StrategySpace") -> None:
    """Refuse shares on hosts that the cluster does not describe, or beside what a memory model keeps."""
    _check_states(cluster, memory, space)
    _check_activations(cluster, memory, space)


def _check_states(cluster: ClusterSpec, memory: MemoryModel, space: "StrategySpace") -> None:
    """Refuse shares of states on hosts that the cluster does not describe, or beside what the memory model keeps."""
    most = max((each.fraction for each in space.optimizer_offload), default=0.0)
    if most and memory.optimizer_offload_fraction:
        share = f"{memory.optimizer_offload_fraction:g}"
        raise DataError(
            f"{memory.name}: optimizer_offload_fraction: is {share}, expected 0 where candidates have theirs"
        )
    if most:
        MemoryModel.parse({**memory.model_dump(), "optimizer_offload_fraction": most}, memory.name)
    for device in cluster.devices:
        offloaded_seconds(cluster, device, most or memory.optimizer_offload_fraction, 0.0)


def _check_activations(cluster: ClusterSpec, memory: MemoryModel, space: "StrategySpace") -> None:
    """Refuse activations on hosts that the cluster does not describe, or in a memory model that has no such term."""
    if not any(each.fraction for each in space.activation_offload):
        return
    expected = "beside activation_offload_fraction"
    for name, device in cluster.devices.items():
        if device.host_link is None:
            what = f"device {name}: host_link_gbytes: missing, expected GB/s in one direction of its link to the host"
            raise DataError(f"cluster {cluster.name}: {what} {expected}")
    if any(node.host_memory_gib is None for node in cluster.nodes):
        what = "host_memory_gib: missing, expected GiB of the memory of a node's hosts"
        raise DataError(f"cluster {cluster.name}: {what} {expected}")
    for term in ("activations", "checkpoints"):
        if memory.coefficient(term) < LEAST_COEFFICIENT:
            raise DataError(f"{memory.name}: coefficients.{term}: expected {LEAST_COEFFICIENT:g} or more {expected}")


def more_states_on_hosts(problem: "PlanningProblem") -> "PlanningProblem | None":
    """The problem with larger shares of the states on hosts, where the cluster describes these and the stack can."""
    space, kept = problem.space, problem.memory
    known = not space.stack or space.stack in catalog_section("stacks")
    if not problem.prices_groups or space.optimizer_offload or not known:
        return None
    if kept.half_moments or kept.weight_remainders or not _describes_hosts(problem.cluster):
        return None
    stack, own = catalog_stack(space.stack or "any"), kept.optimizer_offload_fraction
    beside = {share: set(stack.zero_beside_offload(share)) & set(space.zero) for share in SHARES if share > own}
    listed = [
        OptimizerOffload(fraction=share, zero=sorted(allowed))
        for share, allowed in beside.items()
        if space.fixed.get("zero", next(iter(allowed), None)) in allowed
    ]
    if not listed:
        return None
    free = kept.model_copy(update={"optimizer_offload_fraction": 0.0})
    return replace(problem, memory=free, space=space.model_copy(update={"optimizer_offload": listed}))


def _describes_hosts(cluster: ClusterSpec) -> bool:
    """Whether a cluster states the links and hosts of all its devices."""
    return all(node.device.host_link is not None and node.host_update is not None for node in cluster.nodes)


def other_activations_on_hosts(problem: "PlanningProblem") -> "PlanningProblem | None":
    """The problem with all shares of the activations, or of the modules' inputs, where it lists some of them."""
    space, listed = problem.space, problem.space.activation_offload
    if not listed or (space.stack and space.stack not in catalog_section("stacks")):
        return None
    named, stack = bool(space.offload_modules), catalog_stack(space.stack or "any")
    some = next((each for each in listed if each.fraction), listed[0])
    shares = SHARES if named else stack.activation_shares(SHARES, len(problem.model.blocks))
    more = [
        some.model_copy(update={"fraction": share})
        if share
        else ActivationOffload(fraction=0.0, recompute=space.recompute)
        for share in shares
        if all(share != each.fraction for each in listed)
    ]
    return replace(problem, space=space.model_copy(update={"activation_offload": [*listed, *more]})) if more else None


class OtherShares(NamedTuple):
    """
    Other shares on hosts as a way to make a plan fit, by ``field`` of candidates and spaces.

    ``more`` makes the problem with more shares than ``before``; whether the ``least`` that is enough is said.
    """

    field: str
    option: str
    more: Callable[["PlanningProblem"], "PlanningProblem | None"]
    before: Callable[["PlanningProblem"], str]
    least: bool = False


OTHER_SHARES = (
    OtherShares(
        "optimizer_offload",
        "optimizer-offload-fraction",
        more_states_on_hosts,
        lambda problem: f"{problem.memory.optimizer_offload_fraction:g}",
        least=True,
    ),
    OtherShares(
        "activation_offload",
        "activation-offload-fraction",
        other_activations_on_hosts,
        lambda problem: " or ".join(f"{each.fraction:g}" for each in problem.space.activation_offload),
    ),
)


def left_out(space: Mapping[str, Any]) -> Iterator[str]:
    """Which shares on hosts a space, given as plain values, leaves out, in words."""
    if shares := [each["fraction"] for each in space.get("optimizer_offload", ())]:
        yield f"shares of the optimizer states on hosts other than {', '.join(f'{share:g}' for share in shares)}"
    if shares := [each["fraction"] for each in space.get("activation_offload", ())]:
        named = f", modules other than {', '.join(modules)}" if (modules := space.get("offload_modules")) else ""
        yield f"shares of activations on hosts other than {', '.join(f'{share:g}' for share in shares)}{named}"
