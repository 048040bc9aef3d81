"""Bounds of order-priced candidates against every plan of random small problems, run by an event simulator."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest

from taut.data.arrays import Floats, Ints
from taut.formulations.latency import memory_bytes, step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import margin_free_bound, plan_document
from taut.solver.ladder import chunk_types
from taut.solver.ladder.chunk_racks import least_exchange
from taut.solver.ladder.chunk_types import chunk_cases, most_within, rederived_by_cases
from taut.solver.ladder.computations import order
from taut.solver.ladder.ladder import Ladder
from taut.solver.order_priced import layer_bounds
from taut.solver.order_priced.capacity import most_refuted
from taut.solver.order_priced.chunk_memory import MemoryOfChunks, memory_of_chunks
from taut.solver.order_priced.layer_bounds import LayerPaths, Leaf, linear_paths
from taut.solver.order_priced.layer_tree import LayerTree
from taut.solver.order_priced.staircases import Ends, ends_of_paths
from taut.solver.order_priced.stated import number_of, stated_seconds
from taut.solver.order_priced.witness import rederived
from taut.solver.result import Limits, State, Status
from taut.solver.search.rack_trees import case_trees
from taut.solver.search.search import search
from tests.solver.order_priced.test_staircases import longest
from tests.support.blocks import blocks
from tests.support.events import simulate
from tests.support.interleaved import Plans, drawn, strategy
from tests.support.reference import small_buckets

ROUNDING = 1e-9
BRANCHINGS = 6
"""Branchings of a tree of layers, each with a bound of its own."""
WORK = 20
"""Refinements of a search, which ends with an honest gap: of two or three candidates most problems need fewer."""


@dataclass
class Found:
    """What a problem's bounds were: the optimum, the bounds of its candidates as shares of theirs, and faults."""

    optimum: float
    shares: list[float]
    bound: float
    status: str
    faults: list[str]


def examined(seed: int, *, racked: bool = False, mixed: bool = False) -> Found:
    """The bounds of one problem, each compared with the optimum of the plans that it is for."""
    given, every = drawn(seed, racked=racked, mixed=mixed)
    rng, faults, shares = np.random.default_rng(seed), list[str](), list[float]()
    ladder = Ladder(given)
    for candidate, plans in every:
        faults += _prices(given, candidate, plans, rng)
        shares.append(_bounds(ladder, candidate, plans, rng, faults))
    optimum = min((plans.optimum for _, plans in every), default=np.inf)
    limits = Limits(workers=1, work_limit=WORK)
    result = search(given, limits)
    allowed = optimum * (1 + ROUNDING)
    if result.lower_bound > allowed:
        faults.append(f"global bound {result.lower_bound} above {optimum}")
    for bound in result.bounds:
        own = next(plans.optimum for candidate, plans in every if candidate == bound.candidate)
        if bound.lower_bound > own * (1 + ROUNDING):
            faults.append(f"{bound.candidate}: {bound.source} {bound.lower_bound} above {own}")
    if (free := margin_free_bound(ladder).seconds) > allowed:
        faults.append(f"bound without margin {free} above {optimum}")
    if result.incumbent is None:
        # A limit may come before any plan.
        if np.isfinite(optimum) and result.status is Status.INFEASIBLE:
            faults.append(f"infeasible, with a plan of {optimum}")
    elif result.incumbent.seconds < optimum * (1 - ROUNDING):
        faults.append(f"plan {result.incumbent.seconds} below {optimum}")
    elif result.status is Status.OPTIMAL and result.incumbent.seconds > optimum * (1 + 1e-6 + ROUNDING):
        faults.append(f"optimal {result.incumbent.seconds} above {optimum}")
    return Found(optimum, shares, result.lower_bound, str(result.status), faults)


