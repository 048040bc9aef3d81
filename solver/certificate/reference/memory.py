r"""
What a device of each pipeline rank holds, and which plans break a rule.

(1) A parameter takes (weight, gradient, optimizer) bytes: (2, 4, 12) in bf16 and narrower formats, (2, 2, 16) in fp16,
    (4, 4, 8) in fp32. A gradient with a precision of its own takes 2 or 4 bytes. If only remainders of weights are
    kept, the optimizer takes 2 bytes less. ZeRO-1 divides the optimizer's bytes by the devices of a copy, ZeRO-2 the
    gradients' too, ZeRO-3 the weights' too. ZeRO-3 gathers two of the largest layers. In a pipeline it holds weights
    whole besides its shares instead, and ZeRO-2 and 3 hold gradients whole. If a group of w devices shares the experts,
    the divisor for experts is tp cp dp / w divided by the number of copies.
(2) Stage x of 1F1B holds min(pp - x, m) micro-batches, and GPipe m. Under another order a device holds what its passes
    keep, until the whole backward pass, or until the gradient by the weights. If exchanges overlap, it holds the
    largest chunk once more; a single stage holds its largest layer once more, whose backward pass ends before the next
    forward pass of a layer. Full recompute keeps checkpoints; otherwise activations are kept. Where some layers of a
    chunk are recomputed and some are not, a kept layer's bytes times the coefficient of activations over that of
    checkpoints, rounded up, count as checkpoints.
(3) At one moment a device also holds: the largest layer that recomputation brings back; one message each way, with the
    gathered input under sequence parallelism; all keys and values with their gradients, if context ranks gather them;
    all that an expert group gathers and sums, if its ranks do so; and the larger of the loss's logits and, under ZeRO-2
    and 3, the gradients of the largest layer before they are scattered. These are in the weights' format and, except
    in a pipeline, also in the format of the sum. Gradients of activations that pass in a backward pass
    (``taut.solver.certificate.reference.layers`` (10)) stand beside them, and weigh as what recomputation brings back.
    A stand-in for the gradient of every shape of weights on the device stays always.
(4) Bytes are the terms times their coefficients, each rounded up, plus the overhead, plus the overhead of groups: once
    for several stages, and once for several replicas or context ranks, plus what CUDA graphs keep where a candidate has
    them (``taut.solver.certificate.reference.layers`` (13)) and its stage is not recomputed whole. A network predicts
    the bytes instead, for stages whose layers differ by one at most.
(5) Moments in half precision take 4 bytes less. In the optimizer's step, when nothing of (2) and (3) is held, they take
    8 bytes more for each parameter of one group, experts or all others. With a share F of the states in the host's
    memory the coefficient of states is multiplied by 1 - F.
(6) A plan fits if bytes <= 1024 (capacity - margin) on every device, both in KiB.
(7) Chunks of a device have equal parts of its host's memory, the least of any node for each GPU: of optimizer states
    the share that is there, and what their layers move for each of the most micro-batches in flight of any chunk.
(8) Under Muon weights, gradients and states are those of ``taut.solver.certificate.reference.muon`` (5), and (6) there
    stands in the place of (2) and (3) in the optimizer's step.
"""

import math
from collections.abc import Iterator

import numpy as np

from taut.data.arrays import Ints
from taut.data.memory import MemoryModel
from taut.data.units import GIB, KIB, MOST_BYTES
from taut.solver.certificate.reference.figures import gathered_bytes
from taut.solver.certificate.reference.layers import Layers, layers_of, numbers_of_layers, rows_of_layers, with_further
from taut.solver.certificate.reference.muon import Chunks, chunks_of, sharers
from taut.solver.certificate.reference.space import (
    CLOSED_FORM,
    Case,
    Choice,
    Order,
    Stages,
    forms_of,
    is_stated,
    of_layers,
)

PARAMETER_BYTES = {
    "bf16": (2, 4, 12),
    "fp16": (2, 2, 16),
    "fp32": (4, 4, 8),
    "fp8": (2, 4, 12),
    "fp8-blockwise": (2, 4, 12),
    "mxfp8": (2, 4, 12),
    "nvfp4": (2, 4, 12),
}
HOST_FULL = 2**50
"""Bytes for a micro-batch of a chunk whose host holds no more (7)."""
GRADIENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}


