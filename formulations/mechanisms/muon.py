r"""
Muon: matrices whose momentum is orthogonalised by Newton-Schulz steps, each whole on one of the ranks that hold it.

Megatron-LM's layer-wise distributed optimizer (``--optimizer muon --use-distributed-optimizer``) is what is priced
(``core/optimizer/layer_wise_optimizer.py`` and ``emerging_optimizers.py`` of August 2026, with the library
Emerging-Optimizers), with one bucket a chunk. Embeddings, head, norms and biases stay with Adam.

A device's chunk has parameters P, of these :math:`M` in matrices that n devices hold and :math:`M'` in matrices of
experts that n' devices hold. With ZeRO-1 these devices divide the work, n = dp cp; without it each does all, n = 1.
A matrix has a by b parameters on a tensor rank, and small side m and long side l in whole.

(1) A Newton-Schulz step multiplies :math:`X X^T`, :math:`A A` and :math:`B X` (``newton_schulz_step``), 5 steps
    :math:`5 (4 m^2 l + 2 m^3)` FLOP. They run in half precision at the device's stated share of its peak, and take no
    less than the host's launch of a pass. Queries, keys and values are one matrix in memory and three here
    (``--muon-split-qkv``).
(2) Each of t tensor ranks gathers the momentum in single precision from the others and orthogonalises the whole matrix
    (``--muon-tp-mode duplicated``): :math:`4 m l (t - 1) / t` bytes at the least rate inside any node.
(3) A matrix takes :math:`p = ` (1) + (2) + :math:`a b \, o`, with o the seconds of a parameter under Adam, which moves
    about as many bytes.
(4) The matrices of a chunk go to the n ranks in order of :math:`\max(a, b) \min(a, b)^2`, largest first, each to the
    rank with the least of it so far, of the ranks that then have at most 1.3 times the mean parameters; if none has,
    to the one with the fewest parameters (longest processing time first, with a cap:
    ``_compute_per_buffer_param_layout``). The fullest rank takes :math:`\max_r p_r` seconds and has S parameters.
    Experts are assigned apart, over n' ranks. The fullest rank of both counts:

    .. math:: T_{opt} = \frac{P - M - M'}{n} o + \max_r p_r + \max_r p'_r ,

    of several chunks the sum.
(5) No assignment to n ranks ends before :math:`\max(\sum p / n, \max_k \lceil k / n \rceil p_{(k)})`, with
    :math:`p_{(k)}` the k-th longest: of the k longest one rank has :math:`\lceil k / n \rceil` at least.
(6) Buffers give every rank the space of the fullest, so that weights and gradients take n S + n' S' - M - M' parameters
    more, and their rings carry these as well (``padded_shard_size``).
(7) States of a matrix take 4 bytes less than Adam's, which has a second moment: S + S' parameters of the fullest rank,
    beside :math:`(P - M - M') / n` of Adam's.
(8) While the largest matrix is orthogonalised, a device holds :math:`\max(6 m l, 4 m l + 4 m^2)` bytes in the
    optimizer's step, and 8 m l more if it gathers them.

Bounds add the least of (4) over all divisions to what a step takes without the optimizer, since all stages wait for the
slowest: with one chunk a device by a dynamic program over :math:`\max_x T_{opt}[x]`, with several by the mean over the
devices of the least sum.

References
----------
Jordan et al. (2024), Muon; Liu et al., Muon is scalable for LLM training (arXiv 2502.16982).
Graham (1969), Bounds on multiprocessing timing anomalies: (4).
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.cluster import ClusterSpec
from taut.data.layers.layer import LayerSpec
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.units import GIGABIT, TERA
from taut.errors import FieldError
from taut.formulations.compiled import jit
from taut.formulations.mechanisms.shards import expert_holders, has_expert_rings, holders
from taut.formulations.terms import MemoryTerm, Ring, Term

if TYPE_CHECKING:
    from taut.formulations.degrees import BlockShape
    from taut.formulations.space import Candidate

STEPS = 5
"""Newton-Schulz steps, (1)."""
CAP = 1.3
"""Parameters of a rank over the mean up to which it is given more, (4)."""
PRICED = {"pp", "tp", "dp", "cp", "ep", "etp", "vpp", "cp_comm", "schedule", "order", "zero", "sequence_parallel"}
PRICED |= {"micro_batch", "num_micro_batches", "uniform_recompute", "recompute_layers", "empty_ends"}
"""Fields of a candidate that are priced beside Muon; one with any other is no candidate."""
MOMENTUM_BYTES = 4
"""Bytes of a parameter's momentum, (2), and of the second moment that Muon has not, (7)."""


