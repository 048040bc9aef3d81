"""
A planning problem and a candidate of it, as the reference evaluator takes them.

Numbers of fields are those of ``taut.solver.certificate.reference.candidates``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from taut.data.calibration import Calibration
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.layers.dispatch import DispatchSpec
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec

CLOSED_FORM = ("1f1b", "gpipe")
ON_V = ("zb-v", "v-half", "v-min")
SPLIT = ("zb-h1", "zb-h2", *ON_V)


@dataclass(frozen=True)
class Case:
    """
    A planning problem: inputs, space as plain values, latency model. ``kept`` caches figures.

    ``overlap_grad_reduce`` says whether ``step`` reduces gradients during the last micro-batch's backward pass.
    """

    model: ModelSpec
    cluster: ClusterSpec
    costs: CostTable
    memory: MemoryModel
    space: Mapping[str, Any]
    latency_model: str
    calibration: Calibration | None = None
    overlap_grad_reduce: bool = False
    kept: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def waits_for_all(self) -> bool:
        """Whether a step waits for every stage, and prices what frameworks do: in ``step``."""
        return self.latency_model == "step"

    @property
    def pays_optimizer(self) -> bool:
        """Whether the optimizer is priced, and every schedule: not in the printed models."""
        return self.latency_model in ("step", "pipette")

    @property
    def is_amp(self) -> bool:
        """Whether hops are priced one way and once, and gradients have one flat ring over all replicas."""
        return self.latency_model == "amp"

    @property
    def knows_groups(self) -> bool:
        """Whether context and expert ranks, copies, uneven batches and hosts' activations are candidates."""
        return self.waits_for_all and self.memory.network is None

    @property
    def knows_orders(self) -> bool:
        """Whether candidates have schedules that are priced by their order."""
        return self.pays_optimizer and self.memory.network is None

    @property
    def dispatch(self) -> DispatchSpec:
        """How expert ranks exchange tokens."""
        return DispatchSpec.model_validate(self.space.get("dispatch", {}))

    def hides(self, choice: "Choice") -> bool:
        """Whether exchanges of a candidate overlap another micro-batch, (14)."""
        alternate = choice.schedule == "interleaved-1f1b" or (choice.pp == 1 and choice.num_micro_batches > 1)
        shapes = [(layer.experts, layer.hidden, layer.seq) for layer in self.model.blocks if layer.experts]
        return self.dispatch.overlap and choice.ep > 1 and alternate and all(each == shapes[0] for each in shapes)

    def recomputes(self, choice: "Choice") -> list[str]:
        """What stages of a candidate may recompute: no whole layers where a schedule splits passes or (14) forbids."""
        found = [kind for kind in self.space["recompute"] if not (kind == "full" and choice.schedule in SPLIT)]
        found = [kind for kind in found if choice.uniform_recompute in ("", kind)]
        if choice.activation_offload:
            listed = self.space.get("activation_offload", ())
            beside = next((each["recompute"] for each in listed if each["fraction"] == choice.activation_offload), ())
            found = [kind for kind in found if kind in beside]
        if not self.hides(choice):
            return found
        named = "moe" in self.space.get("recompute_modules", ())
        return [kind for kind in found if kind == "none" or (kind == "selective" and not named)]

    def memory_of(self, choice: "Choice") -> MemoryModel:
        """The memory model, with the share of the optimizer states that a candidate has in the host's memory, (15)."""
        share = choice.optimizer_offload
        return self.memory.model_copy(update={"optimizer_offload_fraction": share}) if share else self.memory

    def coefficient(self, term: str) -> float:
        """Coefficient of a term of the step time; without a calibration 1, and 0 seconds for the constant."""
        if self.calibration is None:
            return 0.0 if term == "constant" else 1.0
        known = self.calibration.coefficients
        # Shards that no run had are priced as gradients are, without what the runs hid of these.
        if term == "exchange" and term not in known:
            # Dense layers hid some of their traffic, of which nothing is known for experts.
            return max(known["tensor_parallel"], 1.0)
        return max(known["data_parallel"], 1.0) if term == "gather" and term not in known else known[term]


@dataclass(frozen=True, order=True)
class Choice:
    """A candidate: everything except the stages, their recompute and the placement."""

    pp: int
    tp: int
    dp: int
    vpp: int
    micro_batch: int
    num_micro_batches: int
    schedule: str
    zero: int
    sequence_parallel: bool
    order: tuple[str, ...] = ()
    dp_shard: int = 0
    uniform_recompute: str = ""
    cp: int = 1
    ep: int = 1
    etp: int = 0
    cp_comm: str = "p2p"
    empty_ends: bool = False
    optimizer_offload: float = 0.0
    uneven_batch: bool = False
    activation_offload: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Fields as plain values; the order, copy, shared recompute and context ranks only where given."""
        given = {"order": list(self.order), "dp_shard": self.dp_shard, "uniform_recompute": self.uniform_recompute}
        given |= {"etp": self.etp, "empty_ends": self.empty_ends, "optimizer_offload": self.optimizer_offload}
        given |= {"uneven_batch": self.uneven_batch, "activation_offload": self.activation_offload}
        values = {name: value for name, value in vars(self).items() if name not in given}
        values = {name: value for name, value in values.items() if name not in ("cp", "ep") or value > 1}
        if self.cp == 1:
            del values["cp_comm"]
        return values | {name: value for name, value in given.items() if value}

    @property
    def moved_share(self) -> float:
        """Share s of the activations that are in the host's memory, (17)."""
        return self.activation_offload

    @property
    def pipelines_by_type(self) -> bool:
        """Whether each replica is on one type of device and has its own number of micro-batches, (16)."""
        return self.uneven_batch

    @property
    def holders(self) -> int:
        """Devices with the same weights on a stage: context ranks of every replica."""
        return self.dp * self.cp

    @property
    def block(self) -> int:
        """Devices of a stage that run in step: those of a replica, or of a larger group of experts, (11)."""
        return max(self.tp * self.cp, self.expert_group)

    @property
    def expert_group(self) -> int:
        """Devices that have all experts between them."""
        return self.ep * (self.etp or self.tp)

    def inner(self, node_size: int) -> int:
        """Context ranks of a replica on a node."""
        return min(self.cp, max(node_size // self.tp, 1))

    def parts(self, case: Case) -> int:
        """What is divided: layers, and embedding and head where end chunks may have no layers."""
        return len(case.model.blocks) + 2 * self.empty_ends

    @property
    def blocks(self) -> int:
        """Blocks of a stage."""
        return self.tp * self.cp * self.dp // self.block

    @property
    def copy_of(self) -> int:
        """Devices that have one copy between them, (7)."""
        return self.dp_shard if self.dp_shard else self.holders

    @property
    def copies(self) -> int:
        """Copies of a stage's weights."""
        return self.holders // self.copy_of

    @property
    def expert_sharers(self) -> int:
        """Devices that have one copy of the same experts between them."""
        return self.tp * self.holders // (self.expert_group * self.copies)

    @property
    def chunk_device(self) -> list[int]:
        """Pipeline rank of every chunk: down and up again on the V, round the ranks elsewhere."""
        down = list(range(self.pp))
        return down + down[::-1] if self.schedule in ON_V else down * self.vpp
