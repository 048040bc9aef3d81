r"""
From a finished search to a plan document with its certificate.

(1) gap = (objective - lower bound) / objective;
(2) lower bound = max(bound of the search, bound without a memory margin), since a plan that keeps a margin fits
    without one too;
(3) verified gap: the gap to the part of the bound that ``verify`` derives again. All bounds here are, so it equals (1);
(4) the bound without a memory margin takes what the search left of the time limit, and closed forms from then on;
    after Ctrl-C it is left out. Where a tree of layers of the search shows as much without a margin as the bound of
    the search, no other is sought, and listed divisions are listed again.

The bound without a margin is (2) of ``taut.solver.ladder.checks``. It says what the margin costs at most.
"""

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

import numpy as np

from taut.data.analytic.hardware_flop import executed_flop
from taut.data.units import KIB
from taut.errors import SolverError
from taut.formulations.latency import StepTime, memory_bytes, step_time
from taut.formulations.meshes.choice import MeshChoice
from taut.formulations.meshes.step_time import MeshPlan, mesh_memory, mesh_step
from taut.formulations.order_division import ROUNDING
from taut.formulations.problem import PlanningProblem
from taut.formulations.runs import beyond
from taut.formulations.schedules.orders import device_of_chunk
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.solver.branch_and_bound.stop import Stopwatch, interrupt_requested
from taut.solver.certificate.document import (
    FORMAT,
    MESHES,
    by_replica,
    claim_of,
    communication_gap,
    finite,
    inputs_of,
    status_of,
    strategy_values,
    workload_of,
)
from taut.solver.certificate.exact import MARGIN_FREE, Entry, exactness
from taut.solver.ladder.checks import Proof, derived_bound
from taut.solver.ladder.computations import Evaluation, first, strongest
from taut.solver.ladder.dominance import dominates_under_an_order, inherited, likely_dominating
from taut.solver.ladder.ladder import Ladder
from taut.solver.meshes.search import MeshSearch
from taut.solver.order_priced.layer_tree import LayerTree
from taut.solver.order_priced.witness import ByLayers, add_critical, parse_witness
from taut.solver.result import (
    CandidateBound,
    Incumbent,
    Limits,
    NearTie,
    SearchResult,
    Source,
    State,
    StoppedBy,
    relative_gap,
)
from taut.solver.signals import cut_short

NOTHING_FOUND: Mapping[Candidate, CandidateBound] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginFreeBound:
    """The bound in seconds, and what proves it."""

    seconds: float
    proofs: tuple[Proof, ...]


def margin_free_bound(
    ladder: Ladder,
    stop: Callable[[], bool] = lambda: False,
    likely: Candidate | None = None,
    found_with: Mapping[Candidate, CandidateBound] = NOTHING_FOUND,
    enough: float = math.inf,
) -> MarginFreeBound:
    """
    Global lower bound if no memory margin had to be kept.

    The least bound over all candidates, each by the strongest rungs that apply; those whose closed form is no better
    than the least so far are not bounded further. The ``likely`` one comes first, since a low bound saves the others
    work, and order-priced candidates come last, as in the search. A candidate has the bound of one that dominates it
    where that is no less than the least so far (``taut.solver.ladder.dominance`` (1)). From where ``stop`` says so,
    closed forms that are known already count alone. ``found_with`` are bounds with a margin: their trees of layers and
    lists are read anew, and a tree that still shows ``enough`` seconds, or the least so far, is taken, (4).
    """
    free, candidates = ladder.without_margin(), ladder.problem.candidates
    least, proofs, shown = np.inf, list[Proof](), dict[Candidate, Evaluation]()
    for index in sorted(range(len(candidates)), key=lambda i: (not _is(candidates[i], likely), *_turn(free, i))):
        candidate = candidates[index]
        if free.first(candidate)[0] >= least:
            continue
        if stop():
            found = first(free, candidate)
        else:
            read = _read_anew(free, found_with.get(candidate), least, enough)
            read = read or _inherited(free, shown, candidate, least)
            found = read or _branched(strongest(free, candidate, least), least, found_with.get(candidate))
            if found.source is Source.ORDER and "of" not in found.witness:
                shown[candidate] = found
        if found.source is not Source.RELAXATION:
            proofs.append(Proof(candidate=index, source=str(found.source), witness=found.witness))
        least = min(least, found.seconds)
    needed = tuple(proof for proof in proofs if _matters(free, proof, least))
    return MarginFreeBound(seconds=float(least), proofs=needed)