class Matrix(NamedTuple):
    """
    A matrix on one tensor rank, a ``rows`` by ``columns``, and the whole ``parts`` that are orthogonalised.

    ``copies`` of it are on a device; ``ranks`` share the whole; ``apart`` says that it belongs to an expert that expert
    ranks share.
    """

    rows: int
    columns: int
    parts: tuple[tuple[int, int], ...]
    ranks: int = 1
    copies: int = 1
    apart: bool = False

    @property
    def size(self) -> int:
        """Parameters on one rank."""
        return self.rows * self.columns

    @property
    def flop(self) -> int:
        """FLOP of all steps, (1)."""
        return sum(STEPS * (4 * min(part) ** 2 * max(part) + 2 * min(part) ** 3) for part in self.parts)

    @property
    def order(self) -> int:
        """What the framework sorts by, (4)."""
        return max(self.rows, self.columns) * min(self.rows, self.columns) ** 2

    @property
    def held_bytes(self) -> int:
        """Bytes while it is orthogonalised, (8)."""
        gathered = 8 if self.ranks > 1 else 0
        return max(
            gathered * a * b + max(6 * a * b, 4 * a * b + MOMENTUM_BYTES * min(a, b) ** 2) for a, b in self.parts
        )


def matrices_of(layer: LayerSpec, block: "BlockShape") -> list[Matrix]:
    """The matrices of a layer on one device of a block."""
    h, tp, found = layer.hidden, block.tp, []

    def by_rows(rows: int, columns: int, ranks: int) -> Matrix:
        return Matrix(rows, columns, ((rows * ranks, columns),), ranks)

    def by_columns(rows: int, columns: int, ranks: int) -> Matrix:
        return Matrix(rows, columns, ((rows, columns * ranks),), ranks)

    if latent := layer.latent:
        made = layer.heads * (latent.qk_nope_head_dim + latent.v_head_dim) // tp
        found += [
            by_rows(latent.kv_lora_rank + latent.qk_rope_head_dim, h, 1),
            by_rows(made, latent.kv_lora_rank, tp),
            by_rows(layer.queries(tp), latent.q_lora_rank or h, tp),
        ]
        found += [by_rows(latent.q_lora_rank, h, 1)] if latent.q_lora_rank else []
    else:
        gate = (layer.attention_gate or 0) // tp
        widths = [layer.queries(tp), *([gate] if gate else []), *[layer.keys_and_values(tp) // 2] * 2]
        found.append(Matrix(sum(widths), h, tuple((width * tp, h) for width in widths), tp))
    found.append(by_columns(h, layer.output(tp), tp))
    outer, experts = layer.ffn_matrices - 1, layer.experts
    if experts is None:
        return [*found, by_rows(outer * layer.ffn // tp, h, tp), by_columns(h, layer.ffn // tp, tp)]
    found.append(by_rows(experts.num_experts, h, 1))
    if shared := experts.shared_ffn_hidden // tp:
        found += [by_rows(outer * shared, h, tp), by_columns(h, shared, tp)]
    ranks, own = (block.etp, experts.num_experts // block.ep) if block.ep > 1 else (tp, experts.num_experts)
    width = experts.expert_ffn_hidden // ranks
    each = by_rows(outer * width, h, ranks), by_columns(h, width, ranks)
    return [*found, *(one._replace(copies=own, apart=block.ep > 1) for one in each)]


class Rates(NamedTuple):
    """Seconds of a FLOP in products, of a launch, of a gathered byte, and of a parameter under Adam, (1) to (3)."""

    product: float
    launch: float
    gather: float
    parameter: float

    def seconds(self, matrix: Matrix) -> float:
        """Seconds of a matrix, (3)."""
        products = sum(max(matrix._replace(parts=(part,)).flop * self.product, self.launch) for part in matrix.parts)
        gathered = MOMENTUM_BYTES * sum(a * b for a, b in matrix.parts) * (matrix.ranks - 1) / matrix.ranks
        return products + gathered * self.gather + matrix.size * self.parameter


def rates_of(cluster: ClusterSpec, parameter: float, coefficient: float) -> Rates:
    """Rates of a cluster of one type of device, its calibration's coefficient on the links of tensor ranks included."""
    (device,) = cluster.devices.values()
    slowest = min(node.intra_bandwidth_gbps for node in cluster.nodes) * GIGABIT
    return Rates(
        1.0 / (device.gemm_efficiency * device.half_tflops * TERA), device.launch, coefficient / slowest, parameter
    )


class Matrices(NamedTuple):
    """Figures of ranges, stages or devices: parameters, M and M', S and S', (8), and T_opt of (4) as ``seconds``."""

    held: Ints
    of_experts: Ints
    fullest: Ints
    fullest_experts: Ints
    passing: Ints
    seconds: Floats

    def of_devices(self) -> "Matrices":
        """Figures of devices from those of their chunks (..., chunks): sums, and the largest of (8)."""
        summed = Matrices(*(figure.sum(axis=-1) for figure in self))
        return summed._replace(passing=self.passing.max(axis=-1))

    def of_ranges(self, first: Ints | slice, end: Ints | slice) -> "Matrices":
        """Figures of some ranges."""
        return Matrices(**{name: figure[first, end] for name, figure in self._asdict().items()})

    def padding(self, candidate: "Candidate") -> tuple[Ints, Ints]:
        """Parameters that buffers of a candidate have more, of all but experts and of experts, (6)."""
        ranks, expert_ranks = ranks_of(candidate)
        return ranks * self.fullest - self.held, expert_ranks * self.fullest_experts - self.of_experts


def ranks_of(candidate: "Candidate") -> tuple[int, int]:
    """Ranks n and n' that divide matrices, and matrices of experts."""
    return (candidate.shards, candidate.expert_shards) if candidate.zero else (1, 1)


def matrix_tables(
    kinds: list[LayerSpec], count: Floats, parameters: Ints, candidate: "Candidate", rates: Rates
) -> Matrices:
    """Figures of all ranges, from layers of each kind in them (kinds, L+1, L+1) and their parameters (L+1, L+1)."""
    numbers, inverse = np.unique(count.reshape(len(kinds), -1).astype(np.int64), axis=1, return_inverse=True)
    of_kinds = [matrices_of(layer, candidate.block) for layer in kinds]
    found = []
    for apart, ranks in zip((False, True), ranks_of(candidate), strict=True):
        listed = sorted(
            {matrix for own in of_kinds for matrix in own if matrix.apart == apart},
            key=lambda matrix: (matrix.order, matrix.size, rates.seconds(matrix)),
            reverse=True,
        )
        copies = [[own.count(one) * one.copies for own in of_kinds] for one in listed]
        amount = np.array(copies, dtype=np.int64).reshape(len(listed), len(kinds)) @ numbers
        order, size = (np.array([getattr(one, name) for one in listed], np.int64) for name in ("order", "size"))
        seconds = np.array([rates.seconds(one) for one in listed], dtype=float)
        loads = np.array([assign(order, size, seconds, each, ranks) for each in np.ascontiguousarray(amount.T)])
        found.append((size @ amount, loads[:, 1].astype(np.int64), loads[:, 0]))
    (held, fullest, own), (of_experts, fullest_experts, more) = found
    widest = np.array([max(matrix.held_bytes for matrix in own) for own in of_kinds], dtype=np.int64)
    passing = np.max(np.where(numbers > 0, widest[:, None], 0), axis=0)
    figures = (held, of_experts, fullest, fullest_experts, passing, own + more)
    held, of_experts, fullest, fullest_experts, passing, seconds = (
        figure[inverse.ravel()].reshape(count.shape[1:]) for figure in figures
    )
    rest = (parameters - held - of_experts) * rates.parameter / ranks_of(candidate)[0]
    return Matrices(held, of_experts, fullest, fullest_experts, passing, np.asarray(seconds + rest))


def assign(order: Ints, size: Ints, seconds: Floats, amount: Ints, ranks: int) -> tuple[float, float]:
    """Seconds and parameters of the fullest of some ranks, (4), of kinds of matrices by falling ``order``."""
    if not amount.any():
        return 0.0, 0.0
    if amount.sum() <= ranks:
        some = amount > 0
        return float(seconds[some].max()), float(size[some].max())
    return assign_each(order, size, seconds, amount, ranks)


@jit
def assign_each(order: Ints, size: Ints, seconds: Floats, amount: Ints, ranks: int) -> tuple[float, float]:
    """``assign``, matrix by matrix; of many equal ones whole rounds at once, where every rank gets one of each."""
    load, held = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
    taken = np.zeros(ranks)
    cap = (size * amount).sum() / ranks * CAP
    for kind in range(len(amount)):
        left = amount[kind]
        while left > 0:
            rounds = left // ranks
            if rounds > 0 and load.max() - load.min() < order[kind] and held.max() + rounds * size[kind] <= cap:
                load += rounds * order[kind]
                held += rounds * size[kind]
                taken += rounds * seconds[kind]
                left -= rounds * ranks
                continue
            least = -1
            for rank in range(ranks):
                if held[rank] + size[kind] <= cap and (least < 0 or load[rank] < load[least]):
                    least = rank
            if least < 0:
                least = int(held.argmin())
            load[least] += order[kind]
            held[least] += size[kind]
            taken[least] += seconds[kind]
            left -= 1
    return taken.max(), float(held.max())


def least_makespan(seconds: Floats, amount: Ints, ranks: int) -> float:
    """Seconds that no assignment of kinds of matrices to ranks beats, (5)."""
    falling = np.argsort(-seconds)
    longest, number = seconds[falling], np.cumsum(amount[falling])
    mean = float(seconds @ amount) / ranks
    return max(mean, float(np.max(-(-number // ranks) * longest, initial=0.0, where=amount[falling] > 0)))


def least_update(tables: Matrices, candidate: "Candidate") -> float:
    """Seconds of the optimizer at least, whatever the division of the layers."""
    cuts, chunks = len(tables.seconds), candidate.pp * candidate.vpp
    rising = np.arange(cuts)[:, None] < np.arange(cuts)
    seconds = np.where(rising, tables.seconds, np.inf)
    left = np.where(np.arange(cuts) == cuts - 1, 0.0, np.inf)
    for _ in range(chunks):
        both = np.maximum(seconds, left) if chunks == candidate.pp else seconds + left
        left = both.min(axis=1)
    return float(left[0]) * (1 - 1e-12) / (1 if chunks == candidate.pp else candidate.pp)


def padding_terms(candidate: "Candidate", moved: float) -> tuple[Term, ...]:
    """Rings of what buffers have more, (6), of ``moved`` bytes a parameter."""
    if not candidate.zero:
        return ()
    experts = expert_holders(candidate) if has_expert_rings(candidate) else holders(candidate)
    return (
        Term("padding", "end", (Ring(holders(candidate)),), moved),
        Term("expert padding", "end", (Ring(experts),), moved),
    )


def matrix_memory(parameters: Ints, matrices: Matrices, model: MemoryModel, candidate: "Candidate") -> list[MemoryTerm]:
    """Memory terms of weights, gradients and states, (6) to (8)."""
    each, ranks = model.held_parameter_bytes, ranks_of(candidate)[0]
    whole = parameters + sum(matrices.padding(candidate))
    others = parameters - matrices.held - matrices.of_experts
    states = -(-others * each.state // ranks)
    states = states + (each.state - MOMENTUM_BYTES) * (matrices.fullest + matrices.fullest_experts)
    return [
        MemoryTerm("weights", "always", model.weigh("weights", whole * each.weight)),
        MemoryTerm("gradients", "always", model.weigh("gradients", whole * each.gradient)),
        MemoryTerm("states", "always", model.weigh("states", states)),
        MemoryTerm("states", "update", matrices.passing),
    ]


def least_matrices(parameters: Ints, experts: Ints, model: MemoryModel, candidate: "Candidate") -> Matrices | None:
    """The matrices under Muon that take the fewest bytes: all parameters are in some, evenly on ranks without (8)."""
    if model.optimizer != "muon":
        return None
    ranks, expert_ranks = ranks_of(candidate)
    fullest, none = ((parameters - experts) // ranks, experts // expert_ranks), 0 * parameters
    return Matrices(parameters - experts, experts, *fullest, none, none.astype(float))


def suits_muon(candidate: "Candidate", node_size: int) -> bool:
    """Whether a candidate's optimizer can be layer-wise: ZeRO-0 or 1, tensor groups in a node, no other mechanism."""
    return candidate.zero < 2 and candidate.tp <= node_size and candidate.as_dict().keys() <= PRICED


def check_muon(model: ModelSpec, cluster: ClusterSpec, memory: MemoryModel) -> None:
    """Refuse a model, cluster or memory model that Muon is not priced for."""
    if len(cluster.devices) > 1:
        raise _refusal(f"{cluster.name} has {', '.join(cluster.devices)}, expected one type of device")
    if not memory.is_sum_of_terms:
        raise _refusal(f"memory model {memory.name} is a network, expected one of terms")
    if model.mtp_layers:
        raise _refusal(f"mtp_layers is {model.mtp_layers}, expected none")
    for layer in model.kinds.values():
        part = (
            "a mixer"
            if layer.mixer
            else "an indexer"
            if layer.latent and layer.latent.index_heads
            else "a gate beside latent attention"
            if layer.latent and layer.attention_gate
            else None
            if layer.is_usual
            else "parts beside plain attention and feed-forward"
        )
        if part:
            raise _refusal(f"layer {layer.kind} of {model.name} has {part}, whose matrices are not priced")


def _refusal(reason: str) -> FieldError:
    return FieldError("optimizer", "muon", reason)
