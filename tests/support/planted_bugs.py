"""
Bugs planted in what search and check share, one at a time, and what becomes of the certificates.

A certificate is *false* if its step time is not that of its plan, if its lower bound exceeds the optimum, or if it
calls a candidate infeasible that has a plan. The truth is an enumeration of every candidate, division, recompute and
placement of small problems, priced by the reference evaluator without the bug.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pytest

from taut.data.arrays import Ints
from taut.data.units import KIB
from taut.errors import TautError
from taut.formulations import candidates as enumerated
from taut.formulations import gradient_reductions, latency, links, order_division, rings, sharding
from taut.formulations.mechanisms import offload, shards
from taut.formulations.partition import Crossing
from taut.formulations.problem import PlanningProblem
from taut.formulations.sharding import GatherRates
from taut.formulations.tables import block_traffic, memory, stage_tables
from taut.formulations.tables.priced_layers import PricedLayers
from taut.formulations.terms import Ring, Term
from taut.solver.bounds import communication, copies, least_hops, least_rings, link_bounds, relaxation
from taut.solver.certificate.document import PlanDocument, devices_of
from taut.solver.certificate.examined import Examined, case_of, order_for
from taut.solver.certificate.reference.candidates import candidates
from taut.solver.certificate.reference.memory import capacity_kib, margin_kib, memory_bytes
from taut.solver.certificate.reference.prices import price
from taut.solver.certificate.reference.space import SPLIT, Case, Choice, of_parts
from taut.solver.certificate.sampling import sample
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.layer_division import divide
from taut.solver.placement.exact import enumerate as every_placement
from taut.solver.placement.exact import joint, node_slots
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.support.instances import random_problem
from tests.support.reference import small_buckets

MOST_DEVICES = 6
"""Devices up to which every placement is enumerated."""
MOST_PLANS = 400_000
"""Plans of an instance up to which all are priced."""
SLACK = 1e-9

Patch = Callable[[pytest.MonkeyPatch], None]


def wherever(patch: pytest.MonkeyPatch, home: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace a function in its module, wherever it was imported by name, and in tables of modules."""
    old = getattr(home, name)
    new = wrap(old)
    for module in [each for key, each in sys.modules.items() if key.startswith("taut.")]:
        for attribute, value in list(vars(module).items()):
            if value is old:
                patch.setattr(module, attribute, new)
            for key in [key for key, each in value.items() if each is old] if isinstance(value, dict) else ():
                patch.setitem(value, key, new)


def _scaled(home: Any, name: str, factor: float) -> Patch:
    """A function whose result is multiplied."""
    return lambda patch: wherever(patch, home, name, lambda old: lambda *a, **k: old(*a, **k) * factor)


def _changed(home: Any, name: str, change: Callable[..., Any]) -> Patch:
    """A function whose result goes through another one, with the arguments after it."""
    return lambda patch: wherever(patch, home, name, lambda old: lambda *a, **k: change(old(*a, **k), *a))


def _method(cls: type, name: str, change: Callable[..., Any]) -> Patch:
    """A method whose result goes through another function, with the arguments after it."""
    old = getattr(cls, name)
    return lambda patch: patch.setattr(cls, name, lambda *a, **k: change(old(*a, **k), *a))


def _property(cls: type, name: str, change: Callable[[Any], Any]) -> Patch:
    """A cached property whose value goes through another function."""
    old = vars(cls)[name]
    return lambda patch: patch.setattr(cls, name, property(lambda self: change(old.func(self))))


def _raised(found: Any, *_: Any) -> Any:
    return replace(found, lower_bound=found.lower_bound * 1.05)


def _half_last(parts: Any, *_: Any) -> Any:
    compute, *others = (part.copy() for part in parts)
    compute[..., -1, :] *= 0.5
    return compute, *others


def _one_less(pipelines: Any, problem: PlanningProblem, strategy: Any, devices: Ints) -> Any:
    compute, tensor, *_ = latency._stage_seconds(problem, strategy, problem.tables(strategy.candidate), devices)
    return pipelines._replace(total=pipelines.total - (compute + tensor).max(axis=-2))