def _read_anew(free: Ladder, bound: CandidateBound | None, least: float, enough: float) -> Evaluation | None:
    """What a tree of layers shows without a margin, or None if not enough; of listed divisions their optimum."""
    if bound is None or bound.source is not Source.ORDER or not {"layers", "stated"} & bound.witness.keys():
        return None
    witness, enough = bound.witness, min(least, enough)
    if "stated" in witness:
        witness, enough = {"stated": witness["stated"]} | ({"limit_s": least} if least < math.inf else {}), 0.0
    seconds = derived_bound(free, bound.candidate, bound.source, witness)
    return Evaluation(seconds=seconds, source=bound.source, witness=witness) if enough <= seconds < math.inf else None


def _inherited(
    free: Ladder, shown: Mapping[Candidate, Evaluation], candidate: Candidate, enough: float
) -> Evaluation | None:
    """The bound of a candidate that dominates another and shows enough seconds; None where none does."""
    for other in likely_dominating(candidate, shown):
        if shown[other].seconds >= enough:
            of, given = (free.chunked(one) for one in (other, candidate))
            if dominates_under_an_order(of, given):
                return replace(shown[other], witness=inherited(candidate, other, shown[other].witness), order=None)
    return None


def _branched(found: Evaluation, limit: float, bound: CandidateBound | None) -> Evaluation:
    """
    The bound after the first branches of its tree of layers, if it has one and is below a limit in seconds.

    The tree begins with the critical paths that the witness of a ``bound`` with a margin states.
    """
    tree = None if found.order is None else found.order.branching
    if not isinstance(tree, LayerTree) or found.seconds >= limit:
        return found
    known = None if bound is None else parse_witness(bound.witness)
    if isinstance(known, ByLayers):
        add_critical(tree.rows, known.critical)
    tree.branch_early(limit)
    seconds = tree.seconds * (1 - ROUNDING)
    return replace(found, seconds=seconds, witness=tree.witness()) if seconds > found.seconds else found


def _matters(free: Ladder, proof: Proof, least: float) -> bool:
    """Whether a bound that takes no proof is not as good."""
    seconds, source = free.first(free.problem.candidates[proof.candidate])
    return source is Source.BALANCE or seconds < least


def _is(candidate: Candidate, likely: Candidate | None) -> bool:
    """Whether a candidate is the likely one; hashes are known, and a comparison makes two tuples."""
    return hash(candidate) == hash(likely) and candidate == likely


def _turn(free: Ladder, index: int) -> tuple[int, float, bool, int]:
    """Closed forms first, each kind by its closed form, and of equal ones those that may dominate others."""
    candidate = free.problem.candidates[index]
    return candidate.effort, free.first(candidate)[0], not candidate.sequence_parallel, -candidate.zero


def with_plainer(document: dict[str, Any], ties: Sequence[NearTie]) -> dict[str, Any]:
    """The document of a plan with the plainer plans that were found; itself where there are none."""
    if not ties:
        return document
    return document | {"plainer": [_plainer_values(tie) for tie in ties]}


def _plainer_values(tie: NearTie) -> dict[str, Any]:
    bounds = [candidate_values(bound) for bound in tie.bounds]
    return {
        "restriction": tie.restriction,
        **_placed(tie.incumbent),
        "step_time_s": tie.incumbent.seconds,
        "lower_bound_s": tie.lower_bound,
        "stopped_by": str(tie.stopped_by),
        "bounds": [{name: value for name, value in each.items() if name != "state"} for each in bounds],
    }


def _placed(plan: Incumbent) -> dict[str, Any]:
    """Strategy and placement of a plan."""
    devices = by_replica(plan.strategy.candidate, plan.devices).tolist()
    return {"strategy": strategy_values(plan.strategy), "placement": {"order": "pp,dp,tp", "devices": devices}}


MOST_PLACED = 20_000
"""Devices of all plans that stand beside the plan: one of 100,000 GPUs takes 600 kB, and a second to price."""


