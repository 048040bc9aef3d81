r"""
Context ranks: devices that have different tokens of a sequence, and share attention.

(10) cp context ranks are at most ``max_cp``. 2 cp divides every sequence: each rank has a piece from both of its ends,
    so all ranks have equal work under a causal mask. Tensor groups lie in a node, and blocks of tp cp devices fit the
    nodes as tensor groups do (``taut.formulations.space`` (3)). Only the latency model ``step`` prices several context
    ranks, and only if memory is a sum of terms. The ways to share attention are the kinds of ``cp_comm`` that suit the
    heads (``taut.formulations.degrees`` (4)), without the kinds that (1) and (2) leave out.

A kind is left out if another kind is at least as fast on any placement, and holds no more:

(1) a gather of all keys, if there is a ring: the ring sends the same bytes in as many steps, and may run during
    attention;
(2) an all-to-all, if there is a ring of c ranks that attention hides on every link that the ring may use, and the ring
    pays no more latency. Let m be the bytes of a layer's keys and values on a rank, :math:`\beta` seconds per byte, and
    :math:`\alpha` the seconds of attention during a step. Attention hides the ring if :math:`\beta m \le \alpha` for
    every layer. Let M be the bytes of the all-to-all, :math:`\beta_0` the fastest link's seconds per byte,
    :math:`\lambda` the largest latency, and n the ranks of the ring that goes with the all-to-all, 1 if none does. The
    ring pays no more latency if
    :math:`2 (c - 1) \lambda \le 2 (n - 1) \lambda + 2 \lambda + M \beta_0`, in the backward pass, where it pays most.
    Bytes and attention grow with the micro-batch, so one sequence decides. The ring uses links within nodes if a
    block of tp cp devices lies in a node. Otherwise it uses any link of the cluster, at most at its share of the cards
    of its nodes.

A fixed kind is never left out.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from taut.data.cluster import ClusterSpec
from taut.data.layers.layer import LayerSpec
from taut.data.model import ModelSpec
from taut.data.stack import CONTEXT_KINDS, ContextKind
from taut.data.suggest import one_of
from taut.errors import FieldError
from taut.formulations.degrees import inner_contexts
from taut.formulations.fields import (
    Asked,
    Columns,
    Compared,
    Field,
    Fix,
    Runs,
    Sentence,
    Words,
    divides_devices,
    named,
    one_of_names,
)
from taut.formulations.links import Links

if TYPE_CHECKING:
    from taut.formulations.space import StrategySpace

KIND_WORDS = {
    "p2p": "a ring of keys",
    "all_gather": "gathered keys",
    "a2a": "all-to-all of heads",
    "a2a+p2p": "all-to-all of heads in nodes, a ring of keys between them",
}


def check_contexts(asked: Asked) -> None:
    """Refuse context ranks, or a way to share attention, that nothing prices or the stack has not."""
    stack, kind = asked.stack, asked.fix.get("cp_comm")
    if kind is not None and kind not in stack.cp_comm:
        reason = f"not in {stack.name}, expected {one_of(str(kind), stack.cp_comm)}, or stack any"
        raise FieldError("fix", f"cp_comm={kind}", reason)
    field, ranks = ("fix", asked.fix["cp"]) if "cp" in asked.fix else ("max_cp", asked.max_cp or 1)
    if ranks == 1:
        return
    asked.check_mechanism("context ranks")
    if not stack.context_parallel:
        shown = f"cp={ranks}" if field == "fix" else str(ranks)
        raise FieldError(field, shown, f"not in {stack.name}, expected 1, or stack any")


def _rule_of_kinds(space: "StrategySpace") -> str:
    """What kinds other than a ring need, in words."""
    return (
        f"cp is from 2 to {space.max_cp} (max_cp), in a2a a divisor of heads and kv_heads of a tensor rank, and "
        "with a2a+p2p its ranks are on several nodes, several on each, which divide these heads"
    )


CONTEXT_RANKS = Field(
    check=check_contexts,
    launched=True,
    meaning="Context ranks, which have different tokens of every sequence.",
    seldom=True,
    grouped=True,
    fix=Fix(3, int, divides_devices),
    words=Words(2, named("cp", 1), short=2),
    sentence=Sentence(
        0, 2, lambda each, space: f"context {each.cp} ({KIND_WORDS[each.cp_comm]})" if each.cp > 1 else ""
    ),
    columns=Columns(sweep=3),
    compared=Compared(1, change=1, frees=("dp", "cp_comm", "etp")),
    runs=Runs("cp", 5, lambda value: f"context {value}"),
    rule=lambda space: (
        "2*cp divides the sequence, tp*cp the node size or the reverse" if space.fixed["cp"] != 1 else ""
    ),
)


ATTENTION = Field(
    launched=True,
    meaning="How context ranks share attention: a ring (p2p), a gather, an all-to-all, or one within nodes.",
    seldom="cp",
    fix=Fix(13, str, one_of_names(CONTEXT_KINDS)),
    words=Words(3, lambda each: each.cp_comm if each.cp > 1 and each.cp_comm != "p2p" else ""),
    columns=Columns(sweep=4),
    compared=Compared(9, change=3),
    rule=lambda space: _rule_of_kinds(space) if space.fixed["cp_comm"] != "p2p" else "",
)


class ContextKinds:
    """
    Kinds of context ranks in a space, at bytes of a number and seconds of a FLOP of attention that hides rings.

    Without the links of the cluster, or where attention hides nothing, (2) leaves out nothing. Layers without attention
    have no say in (1) and (2).
    """

    def __init__(
        self,
        space: "StrategySpace",
        model: ModelSpec,
        cluster: ClusterSpec,
        links: Links | None = None,
        element: int = 0,
        core_inverse: float = 0.0,
    ) -> None:
        self._space, self._links = space, links
        self._layers = [part for layer in model.kinds.values() for part in layer.attending]
        self._chosen = any(layer.latent and layer.latent.index_heads for layer in self._layers)
        self._element, self._core_inverse = element, core_inverse
        self._node = max(group.gpus_per_node for group in cluster.nodes)

    def of(self, tp: int, cp: int) -> Iterator[ContextKind]:
        """Kinds at a tensor and a context degree."""
        if cp == 1:
            yield "p2p"
            return
        if self._chosen:
            yield from (kind for kind in self._space.cp_comm if kind == "all_gather")
            return
        listed, fixed = self._space.cp_comm, self._space.fixed.get("cp_comm")
        beside = "p2p" in listed and fixed in (None, "p2p")
        inner = inner_contexts(tp, cp, self._node)
        if "p2p" in listed:
            yield "p2p"
        if "all_gather" in listed and ("p2p" not in listed or fixed == "all_gather"):
            yield "all_gather"
        if "a2a" in listed and self._split(tp, cp) and not (beside and self._hidden(tp, cp, cp)):
            yield "a2a"
        if "a2a+p2p" not in listed or not 1 < inner < cp or not self._split(tp, inner):
            return
        if not (beside and self._hidden(tp, cp, inner)):
            yield "a2a+p2p"

    def _split(self, tp: int, ranks: int) -> bool:
        """Whether an all-to-all among so many ranks leaves each as many heads, and heads of keys."""
        return all(
            layer.heads % (tp * ranks) == 0 and layer.key_value_heads % (tp * ranks) == 0 for layer in self._layers
        )

    def _hidden(self, tp: int, cp: int, ranks: int) -> bool:
        """Whether a ring is never slower than an all-to-all among so many ranks, (2)."""
        if self._links is None or self._core_inverse == 0.0:
            return False
        slow, fast, wait = self._slowest(self._links, tp, cp)
        beside, waits = self._core_inverse / tp / cp / cp, 2 * (cp - cp // ranks) - 2

        def hides(layer: LayerSpec) -> bool:
            keys, tokens = layer.keys_and_values(tp), self._element * (layer.seq // cp)
            moved = tokens * (layer.queries(tp) + layer.output(tp) + keys) * (ranks - 1) / ranks
            return tokens * keys * slow <= layer.attention_flops() * beside and waits * wait <= moved * fast

        return all(hides(layer) for layer in self._layers)

    def _slowest(self, links: Links, tp: int, cp: int) -> tuple[float, float, float]:
        """Seconds per byte of the slowest and the fastest link that a ring may have, and the largest latency, (2)."""
        inverse, latency = 1.0 / links.rate, links.latency
        inside = tp * cp <= int(links.gpus_per_node.min())
        if inside and links.by_node:
            return float(inverse.own.max()), float(inverse.own.min()), float(latency.own.max())
        # Where links were measured by device, that of a device to itself is none.
        own = inverse.own if links.by_node else inverse.present()
        every = np.concatenate([inverse.present(), own])
        wait = max(float(latency.present().max(initial=0.0)), float(latency.own.max()))
        share = 0.0 if inside else links.gpus_per_node / (links.cards * inner_contexts(tp, cp, self._node))
        return max(float(every.max()), float(np.max(share))), float(every.min()), wait