def _without_full_rings(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(block_traffic.REDUCTIONS, "full", 4)


def _no_keys(found: Any, *_: Any) -> Any:
    return tuple(each._replace(ring_bytes=0 * each.ring_bytes) for each in found)


def _first_alone(figures: Any, *_: Any) -> Any:
    return np.where(np.arange(figures.shape[-1]) == 0, figures, 0.0)


def _twice_earlier(pipelines: Any, *_: Any) -> Any:
    return pipelines._replace(ends=2 * pipelines.ends - pipelines.total[..., None, :])


def _no_earlier(pipelines: Any, *_: Any) -> Any:
    return pipelines._replace(ends=0 * pipelines.ends + pipelines.total[..., None, :])


def _free_way_back(pipelines: Any, *_: Any) -> Any:
    waits = pipelines.backward.cumsum(axis=-2) - pipelines.backward
    return pipelines._replace(ends=pipelines.total[..., None, :] - waits)


def _later_raised(found: Any, *_: Any) -> Any:
    return replace(found, ring=1.3 * found.ring)


def _dearer_cases(found: Any, *_: Any) -> Any:
    return [case._replace(gather=1.3 * case.gather, reduction=1.3 * case.reduction) for case in found]


def _cards_in_equal_parts(patch: pytest.MonkeyPatch) -> None:
    wherever(
        patch,
        rings,
        "ring_rates",
        lambda old: lambda given, *, by_members, flat: old(given, by_members=False, flat=flat),
    )


def _no_overlap_in_bounds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(communication, "overlaps", lambda *_: False)
    patch.setattr(communication, "least_bytes", _all_bytes)


def _all_bytes(problem: PlanningProblem, candidate: Any, gradients: Any = None) -> Any:
    """Bytes of which nothing is hidden."""
    return problem.gradient_bytes(candidate) if gradients is None else gradients


def _last_first(figures: Any, *_: Any) -> Any:
    return figures[::-1]


def _margin_forgotten(patch: pytest.MonkeyPatch) -> None:
    wherever(patch, memory, "budgets", lambda old: lambda model, kib, *, margin=True: old(model, kib, margin=False))


def _plain(cost: Any, layers: PricedLayers, device: str, layer: Any, recompute: str) -> Any:
    return replace(cost, input_grad=cost.input_grad - cost.forward) if recompute == "full" else cost


def _without(terms: tuple[Term, ...], phase: str) -> tuple[Term, ...]:
    """Terms without those of experts in a phase."""
    return tuple(term for term in terms if (term.load, term.phase) != ("experts", phase))


def _of_one_copy(found: tuple[Ring, ...], choice: Any, *_: Any) -> tuple[Ring, ...]:
    """Rings after the passes, of no bytes where there are several copies."""
    return tuple(ring._replace(share=0.0) for ring in found) if choice.dp_shard else found


BUGS: dict[str, Patch] = {
    "data-parallel ring halved": _scaled(gradient_reductions, "ring_by_byte", 0.5),
    "partition optimum +5 %": _changed(
        divide, "solve_partition", lambda found, *_: replace(found, seconds=found.seconds * 1.05)
    ),
    "hops of bounds +20 %": _method(link_bounds.BestLinks, "hops", lambda found, *_: (found[0] * 1.2, found[1] * 1.2)),
    "core bound takes the slowest link": _changed(
        links, "least_core", lambda found, figures, steps, *_: float(steps[-1]) if len(steps) else found
    ),
    "candidates with pp=2 forgotten": _changed(
        enumerated, "candidates", lambda found, *_: [choice for choice in found if choice.pp != 2]
    ),
    "micro-batches in flight overcounted": _changed(memory, "in_flight", lambda found, *_: found + 1),
    "bytes of weights halved": _changed(shards, "held_bytes", lambda found, *_: (found[0] // 2, *found[1:])),
    "subset placement bound +5 %": _changed(joint, "solve_joint", _raised),
    "every-placement bound +5 %": _changed(every_placement, "solve_by_enumeration", _raised),
    "node-slots bound +5 %": _changed(node_slots, "solve_by_slots", _raised),
    "full recompute without its all-reduces": _without_full_rings,
    "trip weight always 1": _method(PlanningProblem, "_trips", lambda found, *_: 1.0),
    "relaxation +10 %": _scaled(relaxation, "relaxation_bound", 1.1),
    "network cards ignored": _method(links.Links, "_shared", lambda found, given, *_: given.rate),
    "last stage at half price": _changed(latency, "_stage_seconds", _half_last),
    "transfers at twice the rate": _method(links.Links, "pipeline_rate", lambda found, *_: found * 2),
    "ring takes the faster direction": _changed(
        links, "slower_direction", lambda _, figures: np.minimum(figures, figures.T)
    ),
    "optimizer forgotten": _scaled(offload, "optimizer_seconds", 0.0),
    "logits forgotten in memory": _scaled(stage_tables, "_logits", 0),
    "latency forgotten": _changed(links, "_tables", lambda found, *_: (found[0], found[1] * 0.0)),
    "gradients of the last stage": _changed(gradient_reductions, "by_device", _last_first),
    "one micro-batch too few": _changed(latency, "closed_pipelines", _one_less),
    "margin forgotten": _margin_forgotten,
    "messages never divided": lambda patch: wherever(
        patch, stage_tables, "_messages", lambda old: lambda priced, output, shards: old(priced, output, 1)
    ),
    "optimizer divided without ZeRO": lambda patch: wherever(
        patch, shards, "optimizer_shards", lambda _: lambda candidate: candidate.dp
    ),
    "full recompute costs nothing": _method(PricedLayers, "_price", _plain),
    "candidates with ZeRO-1 forgotten": _changed(
        enumerated, "candidates", lambda found, *_: [choice for choice in found if choice.zero != 1]
    ),
    "nodes hold half of the groups": _changed(least_rings, "groups_of_node", lambda found, *_: max(found // 2, 1)),
    "ring of bounds +30 %": _scaled(least_rings, "ring_per_byte", 1.3),
    "orders 10 % short": _scaled(order_division, "spans", 0.9),
    "keys and values sent for nothing": _changed(block_traffic, "traffic_tables", _no_keys),
    "contexts of bounds at half the rate": _changed(
        block_traffic, "best_block", lambda found, *_: found._replace(context_inverse=2 * found.context_inverse)
    ),
    "context ranks in rings forgotten": _changed(
        shards, "holders", lambda found, choice: found._replace(members=choice.dp, stride=choice.tp * choice.cp)
    ),
    "workspace counted twice": _scaled(stage_tables, "_largest", 2),
    "reductions of later stages forgotten": _changed(gradient_reductions, "_reductions", _first_alone),
    "slack of later stages counted twice": _changed(latency, "closed_pipelines", _twice_earlier),
    "later stages end with the first": _changed(latency, "closed_pipelines", _no_earlier),
    "gradients' way back forgotten": _changed(latency, "closed_pipelines", _free_way_back),
    "tied embedding never exchanged": _scaled(gradient_reductions, "tied_bytes", 0.0),
    "optimizer of stage 0 alone": _changed(gradient_reductions, "optimizer_by_stage", _first_alone),
    "cards in equal parts": _cards_in_equal_parts,
    "rings free of cards": _changed(rings, "ring_rates", lambda found, *_: replace(found, card=0 * found.card)),
    "overlap hides half of every reduction": _changed(
        gradient_reductions, "after_overlap", lambda found, seconds, *_: np.minimum(found, 0.5 * seconds)
    ),
    "overlap forgotten in bounds": _no_overlap_in_bounds,
    "reductions of bounds +30 %": _changed(communication, "_later", _later_raised),
    "gathers hidden altogether": _scaled(sharding, "exposed", 0.0),
    "gathers of bounds doubled": _changed(
        least_rings, "least_gather", lambda found, *_: GatherRates(2 * found.common, 2 * found.experts)
    ),
    "reductions of experts forgotten": _method(PlanningProblem, "terms", lambda found, *_: _without(found, "end")),
    "rings of experts forgotten": _method(PlanningProblem, "terms", lambda found, *_: _without(found, "passes")),
    "gathers of experts in bounds tenfold": _changed(
        least_rings, "least_gather", lambda found, *_: GatherRates(found.common, 10 * found.experts)
    ),
    "copies never summed": _changed(shards, "_rings", _of_one_copy),
    "cases of copies +30 %": _changed(copies, "cases", _dearer_cases),
    "forest of bounds +50 %": _scaled(least_hops, "_forest", 1.5),
    "hops between classes tripled": _changed(
        least_hops, "crossing", lambda found, *_: Crossing(3 * found.whole, 3 * found.before)
    ),
    "rings of mixed stages tripled": _scaled(least_rings, "least_mixed_rings", 3.0),
    "ten more hops where stage 0 fills its nodes": _changed(least_hops, "hops_of_others", lambda found, *_: found + 10),
    "hops between alike nodes ten times as long": _scaled(node_slots, "most_hops", 10.0),
    "an all-slow pipeline beside another +30 %": _scaled(divide, "solve_pair", 1.3),
}


@dataclass(frozen=True, kw_only=True)
class Tally:
    """
    What became of one bug.

    ``written``: certificates; ``changed``: instances that come out another way with the bug, among them those on which
    the search fails; ``false``, ``refused``: false certificates, and those of them that the check refused; ``beyond``,
    ``stopped``: the same of certificates that are true as a whole, in which the bound of another candidate is false;
    ``above``, ``undercut``: false bounds of candidates in both, and those that samples alone refute.
    """

    bug: str
    written: int = 0
    changed: int = 0
    false: int = 0
    refused: int = 0
    beyond: int = 0
    stopped: int = 0
    above: int = 0
    undercut: int = 0


@contextmanager
def planted(bug: str = "", *patches: Patch) -> Iterator[None]:
    """Plant a bug for a while, none if its name is empty, and others; models have several buckets of gradients."""
    with pytest.MonkeyPatch.context() as patch:
        small_buckets(patch)
        for each in (*patches, *([BUGS[bug]] if bug else [])):
            each(patch)
        yield


class Instance:
    """A small problem with its truth."""

    def __init__(self, problem: PlanningProblem, truth: dict[str, float] | None = None) -> None:
        self.problem = problem
        if truth is not None:
            self.truth = truth
        self.case = case_of(problem)
        self._plain: list[Any] | None = None

    @cached_property
    def truth(self) -> dict[str, float]:
        """Least seconds of every candidate, infinity where nothing fits, by the name that a document gives it."""
        return {key_of(choice.as_dict()): _least(self.case, choice) for choice in candidates(self.case)}

    @property
    def fresh(self) -> PlanningProblem:
        """The problem with nothing kept from before a bug was planted."""
        given = self.problem
        return PlanningProblem(
            given.model,
            given.cluster,
            given.costs,
            given.memory,
            given.space,
            given.latency_model,
            given.calibration,
            given.overlap_grad_reduce,
        )

    def plain(self, beside: Patch, work_limit: int) -> list[Any]:
        """What the certificate without a bug says of the plan and of every candidate."""
        if self._plain is None:
            with planted("", beside):
                self._plain = said(written(self.fresh, work_limit))
        return self._plain

    def is_beyond(self, document: dict[str, Any]) -> bool:
        """Whether the bound of some candidate exceeds its optimum."""
        entries = document["certificate"]["candidates"]
        known = {key_of(each["strategy"]): each["lower_bound_s"] or 0.0 for each in entries}
        return any(known.get(name, 0.0) > least * (1 + SLACK) for name, least in self.truth.items())

    def sampled(self, document: dict[str, Any], bounds: dict[str, float] | None = None) -> tuple[int, int]:
        """How many bounds of candidates exceed the least seconds known, and how many of these samples alone refute."""
        if bounds is None:
            entries = document["certificate"]["candidates"]
            stated = {key_of(each["strategy"]): each["lower_bound_s"] for each in entries}
            bounds = {name: np.inf if stated[name] is None else stated[name] for name in stated.keys() & self.truth}
        read = PlanDocument.model_validate(document)
        plan = Examined.of_section(self.case, read.strategy, devices_of(read, "a plan"))
        known = {key_of(choice.as_dict()): choice for choice in candidates(self.case)}
        above = [(known[name], each) for name, each in bounds.items() if each > self.truth[name] * (1 + SLACK)]
        return len(above), len(sample(self.case, above, plan, read.certificate.problem_sha256).faults)

    def is_false(self, document: dict[str, Any]) -> bool:
        """Whether a certificate says what is not so."""
        strategy, certificate = document["strategy"], document["certificate"]
        named = {**strategy, "order": tuple(strategy.get("order", ()))}
        choice = Choice(**{name: named[name] for name in Choice.__dataclass_fields__ if name in named})
        devices = np.array(document["placement"]["devices"]).reshape(1, choice.pp, choice.blocks, choice.block)
        stages, recompute = of_parts(choice, tuple(map(tuple, strategy["stages"]))), tuple(strategy["recompute"])
        order = order_for(self.case, choice)
        batches = strategy.get("micro_batches", ())
        seconds = float(price(self.case, choice, stages, recompute, devices, order, batches).total[0])
        wrong = not np.isclose(certificate["objective_s"], seconds, rtol=SLACK)
        wrong |= not _fits(self.case, memory_bytes(self.case, choice, stages, recompute, order), devices).all()
        above = (certificate["lower_bound_s"] or 0.0) > min(self.truth.values()) * (1 + SLACK)
        impossible = any(
            entry["state"] == "infeasible" and np.isfinite(self.truth[key_of(entry["strategy"])])
            for entry in certificate["candidates"]
            if key_of(entry["strategy"]) in self.truth
        )
        return bool(wrong or above or impossible)


def instances(count: int, *, first: int = 0) -> list[Instance]:
    """
    The first problems with few enough plans, from a seed on.

    Every second one prices the whole step, with overlap in every fourth, and in every twelfth with slow cards and rings
    over all devices; every sixth has schedules that are priced by their order.
    """
    found: list[Instance] = []
    seed = first
    while len(found) < count:
        given = random_problem(seed, measured=seed % 4 == 0)
        if len(found) % 6 == 5:
            more = {"schedules": ["1f1b", "interleaved-1f1b", "zb-h1", "v-half"], "max_vpp": 2}
            space = given.space.model_copy(update=more)
            given = replace(given, space=space, latency_model="pipette")
        if len(found) % 2 == 0 or len(found) % 12 == 11:
            given = replace(given, latency_model="step", overlap_grad_reduce=len(found) % 4 == 2)
        if len(found) % 12 == 4:
            given = _slow_cards(given)
        seed += 1
        if given.candidates and given.cluster.num_devices <= MOST_DEVICES and _plans(given) <= MOST_PLANS:
            found.append(Instance(given))
    return found


def _slow_cards(given: PlanningProblem) -> PlanningProblem:
    """The problem with one stage, and cards below its links."""
    nodes = [group.model_copy(update={"nic_bandwidth_gbps": 0.05}) for group in given.cluster.nodes]
    cluster = given.cluster.model_copy(update={"nodes": nodes})
    return replace(given, cluster=cluster, space=given.space.model_copy(update={"fixed": {"pp": 1}}))


def written(given: PlanningProblem, work_limit: int) -> dict[str, Any] | None:
    """The certificate of a search, None without a plan."""
    limits = Limits(work_limit=work_limit, workers=1)
    result = search(given, limits)
    return json.loads(json.dumps(plan_document(given, result, limits))) if result.incumbent else None


def said(document: dict[str, Any] | None) -> list[Any]:
    """What a certificate says of the plan, and of every candidate."""
    if document is None:
        return []
    entries = document["certificate"]["candidates"]
    told = ([each[name] for name in ("strategy", "state", "lower_bound_s")] for each in entries)
    return [document["predicted"], *told]


def tally(
    bug: str, given: list[Instance], *patches: Patch, beside: Patch = lambda _: None, work_limit: int = 40
) -> Tally:
    """Plan and verify every instance under a bug, or under ``patches``, with others ``beside``, and count."""
    counts = dict.fromkeys(("written", "changed", "false", "refused", "beyond", "stopped", "above", "undercut"), 0)
    for instance in given:
        before = instance.plain(beside, work_limit)
        with planted(bug, beside, *patches):
            try:
                document = written(instance.fresh, work_limit)
            except (ArithmeticError, AssertionError, LookupError, TautError, ValueError):
                # The bug shows in the search itself, which then writes no certificate.
                counts["changed"] += 1
                continue
            holds = document is None or _holds(document)
        counts["changed"] += said(document) != before or not holds
        if document is None:
            continue
        with planted():
            is_false = instance.is_false(document)
            is_beyond = not is_false and instance.is_beyond(document)
            above, undercut = instance.sampled(document) if is_false or is_beyond else (0, 0)
        more = {"written": 1, "false": is_false, "refused": is_false and not holds, "beyond": is_beyond}
        more |= {"stopped": is_beyond and not holds, "above": above, "undercut": undercut}
        for name, count in more.items():
            counts[name] += count
    return Tally(bug=bug, **counts)


def _holds(document: dict[str, Any]) -> bool:
    try:
        return verify_document(document).holds
    except (ArithmeticError, LookupError, TautError, ValueError):
        return False


def key_of(strategy: dict[str, Any]) -> str:
    return json.dumps(strategy, sort_keys=True)


def _plans(given: PlanningProblem) -> int:
    """Plans of a problem, before placements that are equal are dropped."""
    layers, kinds = len(given.model.blocks), len(given.space.recompute)
    strategies: int = sum(
        int(np.prod([layers - 1 - i for i in range(c.pp * c.vpp - 1)], dtype=float)) * kinds ** (c.pp * c.vpp)
        for c in given.candidates
    )
    return strategies * len(list(permutations(range(min(given.cluster.num_devices, MOST_DEVICES)))))


def _least(case: Case, choice: Choice) -> float:
    """Least seconds of a candidate over every division, recompute and placement."""
    layers, chunks = len(case.model.blocks), choice.pp * choice.vpp
    kinds = [r for r in case.space["recompute"] if not (r == "full" and choice.schedule in SPLIT)]
    kinds = [r for r in kinds if choice.uniform_recompute in ("", r)]
    order, every = order_for(case, choice), _placements(case, choice)
    least = np.inf
    for cuts in combinations(range(1, layers), chunks - 1):
        stages = tuple(zip((0, *cuts), (*cuts, layers), strict=True))
        for recompute in product(kinds, repeat=chunks):
            fits = every[_fits(case, memory_bytes(case, choice, stages, recompute, order), every)]
            if len(fits):
                least = min(least, float(price(case, choice, stages, recompute, fits, order).total.min()))
    return least


def _fits(case: Case, need: list[int], devices: Ints) -> Any:
    """Whether every device has what its rank needs, by placement."""
    nodes = case.cluster.node_list
    names, capacity = list(case.cluster.devices), capacity_kib(case)
    budget = [(kib - margin_kib(case, kib)) * KIB for kib in capacity]
    of_device = np.repeat([budget[names.index(n.device.name)] for n in nodes], [n.gpus_per_node for n in nodes])
    return (np.array(need) <= of_device[devices].min(axis=(-1, -2))).all(axis=-1)


def _placements(case: Case, choice: Choice) -> Ints:
    """Every placement that keeps tensor groups whole, one of those that differ within interchangeable nodes alone."""
    sizes = [node.gpus_per_node for node in case.cluster.node_list]
    node_of = np.repeat(np.arange(len(sizes)), sizes)
    every = np.array(list(permutations(range(len(node_of)))))
    for group in {choice.tp, choice.expert_group, choice.block}:
        nodes = np.sort(node_of[every].reshape(len(every), -1, group), axis=-1)
        spread = 1 + (nodes[..., 1:] != nodes[..., :-1]).sum(axis=-1)
        every = every[(spread <= max(group // max(sizes), 1)).all(axis=-1)]
    every = every.reshape(-1, choice.pp, choice.blocks, choice.block)
    if case.cluster.measured_by_device:
        return np.asarray(every)
    return np.asarray(every[np.unique(node_of[every].reshape(len(every), -1), axis=0, return_index=True)[1]])