def memory_bytes(
    case: Case, choice: Choice, stages: Stages, recompute: tuple[str, ...], order: Order | None
) -> list[int]:
    """Bytes on a device of every pipeline rank, (1) to (4)."""
    if case.memory.network is not None:
        return [_predicted(case, choice, end - first, r) for (first, end), r in zip(stages, recompute, strict=True)]
    layers, memory, rank = layers_of(case, choice), case.memory_of(choice), np.array(choice.chunk_device)
    stages = with_further(case, stages)
    first, last = np.array([first for first, _ in stages]), np.array([end for _, end in stages]) - 1
    row = rows_of_layers(choice, stages, recompute)
    each = np.arange(len(row))
    message = -(-layers.output // choice.tp) if choice.sequence_parallel else layers.output
    gathered = layers.output if choice.sequence_parallel and choice.tp > 1 else 0 * layers.output
    buffers = gathered + (2 * message if choice.pp > 1 else 0)
    if choice.cp > 1 and choice.cp_comm == "all_gather":
        buffers = buffers + 2 * choice.cp * layers.keys * (numbers_of_layers(case, choice) > 0)
    if choice.ep > 1 and case.dispatch.dispatcher == "allgather":
        buffers = buffers + gathered_bytes(case, choice, layers.output) * (numbers_of_layers(case, choice) > 0)

    def added(figures: Ints) -> Ints:
        return np.bincount(rank, figures, choice.pp).astype(int)

    def largest(figures: Ints) -> Ints:
        return np.array([figures[rank == d].max() for d in range(choice.pp)]) if choice.vpp > 1 else figures

    parameters, widest = added(np.add.reduceat(layers.parameters, first)), np.maximum.reduceat(layers.gathered, first)
    held_terms = _held(memory, choice, parameters, largest(widest), added(np.add.reduceat(layers.experts, first)))
    matrices = chunks_of(case, choice, first, last) if memory.optimizer == "muon" else None
    if matrices is not None:
        held_terms = _held_by_muon(memory, choice, parameters, Chunks(*map(added, matrices)))
    terms = {
        **held_terms,
        "workspace": largest(np.maximum.reduceat(layers.brought_back[row, each], first)),
        "buffers": largest(np.maximum.reduceat(buffers, first)),
        "logits": added(np.where(last == len(row) - 1, layers.logits, 0)),
    }
    kept = np.add.reduceat(layers.kept[row, each] + _beside_checkpoints(choice, memory, layers, row), first)
    if choice.moved_share:
        figures = layers.parameters, layers.experts, layers.moved_away[row, each]
        parts, experts, moved = (np.add.reduceat(figure, first) for figure in figures)
        states = _held(memory, choice, parts, widest, experts)["states"]
        kept = np.where(_beyond_host(case, choice, moved, states, order), HOST_FULL, kept)
    full = np.array(recompute) == "full"
    kept = np.where(full, _times(memory, "checkpoints", kept), _times(memory, "activations", kept))
    weighed = {term: _times(memory, term, figure) for term, figure in terms.items()}
    unsummed = _times(memory, "gradients", _unsummed(memory, choice, largest(widest)))
    backward = np.maximum.reduceat(layers.passing, first)
    backward = np.maximum(backward - np.where(last == len(row) - 1, layers.of_head, 0), 0)
    unsummed = unsummed + _times(memory, "workspace", largest(backward))
    weighed["logits"] = np.maximum(weighed["logits"], unsummed)
    held = sum(weighed.pop(term) for term in ("weights", "gradients", "states"))
    passes = sum(weighed.values()) + _at_once(case, choice, kept, order)
    if case.hides(choice) and choice.schedule not in CLOSED_FORM:
        passes = passes + np.array([kept[rank == d].max() for d in range(choice.pp)])
    elif case.hides(choice):
        once = np.maximum.reduceat(layers.of_layer[row, each], first)
        passes = passes + np.where(full, _times(memory, "checkpoints", once), _times(memory, "activations", once))
    if matrices is not None:
        passes = np.maximum(passes, largest(matrices.passing))
    if memory.half_moments:
        passes = np.maximum(passes, _cast(choice, parameters, added(np.add.reduceat(layers.experts, first))))
    groups = (choice.pp > 1) + (choice.dp * choice.cp > 1)
    overhead = round(memory.overhead_gib * GIB) + groups * round(memory.group_overhead_gib * GIB)
    overhead += 0 if full.all() else round(memory.graph_gib * GIB)
    shapes = np.array([largest(each) for each in np.maximum.reduceat(layers.stand_ins, first, axis=1)])
    stand_ins = _times(memory, "gradients", PARAMETER_BYTES[memory.precision][0] * shapes.sum(axis=0))
    held = held + stand_ins
    found: list[int] = np.asarray(held + passes + overhead).tolist()
    return found


def _beside_checkpoints(choice: Choice, memory: MemoryModel, layers: Layers, row: Ints) -> Ints:
    """What layers that are kept count more beside checkpoints, whose coefficient chunks have, (2)."""
    if not choice.recompute_layers:
        return 0 * row
    share = memory.coefficients.get("activations", 1.0) / memory.coefficients.get("checkpoints", 1.0)
    return np.where(row == 0, np.ceil(share * layers.of_layer[0]).astype(int) - layers.of_layer[0], 0)


def _cast(choice: Choice, parameters: Ints, experts: Ints) -> Ints:
    """Bytes of moments in single precision, of experts or of all other parameters, (5)."""
    sharers = choice.expert_sharers if choice.zero else 1
    others = -(-8 * (parameters - experts) // (choice.copy_of if choice.zero else 1))
    return np.asarray(np.maximum(others, -(-8 * experts // sharers)))


def parameter_bytes(memory: MemoryModel) -> tuple[int, int, int]:
    """Bytes of a parameter's weight, gradient and optimizer state, (1)."""
    weight, gradient, state = PARAMETER_BYTES[memory.precision]
    state -= 2 if memory.weight_remainders and (weight, gradient) == (2, 4) else 0
    state -= 4 if memory.half_moments else 0
    return weight, GRADIENT_BYTES.get(memory.grad_precision or "", gradient), state


def _times(memory: MemoryModel, term: str, figures: Ints) -> Ints:
    """A term times its coefficient, in whole bytes."""
    coefficient = memory.coefficients.get(term, 1.0)
    if term == "states":
        coefficient = coefficient * (1 - memory.optimizer_offload_fraction)
    return figures if coefficient == 1.0 else np.ceil(coefficient * figures).astype(int)


def _held(memory: MemoryModel, choice: Choice, parameters: Ints, largest: Ints, experts: Ints) -> dict[str, Ints]:
    """Bytes of weights, gradients and optimizer states, (1)."""
    weight, gradient, state = _held_parameter_bytes(memory)
    groups = choice.expert_sharers if choice.ep > 1 else 1
    terms = []
    for each, stage in ((weight, 3), (gradient, 2), (state, 1)):
        sharers = (choice.copy_of, groups) if choice.zero >= stage else (1, 1)
        terms.append(-((experts - parameters) * each // sharers[0]) - (-experts * each // sharers[1]))
    if choice.zero == 3 and choice.holders > 1:
        terms[0] = terms[0] + (parameters * weight if choice.pp > 1 else 2 * largest * weight)
    if choice.zero in (2, 3) and choice.holders > 1 and choice.pp > 1:
        terms[1] = terms[1] + parameters * gradient
    return dict(zip(("weights", "gradients", "states"), terms, strict=True))


def _held_by_muon(memory: MemoryModel, choice: Choice, parameters: Ints, device: Chunks) -> dict[str, Ints]:
    """The same under Muon, (8)."""
    weight, gradient, state = _held_parameter_bytes(memory)
    buffers, others = parameters + sum(device.padding(choice)), parameters - device.held - device.experts
    states = (state - 4) * (device.fullest + device.fullest_experts) - (-others * state // sharers(choice)[0])
    return {"weights": buffers * weight, "gradients": buffers * gradient, "states": states}


def _held_parameter_bytes(memory: MemoryModel) -> tuple[int, int, int]:
    """Bytes of a parameter as (1), with gradients in the weights' format where the stack keeps them too."""
    weight, gradient, state = parameter_bytes(memory)
    return weight, gradient + (weight if memory.half_gradients and gradient > weight else 0), state


def _unsummed(memory: MemoryModel, choice: Choice, largest: Ints) -> Ints:
    """Bytes of the largest layer's gradients until they are scattered, (3)."""
    if choice.zero not in (2, 3) or choice.holders == 1:
        return 0 * largest
    weight, gradient, _ = _held_parameter_bytes(memory)
    return largest * (weight if choice.pp > 1 else weight + gradient)


def _at_once(case: Case, choice: Choice, kept: Ints, order: Order | None) -> Ints:
    """Most bytes of activations that each rank holds at once, of those that each chunk keeps, (2)."""
    m = choice.num_micro_batches
    if choice.schedule in CLOSED_FORM:
        return kept * (m if choice.schedule == "gpipe" else np.minimum(np.arange(choice.pp, 0, -1), m))
    key = "changes", choice.schedule, choice.pp, choice.vpp, m, choice.order
    if key not in case.kept:
        sign = {"F": 1, "I": 0, "W": -1, "B": -1}
        case.kept[key] = [np.array([(sign[kind], c) for kind, c, _ in passes]) for passes in order or []]
    return np.array([np.cumsum(change[:, 0] * kept[change[:, 1]]).max() for change in case.kept[key]])


def _beyond_host(case: Case, choice: Choice, moved: Ints, states: Ints, order: Order | None) -> Ints:
    """Whether hosts hold too little of chunks, from bytes that a micro-batch of each moves, and of its states."""
    room = min(int((node.host_memory_gib or 0.0) * GIB) // node.gpus_per_node for node in case.cluster.nodes)
    away = case.memory_of(choice).optimizer_offload_fraction
    key = "most", choice.schedule, choice.pp, choice.vpp, choice.num_micro_batches
    if key not in case.kept:
        case.kept[key] = _most_in_flight(choice, order)
    found = case.kept[key] * moved + np.ceil(away * states) > room // choice.vpp
    return np.asarray(found)


def _most_in_flight(choice: Choice, order: Order | None) -> int:
    """Most micro-batches that any chunk has between its passes."""
    m = choice.num_micro_batches
    if choice.schedule in CLOSED_FORM:
        return m if choice.schedule == "gpipe" else min(choice.pp, m)
    most, held = 0, dict.fromkeys(range(choice.pp * choice.vpp), 0)
    for passes in order or []:
        for kind, chunk, _ in passes:
            held[chunk] += (kind == "F") - (kind == "B")
            most = max(most, held[chunk])
    return most


def _predicted(case: Case, choice: Choice, layers: int, recompute: str) -> int:
    """What the network predicts for a stage with so many layers, (4)."""
    network, block, count = case.memory.network, case.model.blocks[0], len(case.model.blocks)
    assert network is not None
    if layers not in (count // choice.pp, -(-count // choice.pp)):
        return MOST_BYTES
    micro = choice.micro_batch
    known = {
        **{"n_gpus": choice.pp * choice.tp * choice.dp, "tp": choice.tp, "pp": choice.pp, "dp": choice.dp},
        **{"layers": count, "hidden": block.hidden, "heads": block.heads, "kv_heads": block.key_value_heads},
        **{"ffn_hidden": block.ffn, "seq": block.seq, "vocab": case.model.vocab or 0, "cp": 1, "vpp": choice.vpp},
        **{"micro_batch": micro, "mini_batch": micro * choice.num_micro_batches, "zero": choice.zero},
        **{"global_batch": micro * choice.num_micro_batches * choice.dp, "gpipe": int(choice.schedule == "gpipe")},
        **{"selective": int(recompute == "selective"), "full": int(recompute == "full")},
    }
    inputs = [known[feature.name] for feature in network.features]
    entries = zip(inputs, network.features, strict=True)
    values = np.array([((math.log(x) if f.log else x) - f.centre) / f.scale for x, f in entries])
    for number, layer in enumerate(network.layers):
        values = np.array(layer.weights) @ values + np.array(layer.biases)
        values = values if number == len(network.layers) - 1 else values.clip(min=0.0)
    logarithm = network.target.centre + network.target.scale * float(values[0])
    return math.ceil(math.exp(min(logarithm, math.log(MOST_BYTES))))


def capacity_kib(case: Case) -> list[int]:
    """KiB of each device type."""
    return [int(device.memory_gib * GIB) // KIB for device in case.cluster.devices.values()]


def margin_kib(case: Case, capacity: int) -> int:
    """KiB that stay free on a device with this capacity."""
    network = case.memory.network
    if network is not None:
        return math.ceil(network.margin * capacity)
    return math.ceil(case.memory.margin * capacity) + math.ceil(case.memory.margin_gib * GIB / KIB)


def violations(
    case: Case,
    choice: Choice,
    stages: Stages,
    recompute: tuple[str, ...],
    devices: Ints,
    order: Order | None,
    micro_batches: tuple[int, ...] = (),
) -> Iterator[str]:
    """What is wrong with a plan: its shape, torn tensor groups, micro-batches of replicas, memory, (6)."""
    chunks, layers = choice.pp * choice.vpp, len(case.model.blocks)
    ends = [0, *(end for _, end in stages)]
    cut = all(first == before and first < end for (first, end), before in zip(stages, ends, strict=False))
    if len(stages) != chunks or not cut or ends[-1] != choice.parts(case):
        yield f"stages {list(of_layers(choice, stages))} do not divide {layers} layers in order"
        return
    if not is_stated(case, choice, stages):
        counts = [end - first for first, end in stages]
        yield f"layers {counts} of the stages are no division that is {', '.join(forms_of(case))}"
        return
    allowed = set(case.recomputes(choice))
    if len(recompute) != chunks or not set(recompute) <= allowed:
        yield f"recompute {list(recompute)} is not one of {sorted(allowed)} for each stage"
        return
    if devices.shape != (choice.pp, choice.blocks, choice.block):
        yield f"devices have shape {devices.shape}, not (pp, blocks, devices of a block)"
        return
    if sorted(devices.ravel().tolist()) != list(range(case.cluster.num_devices)):
        yield "not every device is used exactly once"
        return
    nodes = case.cluster.node_list
    node_of = np.repeat(np.arange(len(nodes)), [node.gpus_per_node for node in nodes])
    yield from _batch(case, choice, node_of[devices], micro_batches)
    size = max(node.gpus_per_node for node in nodes)
    parts = {choice.expert_group: "expert group", choice.tp * choice.cp: "replica"}
    for count, name in sorted({**parts, choice.block: "block", choice.tp: "tensor group"}.items()):
        spread = max(len(set(group)) for group in node_of[devices].reshape(-1, count).tolist())
        if spread > max(count // size, 1):
            yield f"a {name} of {count} lies on {spread} nodes, not {max(count // size, 1)}"
            break
    yield from _too_large(case, memory_bytes(case, choice, stages, recompute, order), node_of[devices])


def _batch(case: Case, choice: Choice, nodes: Ints, micro_batches: tuple[int, ...]) -> Iterator[str]:
    """Micro-batches that are no division of the batch, and replicas of an uneven one on several device types."""
    count = choice.dp * choice.num_micro_batches
    if not choice.pipelines_by_type:
        if micro_batches:
            yield f"micro-batches {list(micro_batches)} by replica of an even batch"
        return
    if len(micro_batches) != choice.dp or any(m < 1 for m in micro_batches) or sum(micro_batches) != count:
        yield f"micro-batches {list(micro_batches)} do not divide {count} over {choice.dp} replicas"
    for z in range(choice.dp):
        if len(np.unique(case.type_of_node[nodes[:, z]])) > 1:
            yield f"replica {z} of an uneven batch is on several types of device"
            return


def _too_large(case: Case, need: list[int], nodes: Ints) -> Iterator[str]:
    names, capacity = list(case.cluster.devices), capacity_kib(case)
    for x, bytes_ in enumerate(need):
        for kind in np.unique(case.type_of_node[nodes[x]]).tolist():
            free = capacity[kind] - margin_kib(case, capacity[kind])
            if bytes_ > free * KIB:
                yield f"stage {x} needs {-(-bytes_ // KIB)} KiB, device type {names[kind]} has {free}"
