r"""
Muon as Megatron-LM runs it: what ranks do with the matrices of a chunk.

(1) Matrices are all weights of layers but norms and biases. Queries, keys and values (with the attention's gate) lie in
    one and are orthogonalised one by one; a gated feed-forward part has one matrix in and one out; latent attention one
    for each of its products; the router one; every expert two.
(2) An m by l matrix, :math:`m \le l`, takes 5 steps of :math:`2 m^2 l + 2 m^3 + 2 m^2 l` FLOP at the stated share of
    the device's rate in half precision, at least the seconds of a launch. If ranks share it, each gathers 4 bytes of
    the others' parameters at the least rate within a node, times the coefficient of tensor ranks. The rank's own
    parameters take Adam's seconds each.
(3) Ranks that hold the same share the work under ZeRO-1: dp cp of them, and of experts with ep > 1 the groups that have
    all experts. Matrices of a chunk are given away one by one, by falling product of the longer side of a rank's part
    and the square of the shorter one, ties by parameters and then seconds. Each goes to the rank with the least sum of
    these products among those that have at most 1.3 times the mean parameters with it, the first of equals; if there is
    none, to the one with the fewest parameters.
(4) A chunk takes the seconds of the rank that has the most, of experts and of all others apart, and Adam's for an equal
    share of other parameters. Chunks of a device add up.
(5) Every rank's buffers are as long as the longest, in weights, gradients and the rings of gradients. States of
    matrices are a rank's own, 4 bytes less than Adam's, the most of any rank.
(6) In the optimizer's step a device holds, of the whole matrix that takes most, the larger of 6 bytes a parameter, and
    4 with 4 for each of the square of the shorter side; if ranks share it 8 bytes a parameter more.
(7) Candidates have ZeRO-0 or 1, tensor groups within nodes, and no field but degrees, schedule, recompute and ends.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.data.layers.layer import LayerSpec
from taut.solver.certificate.reference.layers import expert_row, layers_with_ends, numbers_of_layers
from taut.solver.certificate.reference.space import Case, Choice

BESIDE = {"pp", "tp", "dp", "cp", "ep", "etp", "vpp", "cp_comm", "schedule", "order", "zero", "sequence_parallel"}
BESIDE |= {"micro_batch", "num_micro_batches", "uniform_recompute", "recompute_layers", "empty_ends"}
"""Fields that a candidate may have, (7)."""


class Weight(NamedTuple):
    """A weight on one rank: rows and columns, whether its ranks split rows, their number, and widths of its parts."""

    rows: int
    columns: int
    by_rows: bool
    ranks: int
    widths: tuple[int, ...]

    def wholes(self) -> Iterator[tuple[int, int]]:
        """Shorter and longer side of every whole matrix in it."""
        for width in self.widths:
            sides = (width * self.ranks, self.columns) if self.by_rows else (width, self.columns * self.ranks)
            yield min(sides), max(sides)


class Chunks(NamedTuple):
    """Of every chunk: parameters of matrices and of experts', of the fullest ranks, bytes (6), and seconds (4)."""

    held: Ints
    experts: Ints
    fullest: Ints
    fullest_experts: Ints
    passing: Ints
    seconds: Ints

    def padding(self, choice: Choice) -> tuple[Ints, Ints]:
        """Parameters of buffers beyond the matrices', (5)."""
        ranks, groups = sharers(choice)
        return ranks * self.fullest - self.held, groups * self.fullest_experts - self.experts


def suits(case: Case, choice: Choice) -> bool:
    """Whether a candidate goes with the optimizer, (7)."""
    if case.memory.optimizer != "muon":
        return True
    known = choice.as_dict().keys() <= BESIDE
    return choice.zero in (0, 1) and known and all(choice.tp <= node.gpus_per_node for node in case.cluster.nodes)


def sharers(choice: Choice) -> tuple[int, int]:
    """Ranks that share the work of matrices and of experts' matrices, (3)."""
    return (choice.holders, choice.expert_sharers) if choice.zero else (1, 1)


def chunks_of(case: Case, choice: Choice, first: Ints, last: Ints) -> Chunks:
    """Figures of the chunks from first to last part each."""
    layers, numbers = layers_with_ends(case, choice), numbers_of_layers(case, choice)
    found = []
    for start, end in zip(first.tolist(), last.tolist(), strict=True):
        kinds = Counter(layers[at].kind for at in range(start, end + 1) if numbers[at])
        degrees = choice.tp, choice.ep, choice.etp, choice.dp, choice.cp, choice.zero
        key = "muon", degrees, tuple(sorted(kinds.items()))
        if key not in case.kept:
            case.kept[key] = _chunk(case, choice, kinds)
        found.append(case.kept[key])
    return Chunks(*(np.array(column) for column in zip(*found, strict=True)))