def _prices(given: PlanningProblem, candidate: Candidate, plans: Plans, rng: np.random.Generator) -> list[str]:
    """Random plans that taut prices otherwise."""
    faults = []
    for _ in range(3):
        k, q = int(rng.integers(len(plans.ends))), int(rng.integers(len(plans.devices)))
        plan = strategy(candidate, plans, k)
        seconds = float(step_time(given, plan, plans.devices[q][..., None]).total)
        if abs(seconds / plans.seconds[k, q] - 1) > ROUNDING:
            faults.append(f"{candidate}: {plan.division} takes {seconds}, simulated {plans.seconds[k, q]}")
        if list(memory_bytes(given, plan)) != plans.need[k].tolist():
            faults.append(f"{candidate}: {plan.division} needs {memory_bytes(given, plan)}, counted {plans.need[k]}")
    return faults


def _bounds(ladder: Ladder, candidate: Candidate, plans: Plans, rng: np.random.Generator, faults: list[str]) -> float:
    """The largest bound of a candidate as a share of its optimum; what is above it is noted."""
    optimum, best = plans.optimum, 0.0
    limit = float(rng.choice([1.0, 1.01, 1.1, np.inf])) * optimum if np.isfinite(optimum) else np.inf

    def note(name: str, seconds: float) -> None:
        nonlocal best
        best = max(best, seconds)
        if seconds > optimum * (1 + ROUNDING):
            faults.append(f"{candidate}: {name} {seconds} above {optimum}")

    note("relaxation", ladder.relaxation(candidate))
    found = order(ladder, candidate, limit)
    note("order", found.seconds)
    lacking = int((plans.need.max(axis=1)).min()) - int(ladder.problem.budget.max())
    if (closed := memory_of_chunks(ladder.problem, candidate, margin=True)) and closed.missing()[0] > max(lacking, 0):
        faults.append(f"{candidate}: devices are said to lack {closed.missing()} bytes, the best lacks {lacking}")
    if found.order is not None:
        given = chunked(ladder.problem, candidate, ladder.links)
        tree = found.order.branching
        for _ in range(BRANCHINGS if isinstance(tree, LayerTree) else 1):
            if tree is None or not tree.branch():
                break
            note("branches", tree.seconds)
        note("witness", rederived(given, json.loads(json.dumps(found.witness if tree is None else tree.witness()))))
        if number_of(given):
            listed = stated_seconds(given, limit)[0]
            note("list", listed)
            named = {"stated": number_of(given), **({"limit_s": limit} if np.isfinite(limit) else {})}
            if (again := rederived(given, named)) != listed and np.isfinite(listed):
                faults.append(f"{candidate}: a list of divisions says {listed}, and {again} again")
        classes = chunk_cases(ladder.problem, candidate, ladder.links)
        if trees := case_trees(classes, limit, found.order.divisions, 0.0):
            for _ in range(len(classes) * BRANCHINGS):
                trees.branch()
                note("cases", trees.seconds * (1 - ROUNDING))
            note("witness of cases", rederived_by_cases(classes, json.loads(json.dumps(trees.witness()))))
        if np.isfinite(limit) and (refutes := most_within(ladder.problem, candidate, ladder.links)):
            note("layers counted by class", most_refuted(refutes, limit))
        if cases := linear_paths(given):
            faults += _by_cases(cases, plans, rng)
    return best / optimum if np.isfinite(optimum) else 1.0


def _by_cases(cases: list[LayerPaths], plans: Plans, rng: np.random.Generator) -> list[str]:
    """Faults of linear figures: of every division in its case, bytes, layers within seconds, and mixtures of paths."""
    layers, least, faults = plans.layers, plans.least, list[str]()
    given, covered = cases[0].given, np.zeros(len(layers), np.bool_)
    limit = 1.02 * float(plans.seconds.min(axis=1)[rng.integers(len(layers))])
    devices = np.stack([layers[:, given.hosted(d)].sum(axis=1) for d in range(len(given.counts))], axis=1)
    for paths in cases:
        own = (layers >= paths.lines.lower).all(axis=1) & (layers <= paths.lines.upper).all(axis=1)
        covered |= own
        if not own.any():
            continue
        points, root = np.column_stack((layers[own], np.ones(int(own.sum())))), paths.root(np.inf)
        unlike, memory = paths.lines.beyond is not None, paths.memory.copy()
        if unlike:
            memory[:, -1] += paths.beside(paths.memory_weights, root.lower, root.upper)
        for (d, counts), row in zip(paths.rows.memory_rows, memory, strict=True):
            bytes_ = plans.still[own, d] + plans.stays[own][:, given.hosted(d)] @ counts
            beyond = points @ row - (bytes_ - given.budget)
            # Bytes that come back for a moment under recompute are counted by their least.
            exact = not unlike and not plans.recompute.any()
            if (beyond > 1).any() or (exact and (beyond < -1e-6 * bytes_ - 1).any()):
                faults.append(f"a memory row is off by {beyond[np.abs(beyond).argmax()]} bytes")
        within = own & (least <= limit)
        bounds = paths.root(limit).most
        if (devices[within] > bounds).any():
            faults.append(f"a device takes more than {bounds} layers within {limit}")
        faults += [] if unlike else _is_loose(paths, limit, bounds)
        for _ in range(3):
            line = paths.mixture(_leaf(paths, rng), root)
            if (points @ line > least[own] * (1 + ROUNDING)).any():
                faults.append("a mixture of paths is longer than a plan")
    if not covered.all():
        faults.append(f"no case has {layers[~covered][0]}")
    return faults


