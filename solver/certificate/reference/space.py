r"""
A planning problem and a candidate of it, with the divisions of layers, measured runs and restrictions that spaces name.

Numbers (1) to (18) and (33) are those of ``taut.solver.certificate.reference.candidates``.

A candidate's chunks have :math:`n_0, \dots, n_{X-1}` of L layers, and one chunk has all. The space names forms, of
which a division has one at least:

(19) ``even``, all :math:`n_c` are equal;
(20) ``with-ends``, they are so with one more on the first chunk, on the last, or on both;
(21) ``balanced``, they never rise, and differ by one at most;
(22) ``first-last``, chunks of one pipeline rank are equal, and those of all ranks but the first and the last;
(23) ``layout``, any.

Forms are told by their definition from the layers of a division; no list of divisions is needed but to draw samples and
to see whether a candidate has any.

A calibration with ``seen`` lists the least and the most of every number of its runs, and all kinds that they had. With
D devices, holders of the same weights h, and c copies of them, a plan has of these

(24) micro-batch, tensor, context, expert and pipeline ranks, chunks a device, shares on hosts, schedule and evenness of
    the batch as its candidate states them; tensor ranks of an expert where ep > 1; the ZeRO stage where h > 1; copies
    where c > 1;
(25) the recompute of every stage;
(26) D, the longest sequence, the number format, whether the model has experts, as the calibration's runs had or not,
    and, where the calibration states it of its runs, how each layer mixes tokens: by attention, to a part of them where
    an indexer chooses them or the tokens attended to are stated and not all, in chunks with or without the delta rule,
    by a scan, or by a convolution.

It is beyond the runs where a number lies outside, or a kind is not listed.

A restriction, which makes a plan plainer to run or like measured runs, is a set of candidates and of divisions of their
layers:

(27) ``even-stages``: all chunks have the same number of layers, or would have with embedding, loss or both counted,
    (19) and (20), where the space has the form or any;
(28) ``no-context-ranks``: one context rank;
(29) ``at-most-N-chunks``: at most N chunks a device;
(30) ``no-interleaving``: one chunk a device;
(31) ``fastest``: every candidate; ``seen``: nothing of the candidate beyond the runs of the calibration, and of the
    recompute of stages the kinds that runs had.

Its candidates are those of the space of its divisions. All plans of each are plans of one candidate of the whole space,
at no higher price: itself, or the one that divides embedding and head as parts as well, (32).
"""

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from taut.data.arrays import Ints
from taut.data.calibration import Calibration
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.layers.experts import DispatchSpec
from taut.data.layers.layer import LayerSpec
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.seen import DEVIATIONS, KINDS, Seen
from taut.errors import DataError

FASTEST = "fastest"
CLOSED_FORM = ("1f1b", "gpipe")
ON_V = ("zb-v", "v-half", "v-min")
SPLIT = ("zb-h1", "zb-h2", *ON_V)
Pass = tuple[str, int, int]
"""Kind, F forward, I gradient by the input, W by the weights or B both at once; chunk; and micro-batch."""
Order = Sequence[Sequence[Pass]]
"""Passes of every device."""