def _chunk(case: Case, choice: Choice, kinds: Counter[str]) -> tuple[float, ...]:
    common, experts = Counter[Weight](), Counter[Weight]()
    for kind, count in kinds.items():
        layer = case.model.kinds[kind]
        for weight in _common(layer, choice.tp):
            common[weight] += count
        for weight in _of_expert(layer, choice):
            own = experts if choice.ep > 1 else common
            own[weight] += count * (layer.experts.num_experts if layer.experts else 0) // choice.ep
    ranks, groups = sharers(choice)
    seconds, fullest = _given_away(case, common, ranks)
    more, fullest_experts = _given_away(case, experts, groups)
    sums = (sum(weight.rows * weight.columns * n for weight, n in each.items()) for each in (common, experts))
    passing = max(map(_bytes, common | experts), default=0)
    return *sums, fullest, fullest_experts, passing, seconds + more


def _common(layer: LayerSpec, tp: int) -> list[Weight]:
    """Weights of a layer beside its experts, (1)."""
    h, latent, found = layer.hidden, layer.latent, []
    if latent is not None:
        key, value = latent.qk_nope_head_dim + latent.qk_rope_head_dim, latent.v_head_dim
        rows = layer.heads // tp * (latent.qk_nope_head_dim + value)
        found.append(_rows(latent.kv_lora_rank + latent.qk_rope_head_dim, h, 1))
        found.append(_rows(rows, latent.kv_lora_rank, tp))
        found.append(_rows(layer.heads // tp * key, latent.q_lora_rank or h, tp))
        if latent.q_lora_rank:
            found.append(_rows(latent.q_lora_rank, h, 1))
        out = layer.heads // tp * value
    else:
        head = layer.head_dim or h // layer.heads
        out, keys = layer.heads // tp * head, head * (layer.key_value_heads // min(tp, layer.key_value_heads))
        widths = [out, *([layer.attention_gate // tp] if layer.attention_gate else []), keys, keys]
        found.append(Weight(sum(widths), h, True, tp, tuple(widths)))
    found.append(Weight(h, out, False, tp, (h,)))
    width = layer.ffn // tp
    if layer.experts is not None:
        found.append(_rows(layer.experts.num_experts, h, 1))
        width = layer.experts.shared_ffn_hidden // tp
    if width:
        found += [_rows((2 if layer.gated_mlp else 1) * width, h, tp), Weight(h, width, False, tp, (h,))]
    return found


def _of_expert(layer: LayerSpec, choice: Choice) -> list[Weight]:
    """Weights of one expert, (1)."""
    if layer.experts is None:
        return []
    ranks, row = choice.etp if choice.ep > 1 else choice.tp, expert_row(layer)
    width = layer.experts.expert_ffn_hidden // ranks
    return [_rows((2 if layer.gated_mlp else 1) * width, row, ranks), Weight(row, width, False, ranks, (row,))]


def _rows(rows: int, columns: int, ranks: int) -> Weight:
    return Weight(rows, columns, True, ranks, (rows,))


def _seconds(case: Case, weight: Weight) -> float:
    """Seconds of a weight, (2)."""
    (device,) = case.cluster.devices.values()
    known = device.peak_tflops
    peak = next(known[name] for name in ("bf16", "fp16", *known) if name in known)
    link = min(node.intra_bandwidth_gbps for node in case.cluster.nodes) * 1e9 / 8
    found = case.costs.optimizer_s_per_parameter.get(device.name, 0.0) * weight.rows * weight.columns
    for m, long in weight.wholes():
        flop = 5 * (4 * m * m * long + 2 * m**3)
        found += max(flop / (device.gemm_efficiency * peak * 1e12), device.launch_us * 1e-6)
        found += case.coefficient("tensor_parallel") * 4 * m * long * (1 - 1 / weight.ranks) / link
    return found


def _bytes(weight: Weight) -> int:
    """Bytes while it is orthogonalised, (6)."""
    shared = 8 if weight.ranks > 1 else 0
    return max(shared * m * long + max(6 * m * long, 4 * m * long + 4 * m * m) for m, long in weight.wholes())


def _given_away(case: Case, weights: Counter[Weight], ranks: int) -> tuple[float, int]:
    """Most seconds and most parameters of a rank, (3)."""
    if not weights.total():
        return 0.0, 0
    size = {weight: weight.rows * weight.columns for weight in weights}
    seconds = {weight: _seconds(case, weight) for weight in weights}
    work = {weight: size[weight] * min(weight.rows, weight.columns) for weight in weights}
    cap = sum(size[weight] * n for weight, n in weights.items()) / ranks * 1.3
    done, sizes, taken = np.zeros(ranks, dtype=int), np.zeros(ranks, dtype=int), np.zeros(ranks)
    for weight in sorted(weights, key=lambda each: (work[each], size[each], seconds[each]), reverse=True):
        for _ in range(weights[weight]):
            room = sizes + size[weight] <= cap
            rank = np.where(room, done, np.iinfo(int).max).argmin() if room.any() else sizes.argmin()
            done[rank] += work[weight]
            sizes[rank] += size[weight]
            taken[rank] += seconds[weight]
    return float(taken.max()), int(sizes.max())