def _is_loose(paths: LayerPaths, limit: float, bounds: Ints) -> list[str]:
    """Faults of devices that would not take as many layers as they may within a limit in seconds and their memory."""
    lower, device = paths.lines.lower, paths.given.order.device
    rows = [*paths.paths()[: len(bounds)], *paths.memory]
    of_row = [*range(len(bounds)), *(d for d, _ in paths.rows.memory_rows)]
    faults = []
    for d, most in enumerate(bounds.tolist()):
        own = device == d
        more = most - int(lower[own].sum())
        asked = [row[-1] + row[:-1] @ lower + more * row[:-1][own].min() for row in rows]
        # Seconds of the device's own path, and bytes beyond its memory.
        beyond = [one - (limit * (1 + 1e-6) if k < len(bounds) else 1.0) for k, one in enumerate(asked)]
        if more > 0 and max(one for k, one in enumerate(beyond) if of_row[k] == d) > 0:
            faults.append(f"device {d} cannot take {most} layers within {limit}")
    return faults


def _leaf(paths: LayerPaths, rng: np.random.Generator) -> Leaf:
    """A random mixture of paths, memory priced at random."""
    chunks, known = paths.given.num_chunks, len(paths.rows.paths)
    ends = np.zeros(0) if paths.ends is None else rng.random(paths.ends.after.shape) ** 8
    shares = rng.random(known) ** 8
    total = ends.sum() + shares.sum()
    weights = (ends / total).tolist()
    rounds = [rng.integers(0, 2, chunks).astype(float).tolist() if paths.ends is not None else [] for _ in range(2)]
    prices = (float(rng.choice([0.0, 1e-9, 1e-5])) * rng.random(len(paths.rows.memory_rows))).tolist()
    return Leaf(
        ends=weights,
        rounds_in=rounds[0],
        rounds_out=rounds[1],
        shares=(shares / total).tolist(),
        prices=prices,
    )


def _checked(seeds: range, *, racked: bool = False, mixed: bool = False) -> None:
    """Every problem of some seeds without faults, under small buckets of gradients."""
    with pytest.MonkeyPatch.context() as patch:
        small_buckets(patch)
        found = {seed: examined(seed, racked=racked, mixed=mixed).faults for seed in seeds}
    assert not {seed: faults for seed, faults in found.items() if faults}


@pytest.mark.proof
def test_no_bound_of_few_problems_is_above_the_optimum() -> None:
    """Prices, bytes, bounds of candidates with their branches and witnesses, and the search's: of a few problems."""
    _checked(range(3, 15))


@pytest.mark.parametrize("block", blocks(100, proof=True))
def test_no_bound_is_above_the_optimum(block: int) -> None:
    """The same of 2,000 problems, unlike layers, links, devices and recompute, overlap, and memory that binds."""
    _checked(range(20 * block, 20 * block + 20))


@pytest.mark.parametrize("block", blocks(20, proof=True))
def test_no_bound_in_racks_is_above_the_optimum(block: int) -> None:
    """The same of 200 problems on racks of nodes, of which stages take two."""
    _checked(range(10 * block, 10 * block + 10), racked=True)