@dataclass(frozen=True)
class Case:
    """A planning problem with its space as plain values, and the figures that are ``kept``."""

    model: ModelSpec
    cluster: ClusterSpec
    costs: CostTable
    memory: MemoryModel
    space: Mapping[str, Any]
    latency_model: str
    calibration: Calibration | None = None
    overlap_grad_reduce: bool = False
    kept: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def type_of_node(self) -> Ints:
        """Place of every node's device among the cluster's types, (nodes,)."""
        names = list(self.cluster.devices)
        return np.array([names.index(node.device.name) for node in self.cluster.node_list])

    @cached_property
    def type_of_device(self) -> Ints:
        """The same of every device."""
        return np.repeat(self.type_of_node, [node.gpus_per_node for node in self.cluster.node_list])

    @cached_property
    def numbers_of_experts(self) -> list[int]:
        """Experts of every layer that has some."""
        return [layer.experts.num_experts for layer in self.model.blocks if layer.experts]

    def fits_nodes(self, count: int) -> bool:
        """Whether groups of so many devices divide every node, or are whole nodes of one size, (2)."""
        sizes = {node.gpus_per_node for node in self.cluster.nodes}
        return all(size % count == 0 for size in sizes) or (len(sizes) == 1 and count % min(sizes) == 0)

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

    @cached_property
    def dispatch(self) -> DispatchSpec:
        """How expert ranks exchange tokens."""
        return DispatchSpec.model_validate(self.space.get("dispatch", {}))

    def hides(self, choice: "Choice") -> bool:
        """Whether exchanges of a candidate overlap another micro-batch, (14)."""
        alternate = choice.schedule == "interleaved-1f1b" or (choice.pp == 1 and choice.num_micro_batches > 1)
        if choice.ep == 1 or not alternate or not self.dispatch.overlap:
            return False
        shapes = [(layer.experts, layer.hidden, layer.seq) for layer in self.model.blocks if layer.experts]
        return all(each == shapes[0] for each in shapes)

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
        changed = {"optimizer_offload_fraction": share} if share else {}
        if self.memory.graph_gib and not self.records(choice):
            changed["graph_gib"] = 0.0
        return self.memory.model_copy(update=changed) if changed else self.memory

    def records(self, choice: "Choice") -> bool:
        """Whether a candidate's passes are launched by CUDA graphs, where the table has rows of such passes."""
        return choice.recorded and set(self.recomputes(choice)) != {"full"}

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


