r"""
Memory of a stage, and whether it fits.

Stage x on range [i, j) under recompute r has P parameters on a tensor rank, with :math:`w, g, o` bytes of weight,
gradient and optimizer state for each. Under ZeRO stage k or above :math:`d_k` devices share one copy
(``taut.formulations.mechanisms.shards`` (7); for experts the devices that hold the same experts); otherwise
:math:`d_k = 1`. With :math:`q_x` micro-batches in flight the terms are

(1) weights: :math:`\lceil P w / d_3 \rceil`, gradients: :math:`\lceil P g / d_2 \rceil`, states:
    :math:`\lceil P o / d_1 \rceil` (Rajbhandari et al., arXiv 1910.02054). Under stage 3 a layer's weights are gathered
    while the layer before is in use, so twice the largest layer's weights are added. A pipeline would gather and
    scatter anew for every micro-batch, so it keeps the stage's whole weights too, and whole gradients under stages 2
    and 3 (PyTorch's FSDP within a pipeline);
(2) activations, or checkpoints under full recompute: :math:`q_x` times the bytes that stay of a micro-batch, with
    :math:`q_x = \min(pp - x, m)` for 1F1B and m for GPipe. Under an order-priced schedule the order says how many
    micro-batches a device holds (``taut.formulations.schedules.orders`` (13));
(3) workspace, logits and buffers: what recomputation, the loss and messages hold for a moment
    (``taut.formulations.tables.stage_tables``). Under stages 2 and 3 the gradients of a layer before the replicas sum
    them take the place of the logits if they are more; they come when the loss's copies are gone
    (``taut.formulations.mechanisms.shards`` (3)). They have the coefficient of gradients.

(4) bytes = sum over terms of coefficient times term, plus overhead. The overhead has a part for several stages, a
    part for several replicas or context ranks, and a part for CUDA graphs where not all is recomputed whole.
    ``taut.formulations.terms`` (3) sums the list of terms;
(5) a plan fits a device type if ceil(bytes / 1024) + margin <= capacity, in KiB.

Coefficients are 1 in the analytic model and fitted otherwise. Every term is rounded up to a whole byte, so a plan is
feasible for every reader or for none.

(6) A device with several chunks holds the weights, gradients, states and logits of all its chunks, and the activations
    that its order keeps at once. It runs one pass at a time, so it holds the workspace and buffers of its largest
    chunk.
(7) In the optimizer's step activations are gone. A device needs (1), the overhead, and the moments that are cast if
    they are in half precision (``taut.formulations.mechanisms.shards`` (2)).
(8) If a single stage runs the layers of one micro-batch's forward pass during the backward pass of another, a layer of
    the backward pass is free when the next layer of the forward pass begins. The device therefore holds at most one
    micro-batch and its largest layer once more (Megatron-LM's ``combined_1f1b.py`` and
    ``model_chunk_schedule_plan.py``; layers whose activations never shrink towards the last, or repeat).

Lower bounds for devices with several chunks, as sums over their chunks (``taut.formulations.order_division`` (2)), with
:math:`n_c` micro-batches of chunk c in flight and :math:`a_c` bytes of activations each:

(9) if passes of two micro-batches run side by side, a device holds the activations of its largest chunk once more:
    :math:`\sum_c n_c a_c + \max_c a_c`, the largest of the sums that count a single chunk once more;
(10) of L parts, chunk c of C has at least one of the parts c to L - C + c. A range has the workspace and buffers of its
     largest part, and a device those of its largest chunk. Take the least figure of a chunk's parts, the largest over
     the chunks of a device, and the least over devices: no device has less;
(11) bytes that are held always, or with the loss, are linear in the figures ``SUMMED`` but for rounding. One of a
     figure takes what ``MANY`` parameters with as many of it take by (1) to (3) beyond as many parameters, over
     ``MANY``, less than rounding adds. A matrix of Muon takes the least of its buffers and ranks.

(12) A device keeps a stand-in for the gradient of every shape of weights that it has, in the weights' format, where the
     framework caches them (``taut.data.layers.layer``); of several chunks the shapes of all, each once. Bounds
     count those of its largest chunk, as (10).

A memory network (``taut.data.memory``) sees a candidate and its recompute, not a stage, so it stands for even
partitions alone: with L layers on pp stages a stage has :math:`\lfloor L / pp \rfloor` or
:math:`\lceil L / pp \rceil` of them. For candidate c, recompute r and range [i, j),

(13) bytes[r, i, j] = prediction(c, r) where j - i is one of those sizes, and more than any device has elsewhere, so
     that no other division is feasible;
(14) a plan fits by (5) with the network's own margin. A stage that recomputes is predicted as if all stages did.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.data.memory import MemoryModel, MemoryNetwork
from taut.data.model import ModelSpec
from taut.data.units import KIB, MOST_BYTES, SATURATED_BYTES
from taut.errors import FormulationError
from taut.formulations.mechanisms.expert_ranks import hides_exchange
from taut.formulations.mechanisms.muon import Matrices, least_matrices, matrix_memory
from taut.formulations.mechanisms.shards import unsummed_bytes
from taut.formulations.schedules.orders import device_of_chunk, in_flight_counts
from taut.formulations.space import MEMORY, Candidate, OrderKey
from taut.formulations.tables.priced_layers import FULL
from taut.formulations.tables.stage_tables import StageTables
from taut.formulations.terms import MOMENTS, MemoryTerm, bytes_in_passes, bytes_of_moment, device_bytes

if TYPE_CHECKING:
    from taut.formulations.problem import PlanningProblem

PASSING = "workspace", "logits", "buffers"
"""Names of the terms (3)."""
MANY = 10**9
"""Parameters whose bytes are counted together, to know those of one, (11)."""


SUMMED = "parameters", "experts", "logits"
"""Figures that a device has of all its chunks together, some of its parameters; of others it has the largest, (6)."""


class Figures(NamedTuple):
    """
    What (1), (3) and (12) are made of, of ranges, stages or devices (...); ``cached`` (shapes, ...).

    Each is the field of ``StageTables`` with its name.
    """

    parameters: Ints
    experts: Ints
    largest: Ints
    workspace: Ints
    logits: Ints
    buffers: Ints
    backward: Ints
    cached: Ints
    matrices: Matrices | None = None

    @classmethod
    def of_ranges(cls, tables: StageTables, recompute: Ints | slice, first: Ints | slice, end: Ints | slice) -> Self:
        """Figures of some ranges under some recomputes."""
        found = {name: getattr(tables, name)[..., first, end] for name in cls._fields[:-1] if name != "workspace"}
        matrices = tables.matrices and tables.matrices.of_ranges(first, end)
        return cls(**found, workspace=tables.workspace[recompute, first, end], matrices=matrices)

    def of_devices(self) -> Self:
        """Figures of devices, (6), from the figures of their chunks (..., chunks)."""
        found = {
            name: figure.sum(axis=-1) if name in SUMMED else figure.max(axis=-1)
            for name, figure in zip(self._fields[:-1], self[:-1], strict=True)
        }
        return type(self)(**found, matrices=self.matrices and self.matrices.of_devices())


def memory_terms(figures: Figures, model: MemoryModel, candidate: Candidate) -> list[MemoryTerm]:
    """Memory terms of a candidate but those of activations: (1), (3), (7), (12) and the overhead of (4)."""
    parameters, _, _, *passing, backward, cached, matrices = figures
    found = [] if matrices is None else matrix_memory(parameters, matrices, model, candidate)
    for terms in MEMORY:
        found += terms(figures, model, candidate)
    stand_ins = model.held_parameter_bytes.weight * cached.sum(axis=0)
    found.append(MemoryTerm("gradients", "always", model.weigh("gradients", stand_ins)))
    found.append(MemoryTerm("workspace", "reduction", model.weigh("workspace", backward)))
    found.append(MemoryTerm("overhead", "always", overhead(model, candidate)))
    for name, figure in zip(PASSING, passing, strict=True):
        found.append(MemoryTerm(name, MOMENTS[name], model.weigh(name, figure)))
    return found


@dataclass(frozen=True)
class StageMemory:
    """
    Bytes of ranges (recompute, L+1, L+1): fixed[r, i, j] + in_flight[x] * activation[r, i, j], (4), x (X,) chunks.

    ``budget`` are the most bytes that satisfy (5), by device type. ``update`` (L+1, L+1) are bytes in the optimizer's
    step, (7), or None if they are never more; where they exceed every device, ``fixed`` is raised to them, and
    ``during_passes`` is what it was before.
    """

    fixed: Ints
    activation: Ints
    in_flight: Ints
    budget: Ints
    update: Ints | None = None
    during_passes: Ints | None = None

    @property
    def held(self) -> Ints:
        """Bytes of a stage during the passes whatever is in flight, (recompute, L+1, L+1)."""
        return self.fixed if self.during_passes is None else self.during_passes

    def need(self, stage: int) -> Ints:
        """Bytes of stage number ``stage`` on every range, (recompute, L+1, L+1)."""
        passes = self.held + self.in_flight[stage] * self.activation
        return np.asarray(passes if self.update is None else np.maximum(passes, self.update))

    def bytes_of(self, stage: int, first: int, end: int, recompute: int) -> int:
        """Bytes of stage number ``stage`` on layers [first, end)."""
        per_micro_batch = self.activation[recompute, first, end]
        passes = int(self.held[recompute, first, end] + self.in_flight[stage] * per_micro_batch)
        return passes if self.update is None else max(passes, int(self.update[first, end]))


def stage_memory(problem: "PlanningProblem", candidate: Candidate, *, margin: bool = True) -> StageMemory:
    """Memory of every range of layers under a candidate, with the margin kept or not."""

    def make() -> StageMemory:
        if (network := problem.memory.network) is not None:
            return network_stage_memory(network, problem.model, candidate, problem.capacity_kib, margin=margin)
        return _memory_of_terms(problem, candidate, margin)

    return problem.of_latest(candidate, ("memory", margin), make)


def _memory_of_terms(problem: "PlanningProblem", candidate: Candidate, margin: bool) -> StageMemory:
    """Memory of ranges (recompute, L+1, L+1), with a micro-batch more where passes run side by side, (8)."""
    tables, model = problem.tables(candidate), problem.memory_of(candidate)
    every = np.arange(len(RECOMPUTE))[:, None, None]
    terms = memory_terms(Figures.of_ranges(tables, *[slice(None)] * 3), model, candidate)
    if hides_exchange(problem.space, problem.model, candidate) and not candidate.is_order_priced:
        terms.append(MemoryTerm("activations", "passes", weigh_kept(model, every, tables.layer_activation)))
    fixed = np.asarray(bytes_in_passes(terms), dtype=np.int64)
    budget, flight = budgets(model, problem.capacity_kib, margin=margin), in_flight(candidate)
    # Products with the micro-batches in flight must stay within 64 bits; what is cut off exceeds any device.
    activation = np.minimum(weigh_kept(model, every, tables.activation), SATURATED_BYTES // int(flight.max()))
    graphs = _graph_bytes(model, every)
    if all(term.moment != "update" for term in terms):
        return StageMemory(fixed + graphs, activation, flight, budget)
    update = np.asarray(bytes_of_moment(terms, "always", "update"), dtype=np.int64)
    if graphs.any():
        # Graphs are of one stage, so what it holds in the optimizer's step may count as held in the passes.
        fixed = np.maximum(fixed, update - flight[0] * activation) + graphs
    above = np.where(update > budget.max(), np.maximum(fixed, update), fixed)
    return StageMemory(above, activation, flight, budget, update, fixed)


def bytes_of_stages(problem: "PlanningProblem", candidate: Candidate, recompute: Ints, first: Ints, end: Ints) -> Ints:
    """Bytes of every stage of a closed form (pp,), whose memory is a sum of terms, from its recompute and range."""
    tables, model = problem.tables(candidate), problem.memory_of(candidate)
    at, flight = (recompute, first, end), in_flight(candidate)
    terms = memory_terms(Figures.of_ranges(tables, *at), model, candidate)
    terms.append(MemoryTerm("overhead", "always", _graph_bytes(model, recompute)))
    if hides_exchange(problem.space, problem.model, candidate):
        terms.append(MemoryTerm("activations", "passes", weigh_kept(model, recompute, tables.layer_activation[at])))
    kept = np.minimum(weigh_kept(model, recompute, tables.activation[at]), SATURATED_BYTES // int(flight.max()))
    terms.append(MemoryTerm("activations", "passes", flight * kept))
    return np.asarray(device_bytes(terms), dtype=np.int64)


@dataclass(frozen=True)
class DeviceMemory:
    """
    Memory of the devices of an order-priced candidate, (6), on which chunks (C,) lie.

    ``counts`` (n, chunks) are the micro-batches in flight that a device's order goes through, ``budget`` the most bytes
    of each device type, (5), and ``ahead`` says that a device holds its largest chunk's activations once more.
    """

    tables: StageTables
    model: MemoryModel
    candidate: Candidate
    device: Ints
    counts: tuple[Ints, ...]
    budget: Ints
    ahead: bool = False

    def bytes_of(self, recompute: Ints, first: Ints, end: Ints) -> list[int]:
        """Bytes of every device (pp), from index of recompute, first layer and end of every chunk, each (C,)."""
        chunks = np.argsort(self.device, kind="stable").reshape(self.candidate.pp, -1)
        recompute, first, end = (each[chunks] for each in (recompute, first, end))
        tables, model, at = self.tables, self.model, (recompute, first, end)
        terms = memory_terms(Figures.of_ranges(tables, *at).of_devices(), model, self.candidate)
        kept = weigh_kept(model, recompute, tables.activation[at])
        at_once = np.array([_at_once(*each) for each in zip(self.counts, kept, strict=True)])
        held = MemoryTerm("activations", "passes", at_once + self.ahead * kept.max(axis=1))
        return [int(count) for count in device_bytes([*terms, held])]


def _at_once(counts: Ints, kept: Ints) -> int:
    """Most bytes of activations of one device, from its counts (n, chunks) and bytes of a micro-batch (chunks,)."""
    return int((counts @ np.minimum(kept, SATURATED_BYTES // int(counts.sum(axis=1).max()))).max())


def device_memory(problem: "PlanningProblem", candidate: Candidate) -> DeviceMemory:
    """Memory of the devices of an order-priced candidate, (6), margin kept."""
    device, counts = device_of_chunk(*candidate.order_key[:3]), in_flight_counts(*candidate.order_key)
    model, ahead = problem.memory_of(candidate), hides_exchange(problem.space, problem.model, candidate)
    return DeviceMemory(problem.tables(candidate), model, candidate, device, counts, problem.budget, ahead)


def held_counts(order: OrderKey, *, ahead: bool) -> tuple[Ints, ...]:
    """For every device the micro-batches of each chunk that it holds, passes side by side or not, (n, chunks), (9)."""
    counts = in_flight_counts(*order)
    return tuple(_one_more(each) for each in counts) if ahead else counts


def _one_more(counts: Ints) -> Ints:
    """Counts (n, chunks) with one more of any chunk, each once."""
    more = np.eye(counts.shape[1], dtype=np.int64)
    return np.unique((counts[:, None] + more).reshape(-1, counts.shape[1]), axis=0)


def least_passing(every: Sequence[StageTables], memory: MemoryModel, allowed: list[int], device: Ints) -> list[float]:
    """Bytes of workspace, buffers and stand-ins of every device at least, (10) and (12), of chunks on devices (C,)."""
    figures = (map(_of_layers, (each.workspace, each.buffers, each.cached)) for each in every)
    parts = np.array([(work[allowed].min(axis=0), buffers, held.sum(axis=0)) for work, buffers, held in figures])
    # A chunk has at least one of so many parts, from its number on; their least is found by doubling.
    chunks, window, width = len(device), parts.shape[2] - len(device) + 1, 1
    while 2 * width <= window:
        parts, width = np.minimum(parts[..., :-width], parts[..., width:]), 2 * width
    least = np.minimum(parts[..., :chunks], parts[..., window - width : window - width + chunks])
    most = np.zeros((int(device.max()) + 1, len(every), 3))
    np.maximum.at(most, device, np.moveaxis(least, -1, 0))
    stand_in = memory.coefficient("gradients") * memory.held_parameter_bytes.weight
    each = np.array([memory.coefficient("workspace"), memory.coefficient("buffers"), stand_in])
    return [float(found) for found in (most.min(axis=0) * each).sum(axis=1)]


def _of_layers(ranges: Ints) -> Ints:
    """Figures of single layers (..., L), of those of ranges (..., L+1, L+1)."""
    return np.diagonal(ranges, 1, -2, -1)


def momentary(
    tables: StageTables, memory: MemoryModel, candidate: Candidate, allowed: list[int]
) -> tuple[Floats, Floats]:
    """
    Bytes of every layer of which a device has the most of its layers', (3) and (12), (figures, L).

    The last figure is of gradients, those of weights that await their sum included. With the head, whose bytes are gone
    by then, they are those of a range from a layer on, (L,).
    """
    held = memory.held_parameter_bytes
    stand_in = held.weight * memory.coefficient("gradients")
    coefficients = [memory.coefficient(name) for name in ("workspace", "buffers")] + [stand_in] * len(tables.cached)

    def late(of: Callable[[Ints], Ints]) -> Floats:
        """Bytes of gradients of some ranges."""
        found = coefficients[0] * of(tables.backward)
        if tables.matrices is None:
            found = found + memory.coefficient("gradients") * unsummed_bytes(of(tables.largest), held, candidate)
        return np.asarray(found)

    workspace, buffers, cached = map(_of_layers, (tables.workspace, tables.buffers, tables.cached))
    each = np.array(coefficients)[:, None] * np.vstack((workspace[allowed].min(axis=0), buffers, cached))
    return np.vstack((each, late(_of_layers))), late(lambda ranges: ranges[:-1, -1])


def bytes_of_each(memory: MemoryModel, candidate: Candidate) -> Floats:
    """Least bytes for one of each figure of ``SUMMED`` on a device, (11)."""
    none = np.zeros(len(SUMMED), np.int64)
    given = dict.fromkeys(Figures._fields[:-1], none) | {"cached": none[None]}
    given |= dict(zip(SUMMED, MANY * np.eye(len(SUMMED), dtype=np.int64), strict=True)) | {"parameters": none + MANY}
    many = Figures(**given, matrices=least_matrices(given["parameters"], given["experts"], memory, candidate))
    found = bytes_of_moment(memory_terms(many, memory, candidate), "always", "loss") - overhead(memory, candidate)
    # Bytes were rounded up to whole ones; the factor takes back more than that.
    each = np.asarray(found) / MANY * (1 - 1e-8)
    return np.append(each[:1], each[1:] - each[0])


def overhead(model: MemoryModel, candidate: Candidate) -> int:
    """Bytes that the framework holds on every device under a candidate, (4), but for CUDA graphs."""
    groups = (candidate.pp > 1) + (candidate.dp_cp > 1)
    return model.overhead_bytes + groups * model.group_bytes


def _graph_bytes(model: MemoryModel, recompute: Ints) -> Ints:
    """What CUDA graphs of one stage keep under some recomputes, (4); they record no layers recomputed whole."""
    return np.where(recompute == FULL, 0, model.graph_bytes)


def budgets(model: MemoryModel, capacity_kib: list[int], *, margin: bool = True) -> Ints:
    """Largest number of bytes that satisfies (5), by device type, from capacities in KiB (types,)."""
    free = [kib - (model.margin_kib(kib) if margin else 0) for kib in capacity_kib]
    return np.array([kib * KIB for kib in free], dtype=np.int64)


def kept_coefficients(model: MemoryModel) -> Floats:
    """Coefficients by recompute of what stays for the backward pass, which is activations or checkpoints, (2)."""
    return np.array([model.coefficient("checkpoints" if name == "full" else "activations") for name in RECOMPUTE])


def weigh_kept(model: MemoryModel, recompute: Ints, figure: Ints) -> Ints:
    """Bytes that stay for the backward pass under some recomputes, times their coefficients, rounded up, (2)."""
    coefficients = kept_coefficients(model)
    return figure if (coefficients == 1.0).all() else np.ceil(coefficients[recompute] * figure).astype(np.int64)


def in_flight(candidate: Candidate) -> Ints:
    """Most micro-batches whose activations a stage (a chunk, where there are several) holds at once, (2)."""
    m = candidate.num_micro_batches
    if candidate.is_order_priced:
        counts = in_flight_counts(*candidate.order_key)
        device = device_of_chunk(candidate.schedule, candidate.pp, candidate.vpp)
        most = [counts[d].max(axis=0)[np.count_nonzero(device[:c] == d)] for c, d in enumerate(device.tolist())]
        return np.array(most, dtype=np.int64)
    if candidate.schedule == "gpipe":
        return np.full(candidate.pp, m, dtype=np.int64)
    return np.minimum(np.arange(candidate.pp, 0, -1), m).astype(np.int64)


def network_stage_memory(
    network: MemoryNetwork, model: ModelSpec, candidate: Candidate, capacity_kib: list[int], *, margin: bool = True
) -> StageMemory:
    """Memory of every range as a network predicts it, (13) and (14), of a model with dense layers of one kind."""
    layers = len(model.blocks)
    predicted = np.ceil(network.predict(candidate_features(network.names, model, candidate))).astype(np.int64)
    first, end = np.arange(layers + 1)[:, None], np.arange(layers + 1)[None, :]
    even = np.isin(end - first, (layers // candidate.pp, -(-layers // candidate.pp)))
    fixed = np.where(even[None], predicted[:, None, None], MOST_BYTES)
    free = [kib - (network.margin_kib(kib) if margin else 0) for kib in capacity_kib]
    budget = np.array([kib * KIB for kib in free], dtype=np.int64)
    return StageMemory(fixed, np.zeros_like(fixed), np.ones(candidate.pp, dtype=np.int64), budget)


def candidate_features(names: list[str], model: ModelSpec, candidate: Candidate) -> Floats:
    """Features of a candidate under each recompute, (recompute, names)."""
    if len(model.kinds) != 1:
        raise FormulationError(f"{model.name}: layers of {len(model.kinds)} kinds, expected one for a memory network")
    block, micro = model.blocks[0], candidate.micro_batch
    if block.experts or block.latent or block.mixer or not block.is_usual:
        part = "experts" if block.experts else "latent attention" if block.latent else "no plain attention"
        raise FormulationError(f"{model.name}: layers have {part}, expected dense ones for a memory network")
    known: dict[str, float] = {
        "n_gpus": candidate.pp * candidate.tp * candidate.dp,
        "layers": len(model.blocks),
        "hidden": block.hidden,
        "heads": block.heads,
        "tp": candidate.tp,
        "pp": candidate.pp,
        "dp": candidate.dp,
        "micro_batch": micro,
        "mini_batch": micro * candidate.num_micro_batches,
        "global_batch": micro * candidate.num_micro_batches * candidate.dp,
        "kv_heads": block.key_value_heads,
        "ffn_hidden": block.ffn,
        "seq": block.seq,
        "vocab": model.vocab or 0,
        "cp": 1,
        "vpp": candidate.vpp,
        "gpipe": candidate.schedule == "gpipe",
        "zero": candidate.zero,
    }
    rows = [{**known, "selective": kind == "selective", "full": kind == "full"} for kind in RECOMPUTE]
    return np.array([[float(row[name]) for name in names] for row in rows])