@pytest.mark.parametrize("block", blocks(40, proof=True))
def test_no_bound_on_two_classes_of_device_is_above_the_optimum(block: int) -> None:
    """The same of 200 problems on nodes of two types, one stage's devices of one or of both."""
    _checked(range(5 * block, 5 * block + 5), mixed=True)


def executed(p: int, v: int, m: int, passes: Floats, hops: Floats) -> Floats:
    """Ends of devices (p,), of seconds of F and B by chunk (2, C) and of transfers (C - 1,)."""
    return simulate("interleaved-1f1b", p, v, m, np.stack((*passes, 0 * passes[0])), hops)


@pytest.mark.parametrize("spread", [0.0, 0.1, 2.0])
def test_no_staircase_is_longer_than_a_simulated_step(spread: float) -> None:
    """Chunks and transfers of any seconds: the closed form ends no later than the device on which its path ends."""
    rng, even = np.random.default_rng(int(10 * spread)), 0
    for _ in range(100):
        p, v, rounds = int(rng.integers(2, 5)), int(rng.integers(2, 5)), int(rng.integers(2, 5))
        passes = np.array([[1.0], [float(rng.choice([0.5, 1, 2]))]]) + spread * rng.random((2, p * v))
        hops = float(rng.choice([0.0, 0.02, 0.4])) * rng.random() * np.ones(p * v - 1)
        ends = executed(p, v, rounds * p, passes, hops)
        known = ends_of_paths(p, p * v, rounds * p)
        found = longest(known, passes[0], passes[1], hops)
        assert (found <= ends[known.after] * (1 + ROUNDING)).all()
        if spread == 0.0:
            even += 1
            # Even chunks: m passes of all chunks, a chunk of each other device, and a trip through the transfers.
            closed = passes.sum() * (rounds + (p - 1) / (p * v)) + 2 * hops.sum()
            assert ends.max() == pytest.approx(closed, rel=1e-12)
            assert found.max() == pytest.approx(closed, rel=1e-12) or hops.any()
    assert even == (100 if spread == 0.0 else 0)


def test_staircases_are_simulated_steps_for_even_rounds() -> None:
    """Chunks alike within a round, rounds alike: equal; rounds unlike by a tenth: within a tenth of a micro-batch."""
    rng = np.random.default_rng(7)
    for unlike in (0.0, 0.1):
        for _ in range(100):
            p, v, rounds = int(rng.integers(2, 5)), int(rng.integers(2, 5)), int(rng.integers(2, 5))
            each = np.repeat(1 + unlike * rng.random(v), p)
            passes, hops = np.stack((each, 2 * each)), np.zeros(p * v - 1)
            found = longest(ends_of_paths(p, p * v, rounds * p), passes[0], passes[1], hops).max()
            exact = executed(p, v, rounds * p, passes, hops).max()
            assert found == pytest.approx(exact, rel=unlike / (rounds * p) or 1e-12)


def _staircase(patch: pytest.MonkeyPatch) -> None:
    """A path from a device's own entry to its own exit counts a forward pass of its last chunk too many."""

    def longer(devices: int, chunks: int, micro_batches: int) -> Ends:
        found = ends_of_paths(devices, chunks, micro_batches)
        forward = found.forward.copy()
        forward[0, 1, 2, chunks - devices] += 1
        return found._replace(forward=forward)

    patch.setattr(layer_bounds, "ends_of_paths", longer)


def _beside(patch: pytest.MonkeyPatch) -> None:
    """Memory rows forget the bytes beside."""
    rows = vars(layer_bounds.LayerPaths)["memory"].func

    def without(paths: LayerPaths) -> Floats:
        none, one = paths.lines.none.copy(), paths.lines.one.copy()
        none[layer_bounds.BESIDE], one[layer_bounds.BESIDE] = 0, 0
        other = copy.copy(paths)
        other.lines = paths.lines._replace(none=none, one=one)
        return np.asarray(rows(other))

    patch.setattr(layer_bounds.LayerPaths, "memory", property(without))


