r"""
A plan on what is left: without some nodes, with some nodes slower, or with spare nodes in their place.

A plan of B sequences a step runs on N nodes. Some nodes are lost, others run at a share f of their speed, and spare
nodes may stand by. A *slow* node has devices of a type of its own, whose layers and optimizer take 1 / f as long.

(1) A plan on what is left uses whole nodes. It need not use all: 127 nodes have few divisors, 126 have many. At given
    degrees of a pipeline it has as many replicas as the nodes hold.
(2) Its batch is the largest that its replicas and micro-batches divide, at most B, and at least (1 - s) B for a share
    s. Plans are compared by seconds a sequence, T / B'.

Two answers. *Kept*: no device that is left changes the weights that it holds. The strategy is the plan's, with as many
replicas as are left. With :math:`A_x` the blocks of stage x that are left and E those of empty spare nodes,

(3) the replicas are the largest dp' with :math:`\sum_x \max(0, dp' - A_x) \le E`, since any block of stage 0 may work
    with any of stage 1, whichever replicas they were in. Weights go to spare nodes alone.

*Best*: everything may move. A part is a set of nodes with degrees pp, tp, cp, dp and micro-batch b, thus m
micro-batches and a batch :math:`B' = dp\, b\, m`. With :math:`t_l` the least seconds of layer l
(embedding, head) at these degrees, over recompute, expert ranks and the types of device,

(4) a stage x computes :math:`t_x`, and :math:`\sum_x t_x \ge \sum_l t_l`, so some stage has :math:`t_x \ge
    \sum_l t_l / pp` and :math:`T \ge m \sum_l t_l / pp` under every schedule. Without chunks, 1F1B and GPipe take
    :math:`T \ge \sum_x t_x + (m - 1) \max_x t_x \ge (m + pp - 1) \sum_l t_l / pp`;
(5) parts whose bound (4) a sequence is no less than the best plan's seconds a sequence hold no better plan. Of the
    others the one with the least bound is searched (``taut.solver.search``), which stops at the best plan so far, and
    its bound replaces (4). The bound over all parts is the least of theirs, at any moment.

Of nodes of one class any are alike, so (5) holds for every set of nodes where all nodes left are alike but for slow
ones. Elsewhere (racks, measured links) nodes are left idle in one order: those of the smallest class first.

(6) Moving (``taut.solver.moving``) takes between :math:`S^-` and :math:`S^+` seconds. With seconds a sequence
    :math:`u` kept and :math:`v < u` at best, the best plan is ahead after :math:`(S_v^+ - S_u^-) / (u - v)` sequences
    at the latest.
"""

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import groupby
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.cluster import ClusterSpec, LatencySpec, MatrixSpec, NetworkSpec, NodeSpec, RackSpec
from taut.data.costs import CostTable
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.suggest import adjacent, nearest
from taut.data.units import GIGABIT
from taut.errors import ExtrapolationWarning, FieldError, InfeasibleError, NothingFoundError
from taut.formulations.degrees import divisors
from taut.formulations.links import Links
from taut.formulations.mechanisms.empty_ends import ENDS
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.plan_orders import is_defined
from taut.formulations.space import FIXES, Candidate, fixable_value
from taut.formulations.strategy import Strategy
from taut.planning.plan import Plan
from taut.solver.branch_and_bound.progress import Listener, Progress
from taut.solver.certificate.document import by_replica, devices_of, problem_of, strategy_of
from taut.solver.certificate.write import plan_document
from taut.solver.ladder.ladder import Ladder
from taut.solver.moving import (
    MOST_ASSIGNED,
    Held,
    Moved,
    exchanged_nodes,
    held_by_workers,
    lacking_bytes,
    least_total,
    price_move,
    unit_bytes,
)
from taut.solver.result import CandidateBound, Incumbent, Limits, SearchResult, Source, State, relative_gap
from taut.solver.search.conclusion import with_incumbent
from taut.solver.search.search import search
from taut.solver.simple_plans import priced
from taut.words import percent, text_table

USUAL_SHARE = 0.05
"""Share of the batch that a plan may leave out unless it is said."""
USUAL_LIMIT = 10.0
"""Seconds that somebody waits whose training stands still."""
SEARCHED = 0.75
"""Share of the time limit after which searches end: the certificates of both plans take the rest."""
GUIDED = 6
"""Parts that are searched first, by what the plan's own certificate says of their degrees."""


class Site(NamedTuple):
    """
    A node that is left.

    ``number`` is its number in the plan's cluster, None of a spare node. Nodes of one ``place`` have equal links;
    ``devices`` are its devices' numbers in the plan's cluster.
    """

    number: int | None
    spec: NodeSpec
    place: tuple[Any, ...]
    devices: tuple[int, ...]
    slow: bool


def node_number(text: str, count: int, names: Sequence[str] = (), option: str = "without") -> int:
    """
    The number of a node by its name, ``node-17``, ``17``, or one of the given names.

    Raises ``FieldError`` with the nearest right name.
    """
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
    try:
        speed = float(share)
    except ValueError:
        speed = math.nan
    if not equals or not 0.0 < speed < 1.0:
        raise FieldError("slow", text, "expected NODE=SHARE with a share of its speed above 0 and below 1, such as 0.8")
    return node_number(name, count, names, "slow"), speed


