r"""
How context ranks of a candidate may share attention: ``taut.formulations.degrees`` (4).

Of what suits the heads two kinds are left out where another is at least as fast on any placement, and holds no more:

(1) the gather of all keys beside a ring, which sends the same bytes in as many steps and may go beside attention;
(2) all-to-alls beside a ring that attention hides on every link that it may have: with m bytes of a layer's keys and
    values on a rank, seconds per byte :math:`\beta`, latency :math:`\lambda` and :math:`\alpha` seconds of attention
    beside a step, :math:`\beta m + \lambda \le \alpha` for every layer. Bytes and attention grow with the micro-batch,
    so one sequence decides. The ring's links are within nodes where a replica is in one, and otherwise any of the
    cluster's, with the ring's share of the cards of its nodes.

What is fixed is never left out.
"""

from collections.abc import Iterator

import numpy as np

from taut.data.cluster import ClusterSpec
from taut.data.layers.layer import LayerSpec
from taut.data.model import ModelSpec
from taut.data.stack import ContextKind
from taut.formulations.degrees import inner_contexts
from taut.formulations.links import Links
from taut.formulations.space import StrategySpace


class ContextKinds:
    """
    Kinds of context ranks in a space.

    Parameters
    ----------
    space, model, cluster
        What is planned.
    links
        Links of the cluster, without which (2) leaves out nothing.
    element, core_inverse
        Bytes of a number, and seconds of a FLOP of attention beside which rings go, 0 if beside none.
    """

    def __init__(
        self,
        space: StrategySpace,
        model: ModelSpec,
        cluster: ClusterSpec,
        links: Links | None = None,
        element: int = 0,
        core_inverse: float = 0.0,
    ) -> None:
        self._space, self._layers, self._links = space, list(model.kinds.values()), links
        self._element, self._core_inverse = element, core_inverse
        self._node = max(group.gpus_per_node for group in cluster.nodes)

    def of(self, tp: int, cp: int) -> Iterator[ContextKind]:
        """Kinds at a tensor and a context degree."""
        if cp == 1:
            yield "p2p"
            return
        listed, fixed = self._space.cp_comm, self._space.fixed.get("cp_comm")
        hidden = "p2p" in listed and fixed in (None, "p2p") and self._hidden(tp, cp)
        inner = inner_contexts(tp, cp, self._node)
        if "p2p" in listed:
            yield "p2p"
        if "all_gather" in listed and ("p2p" not in listed or fixed == "all_gather"):
            yield "all_gather"
        if "a2a" in listed and not hidden and self._split(tp, cp):
            yield "a2a"
        if "a2a+p2p" in listed and not hidden and 1 < inner < cp and self._split(tp, inner):
            yield "a2a+p2p"

    def _split(self, tp: int, ranks: int) -> bool:
        """Whether an all-to-all among so many ranks leaves each as many heads, and heads of keys."""
        return all(
            layer.heads % (tp * ranks) == 0 and layer.key_value_heads % (tp * ranks) == 0 for layer in self._layers
        )

    def _hidden(self, tp: int, cp: int) -> bool:
        """Whether attention hides a ring on every link, (2)."""
        if self._links is None or self._core_inverse == 0.0:
            return False
        slow, wait = self._slowest(self._links, tp, cp)

        def step(layer: LayerSpec) -> float:
            return self._element * (layer.seq // cp) * layer.keys_and_values(tp) * slow + wait

        beside = self._core_inverse / tp / cp / cp
        return all(step(layer) <= layer.attention_flops() * beside for layer in self._layers)

    def _slowest(self, links: Links, tp: int, cp: int) -> tuple[float, float]:
        """Seconds per byte and of latency of the slowest link that a ring may have, (2)."""
        inverse, latency = 1.0 / links.rate, links.latency
        inside = tp * cp <= int(links.gpus_per_node.min())
        if inside and links.by_node:
            return float(inverse.own.max()), float(latency.own.max())
        slow = max(float(inverse.present().max(initial=0.0)), float(inverse.own.max()))
        wait = max(float(latency.present().max(initial=0.0)), float(latency.own.max()))
        share = 0.0 if inside else links.gpus_per_node / (links.cards * inner_contexts(tp, cp, self._node))
        return max(slow, float(np.max(share))), wait