def _one_case(patch: pytest.MonkeyPatch) -> None:
    """Differing layers are all in the first chunk, as if there were no other case."""
    patch.setattr(layer_bounds, "cases_of", lambda differing, chunks: iter([(differing,)]))


def _fewer_cases(patch: pytest.MonkeyPatch) -> None:
    """The case is left out in which the first chunk has none of several differing layers."""
    every = layer_bounds.cases_of
    patch.setattr(layer_bounds, "cases_of", lambda *given: [*every(*given)][1 if given[0] else 0 :])


def _layers(more: int) -> Callable[[pytest.MonkeyPatch], None]:
    """Devices take so many layers more than they may."""
    most = layer_bounds.LayerPaths._most_layers
    return lambda patch: patch.setattr(layer_bounds.LayerPaths, "_most_layers", lambda *given: most(*given) + more)


def _fewer_by_memory(patch: pytest.MonkeyPatch) -> None:
    """Memory leaves devices a layer less than it does."""
    refutes = MemoryOfChunks.refutes
    patch.setattr(MemoryOfChunks, "refutes", lambda given, more: refutes(given._replace(least=given.least - 1), more))


PLANTED = {
    "a staircase one pass too long": _staircase,
    "bytes beside forgotten": _beside,
    "one case of differing layers": _one_case,
    "a case of differing layers left out": _fewer_cases,
    "most layers rounded up": _layers(1),
    "one layer too few": _layers(-1),
    "one layer too few by memory": _fewer_by_memory,
}


@pytest.mark.proof
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_noticed(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of the bounds on layers of chunks is a fault of some of the first problems."""
    small_buckets(monkeypatch)
    PLANTED[bug](monkeypatch)
    for seed in range(60):
        if examined(seed).faults:
            return
    pytest.fail(f"{bug}: not noticed")


stages, hops, ring, exchange = (
    chunk_types._slow_stages,
    chunk_types._crossings,
    chunk_types._ring,
    least_exchange,
)
MIXED = {
    "a slow stage too many": (4, "_slow_stages", lambda *given: min(stages(*given) + 1, given[1].pp)),
    "a hop too many": (11, "_crossings", lambda *given, **kind: hops(*given, **kind) + 1),
    "the ring of slow stages doubled": (16, "_ring", lambda *given: 2 * ring(*given)),
    "an exchange tripled": (45, "least_exchange", lambda *given: tuple(3 * each for each in exchange(*given))),
    "a pattern left out": (10, "combinations", lambda *given: [*combinations(*given)][1:]),
}
"""Problems on two classes of device by which a bug in the named function shows."""


@pytest.mark.proof
@pytest.mark.parametrize("bug", MIXED)
def test_a_planted_bug_of_classes_is_noticed(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of the bounds on two classes of device bounds some problem above its optimum."""
    seed, name, other = MIXED[bug]
    small_buckets(monkeypatch)
    assert not examined(seed, mixed=True).faults
    monkeypatch.setattr(chunk_types, name, other)
    assert any("cases" in fault for fault in examined(seed, mixed=True).faults)


FALSE = {
    "a staircase one pass too long": 39,
    "one case of differing layers": 10,
    "a case of differing layers left out": 10,
    "one layer too few": 5,
    "one layer too few by memory": 8,
}
"""A problem whose certificate a bug makes false."""


@pytest.mark.proof
@pytest.mark.parametrize("bug", FALSE)
def test_a_false_certificate_of_a_planted_bug_is_refused(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the bug in search and check alike, a bound above the optimum or a feasible candidate ruled out fails."""
    given, every = drawn(FALSE[bug])
    limits = Limits(workers=1, work_limit=WORK)
    small_buckets(monkeypatch)
    PLANTED[bug](monkeypatch)
    result = search(given, limits)
    document = json.loads(json.dumps(plan_document(given, result, limits)))
    optimum = min(plans.optimum for _, plans in every)
    possible = {candidate for candidate, plans in every if np.isfinite(plans.optimum)}
    excluded = {bound.candidate for bound in result.bounds if bound.state is State.INFEASIBLE}
    assert (document["certificate"]["lower_bound_s"] or 0.0) > optimum * (1 + ROUNDING) or possible & excluded
    assert not verify_document(document).holds