def _nearest(result: SearchResult, incumbent: Incumbent) -> dict[str, Any]:
    """The fastest plans of other candidates that are no faster; one that is faster stands among the plainer ones."""
    own = incumbent.strategy.candidate
    others = [each for each in result.nearest if each.strategy.candidate != own and each.seconds >= incumbent.seconds]
    kept = others[: MOST_PLACED // incumbent.devices.size]
    return {"nearest": [{**_placed(each), "step_time_s": each.seconds} for each in kept]} if kept else {}


BREAKDOWN = ("compute", "tensor_parallel", "pipeline_transfers", "data_parallel", "optimizer", "constant")
MOST_EXAMINED = 20
"""Examined choices of meshes that a document lists."""


def plan_document(
    problem: PlanningProblem, result: SearchResult, limits: Limits, method: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The plan as plain JSON values, with what is said of another ``method`` than the search that made it."""
    if result.incumbent is None:
        raise SolverError("the search found no plan to write down")
    incumbent, problem = result.incumbent, problem.with_orders(result.orders)
    priced = step_time(problem, incumbent.strategy, incumbent.devices)
    free = _margin_free(problem, result, limits)
    lower_bound = result.lower_bound if free is None else max(result.lower_bound, free.seconds)
    document = _frame(problem, FORMAT, incumbent.seconds, lower_bound)
    gap = document["certificate"]["gap"]
    document["certificate"] |= {
        "communication_gap": communication_gap(float(priced.total), paid(priced), lower_bound),
        "verified_gap": gap,
        "lower_bound_no_margin_s": None if free is None else finite(free.seconds),
        "candidates": [candidate_values(bound) for bound in result.bounds],
        "no_margin_proofs": [] if free is None else [_proof_values(proof) for proof in free.proofs],
    }
    return document | {
        **_placed(incumbent),
        "predicted": predicted(problem, incumbent.strategy, incumbent, priced),
        **beyond_values(problem, incumbent.strategy),
        **_exactness(problem, result, incumbent.seconds, -math.inf if free is None else free.seconds),
        **_nearest(result, incumbent),
        "provenance": _provenance(result, limits)
        | {"history": list(result.history)}
        | ({} if method is None else {"method": method}),
    }


def _proof_values(proof: Proof) -> dict[str, Any]:
    return {"candidate": proof.candidate, "source": proof.source, "witness": proof.witness}


def predicted(problem: PlanningProblem, strategy: Strategy, incumbent: Incumbent, time: StepTime) -> dict[str, Any]:
    """The ``predicted`` section: times, memory of the worst device of each stage, throughput."""
    capacity = _stage_capacity(problem, incumbent)
    seconds = float(time.total)
    return {
        "step_time_s": seconds,
        "breakdown_s": {part: float(getattr(time, part)) for part in BREAKDOWN},
        "memory_bytes": memory_bytes(problem, strategy),
        "margin_bytes": [problem.memory.margin_kib(kib) * KIB for kib in capacity],
        "capacity_bytes": [kib * KIB for kib in capacity],
        **_throughput(problem, seconds),
        **_computing(problem, incumbent),
    }


def _throughput(problem: PlanningProblem, seconds: float) -> dict[str, float | None]:
    """Tokens a second and model FLOP utilisation; None where a step takes no time."""
    flops, nodes = problem.model.training_flops() * problem.space.global_batch, problem.cluster.node_list
    peak = sum(n.gpus_per_node * (n.device.peak_flops(problem.memory.precision) or math.inf) for n in nodes)
    return {
        "tokens_per_s": problem.space.global_batch * problem.model.tokens / seconds if seconds else None,
        "mfu": flops / seconds / peak if seconds else None,
    }


def _computing(problem: PlanningProblem, incumbent: Incumbent) -> dict[str, float | None]:
    """Executed FLOP over what the peaks allow while devices compute, None if in no time; a mean device's seconds."""
    strategy, candidate = incumbent.strategy, incumbent.strategy.candidate
    layers = [*strategy.recompute_of_parts[candidate.end_parts :][: len(problem.model.blocks)]]
    layers += strategy.recompute[-1:] * len(problem.model.further)
    kept = problem.calibration or problem.memory
    flop = executed_flop(problem.model, layers, problem.space.recompute_modules, kept.kept)
    types = problem.type_of_node[problem.links.node_of[incumbent.devices]]
    of_chunk = types[device_of_chunk(candidate.schedule, candidate.pp, candidate.vpp)]
    seconds = problem.tables(candidate).seconds[:, *strategy.ranges]
    busy = seconds[of_chunk, np.arange(len(seconds[0]))[:, None, None]] * strategy.batches[:, None]
    specs = [problem.cluster.devices[name] for name in problem.device_types]
    peaks = np.array([spec.peak_flops(problem.memory.precision) or math.inf for spec in specs])
    total = float((peaks[of_chunk] * busy).sum())
    return {
        "hfu": flop * problem.space.global_batch / total if 0.0 < total < math.inf else None,
        "busy_s": float(busy.sum()) / incumbent.devices.size,
    }


def _stage_capacity(problem: PlanningProblem, incumbent: Incumbent) -> list[int]:
    """KiB of the smallest device that runs each stage."""
    types = problem.type_of_node[problem.links.node_of[incumbent.devices]]
    return [min(problem.capacity_kib[kind] for kind in set(stage.ravel().tolist())) for stage in types]


def paid(time: StepTime) -> float:
    """Seconds that every placement of the strategy pays."""
    return float(time.compute + time.tensor_parallel + time.optimizer + time.constant)


def beyond_values(problem: PlanningProblem, strategy: Strategy) -> dict[str, Any]:
    """The section of what lies beyond all runs of the calibration; none where nothing does."""
    found = [each._asdict() for each in beyond(problem, strategy)]
    return {"beyond": found} if found else {}


def mesh_document(problem: PlanningProblem, result: MeshSearch, limits: Limits) -> dict[str, Any]:
    """A plan of meshes as plain JSON values, with a bound over all choices of meshes; errors are as above."""
    if result.incumbent is None:
        raise SolverError("the search found no plan to write down")
    plan, types = result.incumbent.plan, problem.device_types
    document = _frame(problem, MESHES, result.incumbent.seconds, result.lower_bound)
    document["certificate"] |= {
        "choices": result.choices,
        "examined": [
            {"strategy": _choice_values(choice, types), "lower_bound_s": bound, "step_time_s": seconds}
            for choice, bound, seconds in result.examined[:MOST_EXAMINED]
        ],
    }
    return document | {
        "strategy": {
            **_choice_values(plan.choice, types),
            "stages": [list(stage) for stage in plan.division.stages],
            "recompute": list(plan.division.recompute),
            "rank_order": result.incumbent.order,
        },
        "devices": [stage for devices in plan.devices for stage in devices.tolist()],
        "predicted": _mesh_figures(problem, plan),
        "provenance": _provenance(result, limits),
    }


def _frame(problem: PlanningProblem, name: str, objective: float, lower_bound: float) -> dict[str, Any]:
    """What documents of both formats state alike: status, workload, the claim of the certificate, inputs."""
    gap, inputs = relative_gap(objective, lower_bound), inputs_of(problem)
    return {
        "format": name,
        "status": str(status_of(gap)),
        "workload": workload_of(problem),
        "certificate": {
            "objective_s": objective,
            "lower_bound_s": finite(lower_bound),
            "gap": gap,
            **claim_of(problem, inputs),
        },
        "inputs": inputs,
    }


def _choice_values(choice: MeshChoice, types: list[str]) -> dict[str, Any]:
    """A choice of meshes as the document states it."""
    names = ("tp", "dp", "pp", "micro_batch")
    meshes = [{"device": types[mesh.kind], **{name: getattr(mesh, name) for name in names}} for mesh in choice.meshes]
    shared = {"num_micro_batches": choice.num_micro_batches, "zero": choice.zero}
    return {"meshes": meshes, **shared, **({"all_recompute": choice.recompute} if choice.recompute else {})}


def _mesh_figures(problem: PlanningProblem, plan: MeshPlan) -> dict[str, Any]:
    """Seconds of a plan of meshes with their parts, bytes by stage, and throughput."""
    step, choice = mesh_step(problem, plan), plan.choice
    breakdown, capacity = asdict(step), [problem.capacity_kib[choice.meshes[k].kind] for k in choice.mesh_of_stage]
    return {
        "step_time_s": breakdown.pop("total"),
        "breakdown_s": breakdown,
        "memory_bytes": mesh_memory(problem, plan),
        "margin_bytes": [KIB * problem.memory.margin_kib(kib) for kib in capacity],
        "capacity_bytes": [KIB * kib for kib in capacity],
        **_throughput(problem, step.total),
    }


def _margin_free(problem: PlanningProblem, result: SearchResult, limits: Limits) -> MarginFreeBound | None:
    """The bound without a memory margin, or None, (4)."""
    if result.stopped_by is StoppedBy.INTERRUPT:
        return None
    left = math.inf if limits.time_limit is None else limits.time_limit - result.wall_s
    ladder = Ladder(problem, relaxations=result.relaxations)
    for bound in result.bounds:
        # What lacks more memory than the margin lacks memory without it.
        if bound.source is Source.ORDER_MEMORY and "missing" in bound.witness:
            ladder.note_missing(bound.candidate, bound.witness["missing"])
        elif bound.source is Source.MEMORY and "stage" in bound.witness and not bound.candidate.pipelines_by_type:
            ladder.note_missing(bound.candidate, bound.witness["missing_kib"] * KIB, bound.witness["stage"])
    with Stopwatch() as watch, interrupt_requested() as asked:
        best = None if result.incumbent is None else result.incumbent.strategy.candidate
        known, found = {bound.candidate: bound for bound in result.bounds}, None
        with cut_short():
            found = margin_free_bound(ladder, lambda: asked() or watch.seconds >= left, best, known, result.lower_bound)
        return None if asked() else found


def _exactness(problem: PlanningProblem, result: SearchResult, objective: float, free: float) -> dict[str, Any]:
    """What of the bound holds in exact arithmetic, as a check will say; nothing after Ctrl-C."""
    if result.stopped_by is StoppedBy.INTERRUPT:
        return {}
    entries = (Entry(each.candidate, each.lower_bound, each.source, each.witness) for each in result.bounds)
    left = (each.lower_bound for each in result.bounds if each.state in (State.OPEN, State.PRUNED))
    least = min([objective, *left])
    found = exactness(Ladder(problem, relaxations=result.relaxations), entries, least)
    return {"exactness": (found + MARGIN_FREE if free > least else found).report}


def candidate_values(bound: CandidateBound) -> dict[str, Any]:
    """The entry of a candidate: its bound, and what that rests on."""
    return {
        "strategy": bound.candidate.as_dict(),
        "state": str(bound.state),
        "lower_bound_s": finite(bound.lower_bound),
        "source": str(bound.source),
        "witness": bound.witness,
    }


def _provenance(result: SearchResult | MeshSearch, limits: Limits) -> dict[str, Any]:
    return {
        "taut": version("taut"),
        "python": platform.python_version(),
        "solvers": {name: version(name) for name in ("numpy", "numba", "scipy")},
        "seed": limits.seed,
        "limits": {"time_s": limits.time_limit, "work": limits.work_limit, "gap": limits.gap},
        "stopped_by": str(result.stopped_by),
        "work": result.work,
        "wall_s": result.wall_s,
    }


@dataclass(frozen=True, slots=True)
class Searched:
    """A number of nodes with its problem and the search that bounded it; ``bound`` alone where there is none."""

    nodes: int
    bound: float
    problem: PlanningProblem | None = None
    result: SearchResult | None = None


def node_counts_section(
    asked: Mapping[str, Any], document: Mapping[str, Any], chosen: int, searched: Sequence[Searched]
) -> dict[str, Any]:
    """The section of a plan document on ``chosen`` nodes, of every number of nodes searched, ascending."""
    from taut.solver.certificate.node_counts import NodeCountsSection

    own = document["certificate"]["lower_bound_s"] or 0.0
    inputs: dict[str, Any] = {}
    counts = [_count(each, inputs, own if each.nodes == chosen else None) for each in searched]
    section = {**asked, "value": 0.0, "lower_bound": 0.0, "gap": None, "inputs": inputs, "counts": counts}
    typed = NodeCountsSection.model_validate(section)
    per_node = document["workload"]["num_devices"] // chosen
    value = typed.value_of(per_node * chosen, document["certificate"]["objective_s"])
    bound = min(value, *(typed.value_of(per_node * each.nodes, each.seconds) for each in typed.counts))
    return section | {"value": value, "lower_bound": bound, "gap": relative_gap(value, bound)}


def _count(each: Searched, inputs: dict[str, Any], own: float | None) -> dict[str, Any]:
    if own is not None or each.problem is None or each.result is None:
        return {"nodes": each.nodes, "lower_bound_s": finite(each.bound if own is None else own)}
    problem = each.problem.with_orders(each.result.orders)
    stated = inputs_of(problem)
    inputs |= {section["sha256"]: section for section in stated.values()}
    return {
        "nodes": each.nodes,
        "lower_bound_s": finite(min(bound.lower_bound for bound in each.result.bounds)),
        "inputs": {role: section["sha256"] for role, section in stated.items()},
        "space": problem.space.model_dump(mode="json"),
        "candidates": [candidate_values(bound) for bound in each.result.bounds],
    }