def sites_left(
    cluster: ClusterSpec, without: Sequence[int] = (), slow: Mapping[int, float] | None = None, spares: int = 0
) -> list[Site]:
    """
    The nodes that are left, in the cluster's order, then spare ones, which are like the cluster's first node.

    Raises ``FieldError`` if no node is left, a node is lost and slow, or spare nodes have no known links.
    """
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
        place = spec.device.name, spec.gpus_per_node, spec.nic_bandwidth_gbps, spec.intra_bandwidth_gbps
        where = number if measured else rack_of.get(number, -1)
        found.append(Site(number, spec.model_copy(update={"count": 1}), (*place, where), devices, share is not None))
    if not found and not spares:
        raise FieldError("without", f"node-{without[0]}", "leaves no node, expected at least one that is left")
    if spares:
        spec = cluster.nodes[0].model_copy(update={"count": 1})
        place = (spec.device.name, spec.gpus_per_node, spec.nic_bandwidth_gbps, spec.intra_bandwidth_gbps)
        found += [Site(None, spec, (*place, -1), (), False) for _ in range(spares)]
    return found


def cluster_of(cluster: ClusterSpec, sites: Sequence[Site]) -> ClusterSpec:
    """The cluster of some of its nodes, in their order, with their racks and measured links."""
    groups = [
        spec.model_copy(update={"count": len([*same])}) for spec, same in groupby(sites, key=lambda site: site.spec)
    ]
    numbers = [site.number for site in sites]
    place = {number: k for k, number in enumerate(numbers) if number is not None}
    racks = [
        RackSpec(**rack.model_dump() | {"nodes": [place[node] for node in rack.nodes if node in place]})
        for rack in cluster.network.racks
    ]
    network = NetworkSpec(**cluster.network.model_dump() | {"racks": [rack for rack in racks if rack.nodes]})
    few = f"{len(sites)} node{'s' * (len(sites) > 1)}"
    changes: dict[str, Any] = {"name": f"{few} of {cluster.name}", "nodes": groups, "network": network}
    if (rates := cluster.bandwidth_matrix) is not None:
        changes["bandwidth_matrix"] = MatrixSpec(unit=rates.unit, rows=_part(rates.rows, cluster, sites))
    if (latencies := cluster.latency_matrix) is not None:
        changes["latency_matrix"] = LatencySpec(rows_us=_part(latencies.rows_us, cluster, sites))
    return ClusterSpec.parse({**cluster.model_dump(), **{k: _plain(v) for k, v in changes.items()}}, "what is left")


