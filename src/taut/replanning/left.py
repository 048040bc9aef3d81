r"""
What is left of a cluster: its nodes by name, without lost ones, with slow ones and spare nodes, and parts of it.

A slow node has devices of a type of its own, whose rows in the cost table are those of the type that it is, divided by
the share of its speed that is left.

Parts of a replanning are sets of nodes with degrees, each with a bound on its seconds a sequence.
With :math:`t_l` the least seconds of layer l (embedding, head) at a tensor degree, a context degree and a micro-batch,
over recompute, expert ranks and the types of device, a plan of pp stages and m micro-batches takes

(1) :math:`T \ge m \sum_l t_l / pp` under every schedule, as some stage computes at least :math:`\sum_l t_l / pp`;
(2) :math:`T \ge \sum_x t_x + (m - 1) \max_x t_x \ge (m + pp - 1) \sum_l t_l / pp` under 1F1B and GPipe, which have no
    chunks. It holds for a part where no other schedule is defined at m.

At given degrees of a pipeline a part has as many replicas as whole nodes hold, and the next smaller sets of nodes where
these allow further expert degrees. It has the largest batch that its replicas
and micro-batches divide (``taut.replanning``).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Floats
from taut.data.cluster import ClusterSpec, NodeSpec
from taut.data.costs import CostTable
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.read import number_or_nan
from taut.data.suggest import adjacent, nearest
from taut.errors import FieldError
from taut.formulations.degrees import divisors
from taut.formulations.links import Links
from taut.formulations.mechanisms.empty_ends import ENDS
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import is_defined
from taut.formulations.space import Candidate
from taut.solver.result import CandidateBound


class Site(NamedTuple):
    """
    A node that is left.

    ``number`` is its number in the plan's cluster, None of a spare node. Nodes of one ``place`` have equal links;
    ``devices`` are its devices' numbers in the plan's cluster. It runs at a ``share`` of its speed.
    """

    number: int | None
    spec: NodeSpec
    place: tuple[str, int]
    devices: tuple[int, ...]
    share: float = 1.0

    @property
    def slow(self) -> bool:
        """Whether it runs at less than its speed."""
        return self.share < 1.0


def node_number(text: str, count: int, names: Sequence[str] = (), option: str = "without") -> int:
    """The number of a node by its name, ``node-17``, ``17`` or a given one; an error has the nearest right name."""
    if text in names:
        return names.index(text)
    known = names or [f"node-{number}" for number in range(count)]
    found = re.fullmatch(r"(?:node-)?(\d{1,9})", text)
    if found and int(found[1]) < count and not names:
        return int(found[1])
    near = nearest(text, known) if found is None or names else f"node-{adjacent(range(count), int(found[1]))}"
    meant = f"; did you mean {near}?" if near else ""
    raise FieldError(option, text, f"is no node of the plan, expected {known[0]} to {known[-1]}{meant}")


def slow_node(text: str, count: int, names: Sequence[str] = ()) -> tuple[int, float]:
    """Number and share of the speed of ``node-4=0.8``."""
    name, equals, share = text.partition("=")
    speed = number_or_nan(share)
    if not equals or not 0.0 < speed < 1.0:
        raise FieldError("slow", text, "expected NODE=SHARE with a share of its speed above 0 and below 1, such as 0.8")
    return node_number(name, count, names, "slow"), speed


def sites_left(
    cluster: ClusterSpec, without: Sequence[int] = (), slow: Mapping[int, float] | None = None, spares: int = 0
) -> list[Site]:
    """The nodes that are left, in the cluster's order, then spare ones, which are like the cluster's first node."""
    slow, rack_of = slow or {}, {node: k for k, rack in enumerate(cluster.network.racks) for node in rack.nodes}
    measured = cluster.bandwidth_matrix is not None or cluster.latency_matrix is not None
    if spares and (measured or rack_of or len(cluster.nodes) > 1):
        raise FieldError("spares", str(spares), "expected 0, as the cluster's nodes or links are of several kinds")
    if both := sorted({*without} & {*slow}):
        raise FieldError("slow", f"node-{both[0]}", "is given with --without too, expected one of the two")
    found, first = list[Site](), 0
    for number, spec in enumerate(cluster.node_list):
        devices, first = tuple(range(first, first + spec.gpus_per_node)), first + spec.gpus_per_node
        if number in without:
            continue
        share = slow.get(number)
        if share is not None:
            device = spec.device.model_copy(update={"name": f"{spec.device.name} at {share:g}"})
            spec = spec.model_copy(update={"device": device})
        spec = spec.model_copy(update={"count": 1})
        where = number if measured else rack_of.get(number, -1)
        found.append(Site(number, spec, (spec.model_dump_json(), where), devices, share or 1.0))
    if not found and not spares:
        raise FieldError("without", f"node-{without[0]}", "leaves no node, expected at least one that is left")
    if spares:
        spec = cluster.nodes[0].model_copy(update={"count": 1})
        found += [Site(None, spec, (spec.model_dump_json(), -1), ()) for _ in range(spares)]
    return found


def cluster_of(cluster: ClusterSpec, sites: Sequence[Site]) -> ClusterSpec:
    """The cluster of some of its nodes, in their order, with their racks and measured links."""
    groups = [
        spec.model_copy(update={"count": len([*same])}) for spec, same in groupby(sites, key=lambda site: site.spec)
    ]
    place = {site.number: k for k, site in enumerate(sites)}
    racks = [
        rack.model_copy(update={"nodes": [place[node] for node in rack.nodes if node in place]})
        for rack in cluster.network.racks
    ]
    network = cluster.network.model_copy(update={"racks": [rack for rack in racks if rack.nodes]})
    few = f"{len(sites)} node{'s' * (len(sites) > 1)}"
    changes: dict[str, Any] = {"name": f"{few} of {cluster.name}", "nodes": groups, "network": network}
    if (rates := cluster.bandwidth_matrix) is not None:
        changes["bandwidth_matrix"] = rates.model_copy(update={"rows": _part(rates.rows, cluster, sites)})
    if (latencies := cluster.latency_matrix) is not None:
        changes["latency_matrix"] = latencies.model_copy(update={"rows_us": _part(latencies.rows_us, cluster, sites)})
    return ClusterSpec.parse(cluster.model_copy(update=changes).model_dump(), "what is left")


def _part(rows: list[list[float]], cluster: ClusterSpec, sites: Sequence[Site]) -> list[list[float]]:
    """Rows and columns of a matrix by node, or by device, that are left."""
    by_node = len(rows) == cluster.num_nodes
    kept = [site.number for site in sites] if by_node else [device for site in sites for device in site.devices]
    return [[rows[i][j] for j in kept if j is not None] for i in kept if i is not None]


def slowed_costs(costs: CostTable, speeds: Mapping[str, tuple[str, float]]) -> CostTable:
    """The table with rows of slow types as well: by their names the type that they are, and the share of its speed."""
    rows, optimizer = [*costs.rows], dict(costs.optimizer_s_per_parameter)
    names = "forward_s", "input_grad_s", "weight_grad_s"
    for name, (device, share) in speeds.items():
        for row in costs.rows:
            if row.device == device:
                slower = {each: getattr(row, each) / share for each in names}
                rows.append(row.model_copy(update={"device": name, **slower}))
        if device in optimizer:
            optimizer[name] = optimizer[device] / share
    told = ", ".join(f"{name} from {device}" for name, (device, _) in speeds.items())
    words = f"{costs.basis}; slow nodes in proportion: {told}" if speeds else costs.basis
    return costs.model_copy(update={"rows": rows, "optimizer_s_per_parameter": optimizer, "basis": words})


def card_rates(links: Links) -> Floats:
    """Bytes per second of all cards of every node (nodes,): as stated, or what its devices send at most at once."""
    rate, found = links.rate, links.cards.copy()
    for node in np.flatnonzero(np.isinf(found)):
        sites, others = np.flatnonzero(links.node_of_site == node), np.flatnonzero(links.node_of_site != node)
        fastest = max((float(rate[a, others].max(initial=0.0)) for a in sites), default=0.0)
        found[node] = fastest * links.gpus_per_node[node] or np.inf
    return found


CLOSED = {"1f1b", "gpipe"}
"""Schedules without chunks."""
Degrees = tuple[int, int, int]
"""Tensor and context degree, and micro-batch."""


@dataclass(slots=True)
class Part:
    """A set of nodes with degrees, which may hold a plan; ``rate`` bounds its seconds a sequence."""

    sites: tuple[Site, ...]
    fixed: dict[str, int | str | bool]
    batch: int
    rate: float
    guess: float = math.inf
    is_open: bool = True
    problem: PlanningProblem | None = None
    known: dict[Candidate, CandidateBound] = field(default_factory=dict)


def site_sets(sites: Sequence[Site]) -> Iterator[tuple[Site, ...]]:
    """Sets of nodes, the largest first: without slow nodes or with all of them, and some others idle."""
    size = Counter(site.place for site in sites)
    others = [site for site in sites if not site.slow]
    # Those that stay idle first are the last ones of the smallest class.
    turn = sorted(range(len(others)), key=lambda k: (size[others[k].place], others[k].place, -k), reverse=True)
    for slow in sorted({False, len(others) < len(sites)}):
        for count in range(len(others), -1, -1):
            kept = {id(others[k]) for k in turn[:count]}
            found = tuple(site for site in sites if id(site) in kept or (site.slow and slow))
            if found:
                yield found


def parts_of(problem: PlanningProblem, sites: Sequence[Site], least_batch: int, rate: float) -> Iterator[Part]:
    """All parts that may take fewer seconds a sequence than ``rate``, of the problem of the plan that ran."""
    least, known = LeastSeconds(problem), set[tuple[bool, int, int, int, int]]()
    for chosen in site_sets(sites):
        devices = sum(site.spec.gpus_per_node for site in chosen)
        if least.of_any / devices >= rate:
            continue
        slow, seconds = any(site.slow for site in chosen), least.of({site.spec.device.name for site in chosen})
        for tp, cp in sorted({(tp, cp) for tp, cp, _ in seconds}):
            for pp in divisors(devices // (tp * cp)) if devices % (tp * cp) == 0 else ():
                more = {(slow, pp, tp, cp, ep) for ep in _expert_degrees(problem, devices // pp)} - known
                if not more:
                    continue
                known |= more
                for part in _parts_at(problem, chosen, (pp, tp, cp, devices // (pp * tp * cp)), seconds):
                    if part.batch >= least_batch and part.rate < rate:
                        yield part


def _expert_degrees(problem: PlanningProblem, devices: int) -> list[int]:
    """Expert degrees that so many devices of a stage may have; 1 without experts."""
    if not problem.model.has_experts:
        return [1]
    fixed = problem.space.fixed.get("ep")
    return [ep for ep in divisors(devices) if ep <= problem.space.max_ep and fixed in (None, ep)]


def _parts_at(
    problem: PlanningProblem,
    sites: tuple[Site, ...],
    degrees: tuple[int, int, int, int],
    seconds: Mapping[Degrees, float],
) -> Iterator[Part]:
    """The parts of some nodes at pipeline, tensor, context and data degree, with bounds (1) and (2)."""
    (pp, tp, cp, dp), space = degrees, problem.space
    if pp > len(problem.model.blocks) + ENDS:
        return
    chunked = [name for name in space.schedules if not is_defined(name, 2, 3)]
    name, of_closed = space.fixed.get("schedule"), set(space.schedules) <= CLOSED | {*chunked}
    for micro_batch in [each for t, c, each in seconds if (t, c) == (tp, cp)]:
        fixed: dict[str, int | str | bool] = {"pp": pp, "tp": tp, "dp": dp, "cp": cp, "micro_batch": micro_batch}
        if any(space.fixed.get(field, value) != value for field, value in fixed.items()):
            continue
        most = space.global_batch // (dp * micro_batch)
        if pp > 1 and isinstance(name, str):
            most = largest_count(name, pp, most)
        defined = [each for each in chunked if is_defined(each, pp, most)]
        ways = [(most, fixed, pp - 1 if of_closed and not defined else 0)]
        if pp > 1 and name is None:
            rest = [each for each in chunked if each not in defined]
            ways += [(largest_count(each, pp, most), {**fixed, "schedule": each}, 0) for each in rest]
        for count, held, filling in ways:
            if count > 0:
                batch = dp * micro_batch * count
                rate = seconds[tp, cp, micro_batch] * (count + filling) / pp / batch
                yield Part(sites, held, batch, rate)


def largest_count(schedule: str, pp: int, most: int) -> int:
    """The largest number of micro-batches up to a number under a schedule, 0 where there is none."""
    return next((m for m in range(most, 0, -1) if is_defined(schedule, pp, m)), 0)


class LeastSeconds:
    """The least seconds of a micro-batch's layers by degrees, the sum in (1), from the cost table of a problem."""

    def __init__(self, problem: PlanningProblem) -> None:
        self._problem = problem
        kinds = {row.kind for row in problem.costs.rows}
        model = problem.model
        self._wanted = Counter(layer.kind for layer in model.blocks)
        self._wanted.update(kind for kind in (EMBEDDING, HEAD) if model.vocab and kind in kinds)
        self._known: dict[frozenset[str], dict[tuple[int, int, int], float]] = {}

    def of(self, types: Iterable[str]) -> dict[tuple[int, int, int], float]:
        """Seconds by tensor and context degree and micro-batch, on the fastest of some types of device."""
        names = frozenset(types)
        if names not in self._known:
            least: dict[tuple[int, int, int], dict[str, float]] = {}
            for key, cost in self._problem.costs.by_key.items():
                if key.device in names and key.kind in self._wanted:
                    at = least.setdefault((key.tp, key.cp, key.micro_batch), {})
                    at[key.kind] = min(at.get(key.kind, math.inf), cost.seconds)
            self._known[names] = {
                degrees: sum(count * at[kind] for kind, count in self._wanted.items())
                for degrees, at in least.items()
                if at.keys() >= self._wanted.keys()
            }
        return self._known[names]

    @cached_property
    def of_any(self) -> float:
        """Seconds of one device for a sequence, at the best degrees."""
        return min((s * tp * cp / b for (tp, cp, b), s in self.of(self._problem.cluster.devices).items()), default=0.0)