class _Hashed:
    """The place of a hash that is computed once."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, order=True)
class Choice(_Hashed):
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
    recompute_layers: int = 0

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash(tuple(vars(self).values())))
            return self._hash

    def as_dict(self) -> dict[str, Any]:
        """Fields as plain values; context and expert ranks where there are several, empty defaults where changed."""
        values = {name: value for name, value in vars(self).items() if value or name not in EMPTY}
        values = {name: value for name, value in values.items() if name not in ("cp", "ep") or value > 1}
        if self.cp == 1:
            del values["cp_comm"]
        return values | ({"order": list(self.order)} if self.order else {})

    @property
    def recorded(self) -> bool:
        """Whether CUDA graphs launch its passes: one stage with whole weights and gradients, no full recompute."""
        return self.pp == 1 and self.zero in (0, 1) and self.uniform_recompute != "full" and not self.moved_share

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


EMPTY = {each.name for each in fields(Choice) if each.default is not MISSING and not each.default}
"""Fields of a candidate whose default is no, zero or nothing, which documents leave out then."""
ANY = "layout"
Layers = tuple[int, ...]
Stages = tuple[tuple[int, int], ...]
"""First layer and end of every chunk."""


def of_parts(choice: Choice, stages: Stages) -> Stages:
    """Stages of layers as stages of parts, embedding before the first layer and head behind the last."""
    if not choice.empty_ends or not stages:
        return stages
    ends = [*(end + 1 for _, end in stages[:-1]), stages[-1][1] + 2]
    firsts = [stages[0][0], *(first + 1 for first, _ in stages[1:])]
    return tuple(zip(firsts, ends, strict=True))


def of_layers(choice: Choice, stages: Stages) -> Stages:
    """Stages of parts as stages of layers."""
    if not choice.empty_ends or not stages:
        return stages
    last = stages[-1][1] - 2
    return tuple((min(max(first - 1, 0), last), min(end - 1, last)) for first, end in stages)


def forms_of(case: Case) -> list[str]:
    """Forms that the space names."""
    forms: list[str] = case.space.get("divisions", [ANY])
    return forms


def is_stated(case: Case, choice: Choice, stages: Sequence[tuple[int, int]]) -> bool:
    """Whether a division into chunks, first layer and end of each, has one of the forms, (19) to (23)."""
    return _has_form(case, choice, tuple(end - first for first, end in stages))


def _has_form(case: Case, choice: Choice, layers: Layers) -> bool:
    return len(layers) == 1 or any(_has(form, layers, choice.chunk_device) for form in forms_of(case))


def _has(form: str, layers: Layers, rank: list[int]) -> bool:
    if form == "even":
        return len(set(layers)) == 1
    if form == "with-ends":
        first, *between, last = layers
        return any(len({first + a, *between, last + b}) == 1 for a, b in ((1, 0), (0, 1), (1, 1)))
    if form == "balanced":
        return max(layers) - min(layers) <= 1 and sorted(layers, reverse=True) == list(layers)
    if form == "first-last":
        by_rank: dict[int, set[int]] = {}
        for at, count in zip(rank, layers, strict=True):
            by_rank.setdefault(at, set()).add(count)
        inner = set[int]().union(*(by_rank[at] for at in range(1, max(rank))))
        return len(inner) <= 1 and all(len(counts) == 1 for counts in by_rank.values())
    return form == ANY


def stated(case: Case, choice: Choice) -> Iterator[Layers]:
    """Layers of every chunk of the divisions (19) to (22), some of them twice; of the last form none."""
    count, chunks, rank = len(case.model.blocks), choice.pp * choice.vpp, choice.chunk_device
    if chunks == 1:
        yield (count,)
        return
    forms = set(forms_of(case))
    if forms & {"even", "balanced", "with-ends"}:
        whole, more = divmod(count, chunks)
        near = [tuple(whole + (c < more) for c in range(chunks))]
        for first, last in ((1, 0), (0, 1), (1, 1)):
            each = (count + first + last) // chunks
            near.append((each - first, *[each] * (chunks - 2), each - last))
        yield from (one for one in near if sum(one) == count and min(one) > 0 and _has_form(case, choice, one))
    if "first-last" in forms and count % choice.vpp == 0:
        own = count // choice.vpp
        for between in range(1, own) if choice.pp > 2 else [0]:
            ends = own - between * (choice.pp - 2)
            for first in range(1, ends):
                by_rank = [first, *[between] * (choice.pp - 2), ends - first]
                yield tuple(by_rank[at] for at in rank)


def has_stated(case: Case, choice: Choice) -> bool:
    """Whether the layers have a division of one of the forms."""
    if ANY in forms_of(case):
        return True
    key = "stated", choice.schedule, choice.pp, choice.vpp
    if key not in case.kept:
        case.kept[key] = next(stated(case, choice), None) is not None
    return bool(case.kept[key])


AS_STATED = (
    *("micro_batch", "tp", "cp", "ep", "pp", "vpp", "schedule"),
    *("uneven_batch", "optimizer_offload", "activation_offload"),
)


def of_choice(choice: Choice) -> Iterator[tuple[str, Any]]:
    """What a candidate has of (24), and its recompute where all stages share it."""
    for name in AS_STATED:
        yield name, getattr(choice, name)
    if choice.ep > 1:
        yield "etp", choice.etp
    if choice.holders > 1:
        yield "zero", choice.zero
    yield "copies", choice.copies > 1
    if choice.uniform_recompute:
        yield "recompute", choice.uniform_recompute


def was_seen(seen: Seen, name: str, value: Any) -> bool:
    """Whether runs had a value, or values on both sides of it."""
    known = getattr(seen, name)
    return bool(min(known) <= value <= max(known)) if isinstance(known, tuple) else value in known


def is_like_runs(choice: Choice, seen: Seen) -> bool:
    """Whether nothing of a candidate is beyond the runs."""
    return all(was_seen(seen, name, value) for name, value in of_choice(choice))


def added_seconds(case: Case, choice: Choice) -> float:
    """
    Seconds that a quantile adds for fields of a candidate beyond the runs: root of the squares of their kinds.

    The square of the micro-batch's kind counts once for each doubling.
    """
    calibration = case.calibration
    if calibration is None or calibration.seen is None:
        return 0.0
    outside = {name for name, value in of_choice(choice) if not was_seen(calibration.seen, name, value)}
    squares = {KINDS.get(name, name): DEVIATIONS[KINDS.get(name, "any other")] ** 2 for name in outside}
    if "micro_batch" in outside:
        least, most = calibration.seen.micro_batch
        squares["micro-batch"] *= max(math.log2(choice.micro_batch / most), math.log2(least / choice.micro_batch))
    return calibration.beyond_s * math.sqrt(sum(squares.values()))


def constant_seconds(case: Case, choice: Choice) -> float:
    """Seconds of a step that neither passes, nor rings, nor the optimizer take."""
    return case.coefficient("constant") + added_seconds(case, choice)


def in_space(every: Iterable[Choice], space: Mapping[str, Any]) -> list[Choice]:
    """The candidates that a space keeps for what it says of runs, all without."""
    if space.get("seen") is None:
        return list(every)
    seen = Seen.parse(space["seen"], "space.seen")
    return [choice for choice in every if is_like_runs(choice, seen)]


def mixing_of(layer: LayerSpec | None) -> set[str]:
    """How a layer and those beside it mix tokens, (26)."""
    if layer is None or layer.only == "feed_forward":
        return set() if layer is None else mixing_of(layer.beside)
    mixer, kind = layer.mixer, "attention"
    if mixer is None:
        kind = "sparse-attention" if layer.latent is not None and layer.latent.index_heads else kind
    elif mixer.attends:
        kind = kind if mixer.attends == layer.seq else "sparse-attention"
    elif mixer.scanned:
        kind = "scan"
    else:
        kind = ("delta-rule" if mixer.delta_rule else "linear-attention") if mixer.chunk else "convolution"
    return {kind, *mixing_of(layer.beside)}


def beyond(case: Case, choice: Choice, recompute: Iterable[str]) -> list[tuple[str, Any]]:
    """Fields of a plan beyond the runs with their values, (24) to (26)."""
    calibration = case.calibration
    if calibration is None or calibration.seen is None:
        return []
    found = {*of_choice(choice), *(("recompute", kind) for kind in recompute)}
    found |= {("n_gpus", case.cluster.num_devices), ("precision", case.memory.precision)}
    found |= {("seq", max(block.seq for block in case.model.blocks))}
    if calibration.seen.mixing is not None:
        found |= {("mixing", kind) for block in case.model.blocks for kind in mixing_of(block)}
    outside = [each for each in found if not was_seen(calibration.seen, *each)]
    experts = any(block.experts for block in case.model.blocks)
    return outside + [("experts", experts)] * (experts != calibration.experts)


def divisions_of(case: Case, name: str) -> list[str]:
    """Forms of division that a restriction leaves."""
    forms = forms_of(case)
    if name != "even-stages":
        return forms
    return ["even", "with-ends"] if {"with-ends", ANY} & set(forms) else ["even"]


def recompute_of(case: Case, name: str) -> list[str]:
    """Kinds of recompute that a restriction leaves; where stages share one the candidate says which."""
    kinds: list[str] = case.space["recompute"]
    if name != "seen" or not case.space.get("recompute_by_stage", True):
        return kinds
    return [kind for kind in kinds if kind in _seen(case.calibration).recompute]


def _seen(calibration: Calibration | None) -> Seen:
    """What the runs of a calibration had."""
    if calibration is None or calibration.seen is None:
        raise DataError("no calibration says what its runs have been")
    return calibration.seen


def most_chunks(name: str) -> int | None:
    """Chunks that a device may have, (29) and (30); None where the restriction is on something else."""
    if name == "no-interleaving":
        return 1
    number = name.removeprefix("at-most-").removesuffix("-chunks")
    named = name == f"at-most-{number}-chunks" and number.isascii() and number.isdigit()
    return int(number) if named and int(number) else None


def is_known(name: str) -> bool:
    """Whether there is a restriction with a name."""
    return name in ("even-stages", "no-context-ranks", "seen", FASTEST) or most_chunks(name) is not None


def candidates_of(every: Iterable[Choice], name: str, calibration: Calibration | None = None) -> list[Choice]:
    """The candidates of a restriction, of those of a space that has its divisions already."""
    most = most_chunks(name)
    if name == "seen":
        seen = _seen(calibration)
        return [choice for choice in every if is_like_runs(choice, seen)]
    return [
        choice
        for choice in every
        if (name != "no-context-ranks" or choice.cp == 1) and (most is None or choice.vpp <= most)
    ]


def whole(choice: Choice, every: Container[Choice]) -> Choice:
    """The candidate of the whole space that has all plans of a candidate, (32)."""
    return choice if choice in every else Choice(**vars(choice) | {"empty_ends": True})