def _plain(value: Any) -> Any:
    """Plain values of specs."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.model_dump() if hasattr(value, "model_dump") else value


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


@dataclass(slots=True)
class Part:
    """A set of nodes with degrees: what may be searched, (4) and (5); ``rate`` bounds seconds a sequence."""

    sites: tuple[Site, ...]
    fixed: dict[str, int | str | bool]
    batch: int
    rate: float
    guess: float = math.inf
    is_open: bool = True
    problem: PlanningProblem | None = None
    known: dict[Candidate, CandidateBound] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """
    A plan on what is left.

    ``nodes`` are the names of its cluster's nodes in order; ``rate`` and ``rate_bound`` seconds a sequence;
    ``moved`` is what moving to it costs, None above ``MOST_ASSIGNED`` devices.
    """

    plan: Plan
    nodes: tuple[str, ...]
    batch: int
    rate: float
    rate_bound: float
    moved: Moved | None

    @property
    def gap(self) -> float | None:
        """Relative distance of the seconds a sequence from the bound."""
        return relative_gap(self.rate, self.rate_bound)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, without the plan."""
        return {
            "nodes": list(self.nodes),
            "global_batch": self.batch,
            "step_time_s": self.plan.step_time_s,
            "seconds_a_sequence": self.rate,
            "lower_bound_a_sequence_s": self.rate_bound,
            "gap": self.gap,
            "moved": None if self.moved is None else asdict(self.moved),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Replanned:
    """
    The two answers beside the plan that ran; ``kept`` is None where ``why_none`` says why.

    ``parts`` and ``searched`` count what was bounded and searched for the best plan.
    """

    before: Plan
    lost: tuple[str, ...]
    slow: tuple[str, ...]
    kept: Answer | None
    why_none: str
    best: Answer
    parts: int
    searched: int

    @property
    def batch(self) -> int:
        """Sequences a step of the plan that ran."""
        return int(self.before.typed.certificate.space["global_batch"])

    @property
    def ahead_after(self) -> float | None:
        """Steps after which the best plan is ahead of the kept one at the latest, (6); None where it is not faster."""
        kept, best = self.kept, self.best
        if kept is None or kept.moved is None or best.moved is None or not best.rate < kept.rate:
            return None
        later = max(best.moved.most_s - kept.moved.most_s, 0.0)
        return later / (kept.rate - best.rate) / self.batch

    def as_dict(self) -> dict[str, Any]:
        """Plain values, without the plans."""
        return {
            "before": {"step_time_s": self.before.step_time_s, "global_batch": self.batch},
            "without": list(self.lost),
            "slow": list(self.slow),
            "kept": None if self.kept is None else self.kept.as_dict(),
            "why_none_kept": self.why_none or None,
            "best": self.best.as_dict(),
            "ahead_after_steps": self.ahead_after,
            "parts": self.parts,
            "searched": self.searched,
        }

    def __str__(self) -> str:
        """Both answers as a table, what moves, and when moving pays."""
        usual = self.before.step_time_s
        heads = ("", "nodes", "batch", "step s", f"s a {self.batch}", "bound", "gap", "slower")
        lines: list[tuple[str, ...]] = [heads]
        count = str(self.before.cluster_spec.num_nodes)
        stated = self.before.lower_bound_s
        own = "-" if stated is None else f"{stated:.6g}"
        lines.append(("before", count, str(self.batch), *[f"{usual:.6g}"] * 2, own, percent(self.before.gap), ""))
        answers = [("no weights moved", self.kept), ("best", self.best)]
        for name, each in answers:
            if each is None:
                lines.append((name, *["-"] * 7))
                continue
            scaled = each.rate * self.batch
            figures = f"{each.plan.step_time_s:.6g}", f"{scaled:.6g}", f"{each.rate_bound * self.batch:.6g}"
            more = f"{100 * (scaled / usual - 1):+.2f} %"
            lines.append((name, str(len(each.nodes)), str(each.batch), *figures, percent(each.gap), more))
        moves: list[tuple[str, ...]] = [
            ("moving to", "weights GB", "states GB", "at least GB", "inside", "between", "checkpoint", "seconds")
        ]
        for name, each in answers:
            if each is not None and (m := each.moved) is not None:
                least = "-" if m.least is None else _gb(m.least)
                figures_gb = _gb(m.weights), _gb(m.states), least, _gb(m.inside), _gb(m.between), _gb(m.checkpoint)
                moves.append((name, *figures_gb, f"{m.least_s:.3g} to {m.most_s:.3g}"))
        told = [f"without     {', '.join(self.lost)}"] if self.lost else []
        told += [f"slow        {', '.join(self.slow)}"] if self.slow else []
        plans = [(name, each) for name, each in answers if each is not None]
        text = [*told, *(f"{name:<17} {_named(each)}" for name, each in plans)]
        text += [f"no weights moved  none: {self.why_none}"] if self.kept is None else []
        return "\n".join([*text, "", text_table(lines), "", text_table(moves), "", self._pays(), *self._proofs()])

    def _pays(self) -> str:
        """When moving pays, in a line."""
        if self.kept is None:
            return "moving      no plan keeps the weights where they are"
        if self.best.rate >= self.kept.rate:
            return "moving      does not pay: no better plan was found"
        gain = 1 - self.best.rate / self.kept.rate
        after = self.ahead_after
        steps = (
            "" if after is None else f", ahead after {max(math.ceil(after), 1)} step{'s' * (after > 1)} at the latest"
        )
        return f"moving      gains {percent(gain)} of every step{steps}, restarts aside"

    def _proofs(self) -> list[str]:
        """What the bounds are about."""
        return [
            f"bounds      no weights moved: every placement of this strategy on {len(self.kept.nodes)} nodes"
            if self.kept
            else "bounds",
            f"            best: {self.parts} sets of nodes and degrees, {self.searched} of them searched",
        ]


def _gb(count: float) -> str:
    """Bytes in GB, with three figures."""
    return f"{count / 1e9:.3g}"


def _named(answer: Answer) -> str:
    """The strategy of an answer in a line."""
    return repr(answer.plan).removeprefix("<Plan ").removesuffix(">").partition(", ")[2]


def replan(
    plan: Plan,
    *,
    without: Sequence[str] = (),
    slow: Sequence[str] = (),
    spares: int = 0,
    batch_share: float = USUAL_SHARE,
    names: Sequence[str] = (),
    time_limit: float | None = USUAL_LIMIT,
    gap: float = 1e-3,
    seed: int = 0,
    workers: int = 2,
    progress: Listener | None = None,
) -> Replanned:
    """
    Plan on what is left of a plan's cluster, with and without moving weights.

    Parameters
    ----------
    plan
        The plan that ran, of one degree for all stages.
    without
        Names of the nodes that are lost, such as ``node-17``.
    slow
        Nodes with the share of their speed that is left, such as ``node-4=0.8``.
    spares
        Empty nodes that may take part, like the cluster's.
    batch_share
        Share of the batch that a plan may leave out, (2).
    names
        Names of the cluster's nodes in order, ``node-0`` and so on without any.
    time_limit, gap, seed, workers, progress
        As of ``taut.plan``; the time limit holds for both answers together.

    Returns
    -------
    Replanned
        The best plan that keeps all weights in place, and the best of all, each with bound and what moving costs.

    Raises
    ------
    DataError
        If an input is wrong; a ``FieldError`` names the argument.
    InfeasibleError
        If no plan on what is left fits the memory.
    NothingFoundError
        If the limit came before the first plan.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100:4", global_batch=96, fix={"pp": 1, "tp": 1, "micro_batch": 1})
    >>> found = taut.replan(plan, without=["node-3"])
    >>> found.kept.plan.strategy.dp, found.kept.batch, found.kept.moved.weights
    (24, 96, 0.0)
    """
    cluster = plan.cluster_spec
    if not (without or slow or spares):
        raise FieldError("without", None, "missing, expected a node that is lost, or one of --slow and --spares")
    if not 0.0 <= batch_share < 1.0:
        raise FieldError("batch_share", f"{batch_share:g}", "expected a share from 0 to 1, such as 0.05")
    if names and len(names) != cluster.num_nodes:
        reason = f"has {len(names)} names, expected {cluster.num_nodes}, one a node of the cluster"
        raise FieldError("hosts", None, reason)
    lost = [node_number(each, cluster.num_nodes, names) for each in without]
    speeds = dict(slow_node(each, cluster.num_nodes, names) for each in slow)
    for option, given, known in (("without", without, set(lost)), ("slow", slow, set(speeds))):
        if len(known) < len(given):
            raise FieldError(option, ", ".join(given), "names a node twice, expected once")
    sites = sites_left(cluster, lost, speeds, spares)
    named = [*names] or [f"node-{k}" for k in range(cluster.num_nodes)]
    with warnings.catch_warnings():
        # Micro-batches of other batches lie between those of the plan's table.
        warnings.simplefilter("ignore", ExtrapolationWarning)
        asked = _Replanning(
            plan,
            sites,
            batch_share,
            named,
            Limits(time_limit=time_limit, gap=gap, seed=seed, workers=workers),
            progress,
        )
        kept, why_none = asked.kept()
        best = asked.best(kept)
    return Replanned(
        before=plan,
        lost=tuple(named[k] for k in lost),
        slow=tuple(f"{named[k]} at {share:g}" for k, share in speeds.items()),
        kept=kept,
        why_none=why_none,
        best=best,
        parts=asked.num_parts,
        searched=asked.num_searched,
    )


class _Replanning:
    """
    One replanning: the plan that ran, what is left, and the limits.

    Devices that are left are numbered site by site; ``_site`` (P,) is the site of each, and ``_old`` (P,) its number in
    the plan's cluster, -1 for those of spare nodes.
    """

    def __init__(
        self,
        plan: Plan,
        sites: Sequence[Site],
        batch_share: float,
        names: Sequence[str],
        limits: Limits,
        progress: Listener | None,
    ) -> None:
        self._began, self._plan, self._sites = perf_counter(), plan, tuple(sites)
        self._names, self._limits, self._progress = names, limits, progress
        document, source = plan.typed, plan.source
        self._given, self._strategy = problem_of(document, source), strategy_of(document.strategy, source)
        self._devices, self._batch = devices_of(document, source), self._given.space.global_batch
        self._least_batch = math.ceil((1 - batch_share) * self._batch - 1e-9)
        self._base, self._bases = self._slowed(), dict[tuple[str, ...], PlanningProblem]()
        sizes = [site.spec.gpus_per_node for site in self._sites]
        self._site = np.repeat(np.arange(len(sizes)), sizes)
        self._old = np.concatenate([np.array(site.devices or (-1,) * site.spec.gpus_per_node) for site in self._sites])
        self._rate, self._open, self.num_parts, self.num_searched = math.inf, list[Part](), 0, 0
        self._best: tuple[Part, PlanningProblem, SearchResult] | None = None

    def _slowed(self) -> PlanningProblem:
        """The problem that ran, with the costs of slow nodes."""
        speeds = {}
        for site in self._sites:
            if site.slow:
                device, _, share = site.spec.device.name.rpartition(" at ")
                speeds[site.spec.device.name] = device, float(share)
        base = replace(self._given, space=self._given.space.model_copy(update={"orders": []}))
        return base.with_costs(slowed_costs(base.costs, speeds)) if speeds else base

    def _left(self) -> float | None:
        """Seconds that are left."""
        limit = self._limits.time_limit
        return None if limit is None else max(SEARCHED * limit - (perf_counter() - self._began), LEAST_LIMIT)

    def _problem(self, sites: Sequence[Site], batch: int, fixed: Mapping[str, Any], **space: Any) -> PlanningProblem:
        """The problem on some nodes, of one batch, with some values fixed."""
        changed = {"global_batch": batch, "fixed": {**self._base.space.fixed, **fixed}, **space}
        # Problems share their tables, which are of the types of device in the cluster.
        types = tuple(dict.fromkeys(site.spec.device.name for site in sites))
        if types not in self._bases:
            self._bases[types] = self._base.with_costs(self._base.costs)
        return replace(
            self._bases[types],
            cluster=cluster_of(self._given.cluster, sites),
            space=self._base.space.model_copy(update=changed),
        )

    # The plan that keeps its weights, (3).

    def kept(self) -> tuple[Answer | None, str]:
        """The best plan that moves no weights between devices, with or without the slow nodes; or why there is none."""
        found, whys = list[Answer](), list[str]()
        slow = np.array([site.slow for site in self._sites])
        for idle in sorted({False, bool(slow.any())}):
            try:
                found.append(self._kept_on(~slow if idle else np.ones_like(slow)))
            except _NoneKeptError as none:
                whys.append(str(none))
        if not found:
            return None, whys[0]
        best = min(found, key=lambda answer: answer.rate)
        return replace(best, rate_bound=min(answer.rate_bound for answer in found)), ""

    def _kept_on(self, used: Flags) -> Answer:
        """The plan that keeps its weights on some of the sites (sites,)."""
        chosen = self._strategy.candidate
        if chosen.uneven_batch:
            raise _NoneKeptError("its replicas run different numbers of micro-batches")
        places = self._regrouped(used[self._site])
        dp = places.shape[1] * chosen.width // (chosen.tp * chosen.cp)
        m = largest_count(chosen.schedule, chosen.pp, self._batch // (dp * chosen.micro_batch))
        batch = dp * chosen.micro_batch * m
        if batch < self._least_batch:
            less = f"{percent(1 - batch / self._batch)} less than {self._batch}"
            raise _NoneKeptError(f"{dp} replicas divide a batch of {batch} at most, {less}")
        sites, order = self._whole(places)
        candidate = replace(chosen, dp=dp, num_micro_batches=m, order=())
        if candidate.dp_cp == 1:
            candidate = replace(candidate, zero=0, dp_shard=0)
        fixed = {name: value for name in FIXES if (value := fixable_value(candidate, name)) is not None}
        if not self._base.model.has_experts:
            fixed = {name: value for name, value in fixed.items() if name not in ("ep", "etp")}
        kinds = [kind for kind in self._base.space.recompute if kind in self._strategy.recompute]
        problem = self._problem(sites, batch, {**fixed, "dp": dp}, recompute=kinds)
        if candidate not in problem.candidates:
            raise _NoneKeptError(f"{dp} replicas are outside of the plan's space")
        number = np.full(len(self._site), -1)
        number[order] = np.arange(len(order))
        strategy = replace(self._strategy, candidate=candidate)
        incumbent = priced(problem, strategy, number[places])
        if incumbent is None:
            raise _NoneKeptError(f"its stages do not fit the memory with {dp} replicas")
        result = search(problem, replace(self._limits, time_limit=self._left()), self._progress, incumbent=incumbent)
        lower = min((bound.lower_bound for bound in result.bounds), default=0.0)
        self._rate = min(self._rate, incumbent.seconds / batch)
        return self._answer(problem, as_result(result, incumbent, lower), sites, order, lower / batch, keeps=True)

    def _regrouped(self, used: Flags) -> Ints:
        """Devices (pp, pipelines, width) of as many pipelines as are left, (3); ``used`` (P,)."""
        chosen, place = self._strategy.candidate, {int(old): k for k, old in enumerate(self._old) if used[k]}
        place.pop(-1, None)
        blocks = [[[place.get(d, -1) for d in block] for block in stage] for stage in self._devices.tolist()]
        mapped = np.array(blocks)
        alive: Flags = np.all(mapped >= 0, axis=2)
        empty = np.flatnonzero(used & (self._old < 0))
        room = len(empty) // chosen.width
        count = alive.sum(axis=1)
        most = [p for p in range(1, mapped.shape[1] + 1) if np.maximum(p - count, 0).sum() <= room]
        if not most:
            raise _NoneKeptError(f"no device that is left holds stage {int(count.argmin())}")
        # Whole pipelines first, so that as few as possible are made of several.
        turn = np.lexsort((np.arange(mapped.shape[1]), ~alive.all(axis=0)))
        spare = iter(empty[: room * chosen.width].reshape(room, chosen.width))
        found = [[mapped[x, z] for z in turn if alive[x, z]][: most[-1]] for x in range(chosen.pp)]
        return np.array([[*stage, *(next(spare) for _ in range(most[-1] - len(stage)))] for stage in found])

    def _whole(self, places: Ints) -> tuple[list[Site], Ints]:
        """The sites that some devices are on, each with these devices alone, and the devices in their order."""
        order = np.unique(places)
        sites = []
        for k in np.unique(self._site[order]):
            site, here = self._sites[k], order[self._site[order] == k]
            if len(here) < site.spec.gpus_per_node:
                fewer = {"gpus_per_node": len(here), "gpus_per_machine": None}
                devices = tuple(int(each) for each in self._old[here] if each >= 0)
                site = site._replace(spec=site.spec.model_copy(update=fewer), devices=devices)
            sites.append(site)
        return sites, order

    # The best plan, (4) and (5).

    def best(self, kept: Answer | None) -> Answer:
        """The best plan of all, which is the kept one where none is better."""
        self._open = parts = self._guided([*self._parts()])
        for part in sorted(parts, key=lambda part: part.guess)[:GUIDED]:
            if math.isinf(part.guess) or self._is_over():
                break
            self._search(part)
        while not self._is_over():
            left = [part for part in parts if part.is_open and part.rate < self._rate * (1 - self._limits.gap)]
            if not left:
                break
            part = min(left, key=lambda part: part.rate)
            if part.problem is None:
                self._relax(part)
            else:
                self._search(part)
        bound = min(self._rate, *(part.rate for part in parts)) if parts else self._rate
        self.num_parts = len(parts)
        if self._best is None:
            if kept is None:
                raise self._nothing(parts)
            return replace(kept, rate_bound=min(bound, kept.rate_bound))
        part, problem, result = self._best
        assert result.incumbent is not None
        sites, order, devices = self._arranged(part.sites, result.incumbent)
        problem = replace(problem, cluster=cluster_of(self._given.cluster, sites))
        strategy = result.incumbent.strategy
        again = priced(problem, strategy, devices)
        assert again is not None
        if (closer := self._closer(strategy, order)) is not None:
            other = priced(problem, strategy, closer)
            again = other if other is not None and other.seconds <= again.seconds * (1 + self._limits.gap) else again
        result = as_result(result, again, min(result.lower_bound, again.seconds))
        return self._answer(problem, result, sites, order, bound)

    def _is_over(self) -> bool:
        left = self._left()
        return left is not None and left <= LEAST_LIMIT

    def _nothing(self, parts: Sequence[Part]) -> InfeasibleError | NothingFoundError:
        """Why there is no plan at all."""
        if all(math.isinf(part.rate) for part in parts):
            return InfeasibleError(
                f"no plan on what is left fits, with a batch of {self._least_batch} to {self._batch} sequences"
            )
        least = min(part.rate for part in parts) * self._batch
        return NothingFoundError(f"no plan found within the limit; none takes less than {least:.6g} s", least)

    def _parts(self) -> Iterator[Part]:
        """All parts that may hold a better plan than is known, (4)."""
        least, known = LeastSeconds(self._base), set[tuple[bool, int, int, int]]()
        for sites in self._site_sets():
            devices = sum(site.spec.gpus_per_node for site in sites)
            if least.of_any / devices >= self._rate:
                continue
            slow, types = any(site.slow for site in sites), {site.spec.device.name for site in sites}
            for tp, cp in sorted({(tp, cp) for tp, cp, _ in least.degrees}):
                for pp in divisors(devices // (tp * cp)) if devices % (tp * cp) == 0 else ():
                    if (slow, pp, tp, cp) not in known:
                        known.add((slow, pp, tp, cp))
                        yield from self._parts_at(sites, (pp, tp, cp, devices // (pp * tp * cp)), least.of(types))

    def _site_sets(self) -> Iterator[tuple[Site, ...]]:
        """Sets of nodes, the largest first: with all slow nodes or without, and some others idle."""
        size = Counter(site.place for site in self._sites)
        others = [site for site in self._sites if not site.slow]
        # Those that stay idle first are the last ones of the smallest class.
        turn = sorted(range(len(others)), key=lambda k: (size[others[k].place], others[k].place, -k), reverse=True)
        for slow in {False, any(site.slow for site in self._sites)}:
            for count in range(len(others), -1, -1):
                kept = {id(others[k]) for k in turn[:count]}
                found = tuple(site for site in self._sites if id(site) in kept or (site.slow and slow))
                if found:
                    yield found

    def _parts_at(
        self, sites: tuple[Site, ...], degrees: tuple[int, int, int, int], least: Mapping[Any, float]
    ) -> Iterator[Part]:
        """The parts of some nodes at pipeline, tensor, context and data degree."""
        pp, tp, cp, dp = degrees
        space, layers = self._base.space, len(self._base.model.blocks)
        chunked = [name for name in space.schedules if not is_defined(name, 2, 3)]
        for micro_batch in [each for t, c, each in least if (t, c) == (tp, cp)]:
            m = self._batch // (dp * micro_batch)
            if pp > layers + ENDS or m == 0:
                continue
            fixed: dict[str, int | str | bool] = {"pp": pp, "tp": tp, "dp": dp, "cp": cp, "micro_batch": micro_batch}
            if any(space.fixed.get(name, value) != value for name, value in fixed.items()):
                continue
            plain = all(is_defined(name, pp, m) for name in chunked)
            ways = [(m, fixed, 0 if plain and chunked and pp > 1 else pp - 1)]
            if not plain and "schedule" not in space.fixed:
                ways += [(largest_count(n, pp, m), {**fixed, "schedule": n}, 0) for n in chunked]
            for count, held, filling in ways:
                batch = dp * micro_batch * count
                filled = filling if set(space.schedules) <= CLOSED | {*chunked} else 0
                rate = least[tp, cp, micro_batch] * (count + filled) / pp / batch if batch else math.inf
                if batch >= self._least_batch and rate < self._rate:
                    yield Part(sites, held, batch, rate)

    def _guided(self, parts: list[Part]) -> list[Part]:
        """The parts with a guess of their seconds a sequence, from the bounds of the plan that ran."""
        known: dict[tuple[object, ...], float] = {}
        for entry in self._plan.typed.certificate.candidates:
            degrees, bound = entry.strategy, entry.lower_bound_s
            key = tuple(degrees.get(name, 1) for name in ("pp", "tp", "cp", "micro_batch"))
            if bound is not None and entry.source not in FIRST_SOURCES:
                known[key] = min(known.get(key, math.inf), bound)
        whole = self._given.cluster.num_devices / self._batch
        for part in parts:
            key = tuple(part.fixed[name] for name in ("pp", "tp", "cp", "micro_batch"))
            devices = sum(site.spec.gpus_per_node for site in part.sites)
            part.guess = known.get(key, math.inf) * whole / devices
        return parts

    def _relax(self, part: Part) -> None:
        """Raise the bound of a part to the least ``relaxation`` of its candidates that may fit the memory."""
        part.problem = problem = self._problem(part.sites, part.batch, part.fixed)
        ladder, least = Ladder(problem), math.inf
        ladder.relax(problem.candidates)
        part.known = {
            candidate: CandidateBound(candidate=candidate, lower_bound=seconds, source=Source.RELAXATION)
            for candidate, seconds in ladder.relaxations.items()
        }
        for candidate, seconds in sorted(ladder.relaxations.items(), key=lambda item: item[1]):
            by_order = candidate.is_order_priced
            missing = ladder.missing_of_chunks(candidate) if by_order else ladder.missing(candidate)[0]
            if seconds >= self._rate * part.batch or missing <= 0:
                least = seconds
                break
        part.rate = max(part.rate, least / part.batch)
        part.is_open = part.rate < self._rate

    def _search(self, part: Part) -> None:
        """Search a part, up to the best plan so far, (5)."""
        part.is_open, self.num_searched = False, self.num_searched + 1
        problem = part.problem or self._problem(part.sites, part.batch, part.fixed)
        if not problem.candidates:
            part.rate = math.inf
            return
        known, left = None, self._left()
        if math.isfinite(self._rate):
            # Nothing but its seconds is read; the search returns it where no plan is faster.
            known = Incumbent(strategy=self._strategy, devices=self._devices, seconds=self._rate * part.batch)
        limits = replace(self._limits, time_limit=left)
        found = search(problem, limits, incumbent=known, known=part.known)
        part.rate = max(part.rate, found.lower_bound / part.batch)
        if found.incumbent is not None and found.incumbent is not known:
            self._rate, self._best = found.incumbent.seconds / part.batch, (part, problem, found)
        elif all(math.isinf(bound.lower_bound) for bound in found.bounds):
            part.rate = math.inf
        if self._progress is not None:
            degrees = " ".join(f"{name}={value}" for name, value in part.fixed.items())
            words = f"{len(part.sites)} nodes, {degrees}"
            bound = min(self._rate, *(each.rate for each in self._open)) * self._batch
            self._progress(Progress(perf_counter() - self._began, self._rate * self._batch, bound, words))

    def _arranged(self, sites: Sequence[Site], incumbent: Incumbent) -> tuple[list[Site], Ints, Ints]:
        """Sites of the plan with the devices in their order and places, by the best exchange (``moving`` (5))."""
        index = {id(site): k for k, site in enumerate(self._sites)}
        chosen = np.array([index[id(site)] for site in sites])
        of_site = [np.flatnonzero(self._site == k) for k in range(len(self._sites))]
        order = np.concatenate([of_site[k] for k in chosen])
        if self._given.cluster.measured_by_device or len(self._site) > MOST_ASSIGNED:
            return [*sites], order, incumbent.devices
        worker = np.argsort(by_replica(incumbent.strategy.candidate, incumbent.devices).reshape(-1))
        wanted, present = held_by_workers(incumbent.strategy).at(worker), self._present
        costs = lacking_bytes(self._sizes, wanted, present)
        ends = np.cumsum([len(of_site[k]) for k in chosen])
        new = [np.arange(end - len(of_site[k]), end) for k, end in zip(chosen, ends, strict=True)]
        classes = {place: k for k, place in enumerate(dict.fromkeys(site.place for site in self._sites))}
        kind = np.array([classes[site.place] for site in self._sites])
        column = exchanged_nodes(costs, new, kind[chosen], of_site, kind)
        # Nodes of a class stand in the order of their names.
        taken = np.array([self._site[column[rows[0]]] for rows in new])
        for name in np.unique(kind[chosen]):
            at = kind[chosen] == name
            taken[at] = np.sort(taken[at])
        order = np.concatenate([of_site[k] for k in taken])
        number = np.full(len(self._site), -1)
        number[order] = np.arange(len(order))
        return [self._sites[k] for k in taken], order, number[column[incumbent.devices]]

    def _closer(self, strategy: Strategy, order: Ints) -> Ints | None:
        """
        Devices of every block, (pp, pipelines, width), by the least-cost assignment of blocks to slots of a node.

        A slot is as many devices of a node in a row. None where a block is wider than a node or devices are too many.
        """
        chosen = strategy.candidate
        sizes = {len(np.flatnonzero(self._site == k)) for k in np.unique(self._site[order])}
        if any(size % chosen.width for size in sizes) or len(self._site) > MOST_ASSIGNED:
            return None
        costs = lacking_bytes(self._sizes, held_by_workers(strategy), self._present.at(order))
        shape = chosen.pp, chosen.pipelines, chosen.width
        blocks = np.arange(len(costs)).reshape(-1, chosen.width)
        alike = np.zeros(len(blocks), np.int64)
        return exchanged_nodes(costs, [*blocks], alike, [*blocks], alike).reshape(shape)

    @cached_property
    def _present(self) -> Held:
        """What every device that is left held."""
        worker = np.argsort(by_replica(self._strategy.candidate, self._devices).reshape(-1))
        return held_by_workers(self._strategy).at(np.where(self._old >= 0, worker[self._old], -1))

    @cached_property
    def _sizes(self) -> Floats:
        """Bytes of every kind of every unit of the model, (4, U)."""
        return unit_bytes(self._base.model, self._base.memory.parameter_bytes)

    def _answer(
        self,
        problem: PlanningProblem,
        result: SearchResult,
        sites: Sequence[Site],
        order: Ints,
        bound: float,
        *,
        keeps: bool = False,
    ) -> Answer:
        """A plan with its document, its nodes' names, and what moving to it costs."""
        assert result.incumbent is not None
        spare = iter(range(1, len(self._sites) + 1))
        names = [f"spare-{next(spare)}" if site.number is None else self._names[site.number] for site in sites]
        batch, document = problem.space.global_batch, plan_document(problem, result, self._limits)
        seconds = result.incumbent.seconds / batch
        about = {"replan": {"of": self._given.cluster.name, "nodes": names}}
        return Answer(
            plan=Plan(document | about),
            nodes=tuple(names),
            batch=batch,
            rate=seconds,
            rate_bound=min(bound, seconds),
            moved=self._moved(result.incumbent, order, keeps=keeps),
        )

    def _moved(self, incumbent: Incumbent, order: Ints, *, keeps: bool) -> Moved | None:
        """What moving to a plan costs; ``order``: its devices in the order of its cluster."""
        if len(self._site) > MOST_ASSIGNED:
            return None
        place = order[by_replica(incumbent.strategy.candidate, incumbent.devices).reshape(-1)]
        wanted, present, sizes = held_by_workers(incumbent.strategy), self._present, self._sizes
        costs = lacking_bytes(sizes, wanted, present)
        if keeps:
            weights = lacking_bytes(sizes * WEIGHTS_ONLY, wanted, present)
            costs = np.where((weights > 0.5) & (self._old >= 0), np.inf, costs)
        links = replace(self._base, cluster=cluster_of(self._given.cluster, self._sites)).links
        inner = np.array([site.spec.intra_bandwidth_gbps * GIGABIT for site in self._sites])
        return price_move(
            sizes,
            wanted,
            present.at(place),
            present,
            node=self._site[place],
            node_present=self._site,
            card_rate=card_rates(links),
            inner_rate=inner,
            least=least_total(costs),
        )


FIRST_SOURCES = {Source.BALANCE, Source.RELAXATION}
"""Sources of bounds that say little of a candidate, which was never the most promising."""
LEAST_LIMIT = 0.01
"""Seconds below which nothing is begun."""
CLOSED = {"1f1b", "gpipe"}
"""Schedules without chunks."""
WEIGHTS_ONLY = np.array([[1.0], [0.0], [1.0], [0.0]])


class _NoneKeptError(Exception):
    """Why no plan keeps all weights in place."""


def largest_count(schedule: str, pp: int, most: int) -> int:
    """The largest number of micro-batches up to a number under a schedule, 0 where there is none."""
    return next((m for m in range(most, 0, -1) if is_defined(schedule, pp, m)), 0)


def as_result(result: SearchResult, incumbent: Incumbent, lower_bound: float) -> SearchResult:
    """The result of a search with another plan than it found; states follow from bounds."""
    for bound in result.bounds:
        if bound.state is not State.INFEASIBLE:
            bound.state = State.OPEN
    return with_incumbent(replace(result, lower_bound=min(lower_bound, incumbent.seconds)), incumbent)


class LeastSeconds:
    """The least seconds of a micro-batch's layers by degrees, the sum in (4), from the cost table of a problem."""

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

    @property
    def degrees(self) -> list[tuple[int, int, int]]:
        """Degrees and micro-batches that the table has."""
        return sorted(self.of(self._problem.cluster.devices))

    @cached_property
    def of_any(self) -> float:
        """Seconds of one device for a sequence, at the best degrees."""
        return min((s * tp * cp / b for (tp, cp, b), s in self.of(self._problem.cluster.devices).items()), default=0.0)


def card_rates(links: Links) -> Floats:
    """Bytes per second of all cards of every node (nodes,): as stated, or what its devices send at most at once."""
    rate, found = links.rate, links.cards.copy()
    for node in np.flatnonzero(np.isinf(found)):
        sites, others = np.flatnonzero(links.node_of_site == node), np.flatnonzero(links.node_of_site != node)
        fastest = max((float(rate[a, others].max(initial=0.0)) for a in sites), default=0.0)
        found[node] = fastest * links.gpus_per_node[node] or np.inf
    return found
