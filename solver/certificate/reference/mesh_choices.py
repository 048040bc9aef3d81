r"""
Which pipelines of meshes there are.

Every type of device has one mesh of (tp, dp, pp), stages on all its devices; P stages of all meshes, m micro-batches.

(1) tp dp pp are a type's devices; B divides the batch, dp divides B, micro-batches have B / dp sequences. tp divides
    the layers' heads, key-value heads (or the reverse) and widths, every sequence, and the nodes of the type, up to the
    space's most; costs are known on every type. A shared embedding asks for equal tp and dp of first and last mesh.
    ZeRO-0, or ZeRO-1 if some mesh has replicas. Full and selective recompute by stage, or one for all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from taut.data.costs import Key
from taut.data.layers.layer import LayerSpec
from taut.solver.certificate.reference.layers import alone
from taut.solver.certificate.reference.space import Case, Choice

Degrees = tuple[int, int, int, int, int]
"""Place of the device type among the cluster's, tp, dp, pp and micro-batch of a mesh."""


@dataclass(frozen=True)
class Meshes:
    """Degrees of all meshes in the order of the stages; micro-batches, ZeRO stage, and the recompute of all or ''."""

    degrees: tuple[Degrees, ...]
    num_micro_batches: int
    zero: int
    recompute: str = ""

    @property
    def pp(self) -> int:
        """Stages of all meshes."""
        return sum(pp for _, _, _, pp, _ in self.degrees)

    def choice(self, k: int) -> Choice:
        """Mesh k as a candidate of a pipeline of all stages, (2)."""
        _, tp, dp, _, micro_batch = self.degrees[k]
        zero = 0 if dp == 1 else self.zero
        return Choice(
            self.pp,
            tp,
            dp,
            1,
            micro_batch,
            self.num_micro_batches,
            "1f1b",
            zero,
            tp > 1,
            uniform_recompute=self.recompute,
        )


def every_choice(case: Case) -> Iterator[Meshes]:
    """All meshes of the space, (1)."""
    sizes: dict[int, list[int]] = {}
    for node in case.cluster.node_list:
        sizes.setdefault(list(case.cluster.devices).index(node.device.name), []).append(node.gpus_per_node)
    own = {kind: [*_triples(case, counts)] for kind, counts in sizes.items()}
    for order in permutations(sorted(own)):
        for each in product(*(own[kind] for kind in order)):
            pp, shared = sum(triple[2] for triple in each), case.model.tied_embedding or case.model.mtp_layers
            alike = not shared or each[0][:2] == each[-1][:2]
            if alike and pp <= len(case.model.blocks) and case.space["fixed"].get("pp", pp) == pp:
                yield from _at_degrees(case, order, each)


def _at_degrees(case: Case, order: tuple[int, ...], each: Sequence[tuple[int, int, int]]) -> Iterator[Meshes]:
    """Choices of given degrees, (1)."""
    batch, piped = case.space["global_batch"], case.space.get("pipeline_zero")
    stages = [z for z in case.space["zero"] if z < 2 and (piped is None or z in piped)]
    stages = [0] if all(dp == 1 for _, dp, _ in each) else stages
    kinds = [""] if case.space.get("recompute_by_stage", True) else case.space["recompute"]
    for whole in range(1, batch + 1):
        if batch % whole or any(whole % dp for _, dp, _ in each):
            continue
        degrees = tuple((k, tp, dp, n, whole // dp) for k, (tp, dp, n) in zip(order, each, strict=True))
        if all(_has_costs(case, tp, count) for _, tp, _, _, count in degrees):
            for zero, kind in product(stages, kinds):
                if case.space["fixed"].get("zero", zero) == zero:
                    yield Meshes(degrees, batch // whole, zero, kind)


def _triples(case: Case, sizes: list[int]) -> Iterator[tuple[int, int, int]]:
    """Degrees tp, dp and pp of a type with nodes of these sizes, (1)."""
    for tp in range(1, min(*sizes, case.space["max_tp"]) + 1):
        whole = all(size % tp == 0 for size in sizes)
        if whole and all(_splits(case, tp, at) for at in range(len(case.model.blocks))):
            groups = sum(sizes) // tp
            yield from ((tp, dp, groups // dp) for dp in range(1, groups + 1) if groups % dp == 0)


def _splits(case: Case, tp: int, at: int) -> bool:
    return all(_shares(layer, tp) for layer in alone(case.model.blocks[at]))


def _shares(layer: LayerSpec, tp: int) -> bool:
    own = [layer.ffn] if layer.experts is None else [layer.experts.expert_ffn_hidden, layer.experts.shared_ffn_hidden]
    keys = layer.key_value_heads
    if layer.only == "feed_forward":
        return not any(n % tp for n in (layer.seq, *own))
    return not any(n % tp for n in (layer.heads, layer.seq, *own)) and (keys % tp == 0 or tp % keys == 0)


def _has_costs(case: Case, tp: int, count: int) -> bool:
    """Whether every layer's cost is known on every type at a tensor degree and micro-batch."""
    blocks = case.model.blocks
    wanted = {(layer.kind, layer.seq) for layer in blocks}
    wanted |= {("embedding", blocks[0].seq), ("head", blocks[-1].seq)} if case.model.vocab else set()
    for device, (kind, seq) in product(case.cluster.devices, wanted):
        known = case.costs.micro_batches.get(Key(device, kind, tp, 0, seq, "none", 1), [])
        if not known or count < known[0] or count > known[-1]:
            return False
    return True
