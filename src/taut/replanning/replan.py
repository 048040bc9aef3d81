"""
A replanning: the plan that keeps its weights, the search of the best one, and what moving to them costs.

Equations are those of the package.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.units import GIGABIT
from taut.errors import ExtrapolationWarning, FieldError, InfeasibleError, NothingFoundError
from taut.formulations.mechanisms.shards import unshared
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import device_of_chunk
from taut.formulations.space import FIXES, fixable_value
from taut.formulations.strategy import Strategy
from taut.planning.plan import Plan
from taut.replanning.left import (
    Part,
    Site,
    card_rates,
    cluster_of,
    largest_count,
    node_number,
    parts_of,
    sites_left,
    slow_node,
    slowed_costs,
)
from taut.replanning.result import Answer, Replanned
from taut.solver.branch_and_bound.stop import Listener, Progress
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
from taut.solver.result import CandidateBound, Incumbent, Limits, SearchResult, Source, StoppedBy
from taut.solver.search.search import as_result, search
from taut.solver.simple_plans import priced
from taut.words import percent

USUAL_SHARE = 0.05
"""Share of the batch that a plan may leave out unless it is said."""
USUAL_LIMIT = 10.0
"""Seconds that somebody waits whose training stands still."""
SEARCHED = 0.7
"""Share of the time limit after which searches end: the certificates of both plans take the rest."""
KEPT = 0.4
"""Share of what is left that a search of the plan without moved weights may take."""
GUIDED = 3
"""Parts that are searched first, by what the plan's own certificate says of their degrees."""
FIRST_SOURCES = {Source.BALANCE, Source.RELAXATION}
"""Sources of bounds that say little of a candidate, which was never the most promising."""
LEAST_LIMIT = 0.01
"""Seconds below which nothing is begun."""
WEIGHTS_ONLY = np.array([[1.0], [0.0], [1.0], [0.0]])


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
        left=asked.names(sites),
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
        self._interrupted = False

    def _slowed(self) -> PlanningProblem:
        """The problem that ran, with the costs of slow nodes."""
        slow = [site for site in self._sites if site.slow]
        speeds = {site.spec.device.name: (site.spec.device.name.rpartition(" at ")[0], site.share) for site in slow}
        base = replace(self._given, space=self._given.space.model_copy(update={"orders": []}))
        return base.with_costs(slowed_costs(base.costs, speeds)) if speeds else base

    def names(self, sites: Sequence[Site]) -> tuple[str, ...]:
        """Names of nodes; spare ones are counted in their order."""
        spare = iter(range(1, len(self._sites) + 1))
        return tuple(f"spare-{next(spare)}" if site.number is None else self._names[site.number] for site in sites)

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
        kept = self._kept_plan(self._regrouped(used[self._site]))
        if chosen.zero == 3 and kept.incumbent.strategy.candidate.dp != chosen.dp:
            raise _NoneKeptError("its replicas share weights (ZeRO-3), which move if their number changes")
        if kept.batch < self._least_batch:
            less = f"{percent(1 - kept.batch / self._batch)} less than {self._batch}"
            raise _NoneKeptError(
                f"{kept.incumbent.strategy.candidate.dp} replicas divide a batch of {kept.batch}, {less}"
            )
        limits = replace(self._limits, time_limit=None if (left := self._left()) is None else KEPT * left)
        result = search(kept.problem, limits, self._progress, incumbent=kept.incumbent)
        self._interrupted |= result.stopped_by is StoppedBy.INTERRUPT
        lower = min((bound.lower_bound for bound in result.bounds), default=0.0)
        self._rate = min(self._rate, kept.incumbent.seconds / kept.batch)
        result = as_result(result, kept.incumbent, lower)
        bound = max(lower, self._held_seconds(kept)) / kept.batch
        return self._answer(kept.problem, result, kept.sites, kept.order, bound, keeps=True)

    def _held_seconds(self, kept: "_Kept") -> float:
        """Seconds that the slowest device computes with the layers that it holds, whichever pipeline it works in."""
        strategy, devices, problem = kept.incumbent.strategy, kept.incumbent.devices, kept.problem
        chosen = strategy.candidate
        of_chunk = problem.tables(chosen).seconds[(slice(None), *strategy.ranges)]
        device = device_of_chunk(chosen.schedule, chosen.pp, chosen.vpp)
        of_stage = np.array([of_chunk[:, device == x].sum(axis=1) for x in range(chosen.pp)])
        kind = problem.type_of_node[problem.links.node_of[devices]].reshape(chosen.pp, -1)
        return float(chosen.num_micro_batches * max(of_stage[x, kind[x]].max() for x in range(chosen.pp)))

    def _kept_plan(self, places: Ints) -> "_Kept":
        """The strategy on as many pipelines as there are places (pp, pipelines, width), with its batch by (2)."""
        chosen = self._strategy.candidate
        dp = places.shape[1] * chosen.width // (chosen.tp * chosen.cp)
        m = largest_count(chosen.schedule, chosen.pp, self._batch // (dp * chosen.micro_batch))
        batch, (sites, order) = dp * chosen.micro_batch * m, self._whole(places)
        candidate = replace(chosen, dp=dp, num_micro_batches=m, order=())
        if candidate.dp_cp == 1:
            candidate = unshared(candidate)
        fixed = {name: value for name in FIXES if (value := fixable_value(candidate, name)) is not None}
        if not self._base.model.has_experts:
            fixed = {name: value for name, value in fixed.items() if name not in ("ep", "etp")}
        kinds = [kind for kind in self._base.space.recompute if kind in self._strategy.recompute]
        problem = self._problem(sites, batch, {**fixed, "dp": dp}, recompute=kinds)
        if candidate not in problem.candidates:
            raise _NoneKeptError(f"{dp} replicas are outside of the plan's space")
        number = np.full(len(self._site), -1)
        number[order] = np.arange(len(order))
        incumbent = priced(problem, replace(self._strategy, candidate=candidate), number[places])
        if incumbent is None:
            raise _NoneKeptError(f"its stages do not fit the memory with {dp} replicas")
        return _Kept(problem, sites, order, batch, incumbent)

    def speed_of(self, pipelines: int) -> float:
        """Sequences a second of the first pipelines of the plan; 0 where the strategy does not run on so few."""
        try:
            kept = self._kept_plan(self._regrouped(np.ones(len(self._site), dtype=bool))[:, :pipelines])
        except _NoneKeptError:
            return 0.0
        return kept.batch / kept.incumbent.seconds

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
        shares = np.array([site.share for site in self._sites])[self._site]
        # The fastest blocks of a stage, whole pipelines first, so that as few as possible are made of several.
        turn = np.lexsort((np.arange(mapped.shape[1]), ~alive.all(axis=0)))
        speed = np.where(alive, shares[mapped].min(axis=2), 0.0)[:, turn]
        kept = np.argsort(-speed, axis=1, kind="stable")[:, : most[-1]]
        spare = iter(empty[: room * chosen.width].reshape(room, chosen.width))
        found = [[mapped[x, z] for z in turn[np.sort(kept[x])] if alive[x, z]] for x in range(chosen.pp)]
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
        self._open = parts = self._guided([*parts_of(self._base, self._sites, self._least_batch, self._rate)])
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
        return self._interrupted or (left is not None and left <= LEAST_LIMIT)

    def _nothing(self, parts: Sequence[Part]) -> InfeasibleError | NothingFoundError:
        """Why there is no plan at all."""
        if all(math.isinf(part.rate) for part in parts):
            return InfeasibleError(
                f"no plan on what is left fits, with a batch of {self._least_batch} to {self._batch} sequences"
            )
        least = min(part.rate for part in parts) * self._batch
        return NothingFoundError(f"no plan found within the limit; none takes less than {least:.6g} s", least)

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
            # All replicas wait for the slowest one.
            slowest = 1 / min(site.share for site in part.sites)
            part.guess = known.get(key, math.inf) * whole / devices * slowest
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
        self._interrupted |= found.stopped_by is StoppedBy.INTERRUPT
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
        wanted, present = self._held(incumbent.strategy).at(worker), self._present
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
        """Devices of every block, (pp, pipelines, width), by the least-cost assignment to slots; None if too many."""
        chosen = strategy.candidate
        sizes = {len(np.flatnonzero(self._site == k)) for k in np.unique(self._site[order])}
        if any(size % chosen.width for size in sizes) or len(self._site) > MOST_ASSIGNED:
            return None
        costs = lacking_bytes(self._sizes, self._held(strategy), self._present.at(order))
        shape = chosen.pp, chosen.pipelines, chosen.width
        blocks = np.arange(len(costs)).reshape(-1, chosen.width)
        alike = np.zeros(len(blocks), np.int64)
        return exchanged_nodes(costs, [*blocks], alike, [*blocks], alike).reshape(shape)

    def _held(self, strategy: Strategy) -> Held:
        """What the workers of a strategy hold."""
        return held_by_workers(strategy, both_ends=self._base.model.shares_embedding)

    @cached_property
    def _present(self) -> Held:
        """What every device that is left held."""
        worker = np.argsort(by_replica(self._strategy.candidate, self._devices).reshape(-1))
        return self._held(self._strategy).at(np.where(self._old >= 0, worker[self._old], -1))

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
        names = self.names(sites)
        batch, document = problem.space.global_batch, plan_document(problem, result, self._limits)
        seconds = result.incumbent.seconds / batch
        about = {"replan": {"of": self._given.cluster.name, "nodes": list(names)}}
        return Answer(
            plan=Plan(document | about),
            nodes=names,
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
        wanted, present, sizes = self._held(incumbent.strategy), self._present, self._sizes
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


class _Kept(NamedTuple):
    """A plan that keeps its weights: its problem, sites, devices in their order, batch, and the plan itself."""

    problem: PlanningProblem
    sites: list[Site]
    order: Ints
    batch: int
    incumbent: Incumbent


class _NoneKeptError(Exception):
    """Why no plan keeps all weights in place."""


def replica_speeds(plan: Plan) -> list[float]:
    """Sequences a second of a plan's strategy with 0 to dp replicas, each with the batch of (2), whatever its share."""
    cluster, chosen = plan.cluster_spec, plan.strategy
    names = [f"node-{k}" for k in range(cluster.num_nodes)]
    asked = _Replanning(plan, sites_left(cluster), 1.0, names, Limits(), None)
    pipelines = devices_of(plan.typed, plan.source).shape[1]
    by_block = [0.0, *(asked.speed_of(count) for count in range(1, pipelines + 1))]
    return [by_block[d * pipelines // chosen.dp] for d in range(chosen.dp + 1)]
