"""A certificate is accepted as written and refused after every corruption."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.data.model import ModelSpec
from taut.data.spec import digest
from taut.errors import DataError
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.certificate import verify
from taut.solver.certificate.document import problem_digest
from taut.solver.certificate.verify import retyped, verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.ladder.checks import derived_bound
from taut.solver.ladder.ladder import Ladder
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.formulations.test_expert_shards import routed
from tests.support.instances import random_problem
from tests.support.small import cluster, costs, model, problem

pytestmark = pytest.mark.proof

Document = dict[str, Any]


def document(given: PlanningProblem, limits: Limits | None = None) -> Document:
    limits = limits or Limits()
    made: Document = json.loads(json.dumps(plan_document(given, search(given, limits), limits)))
    return made


@pytest.fixture(scope="module")
def plan() -> Document:
    """A plan with infeasible, pruned and solved candidates, bounds of every source, and two stages or more."""
    rng = np.random.default_rng(5)
    rows = rng.uniform(0.002, 0.02, (4, 4)).tolist()
    spec = model(6)
    table = costs(spec, seconds={"block": 0.01}, optimizer=1e-9, activation_bytes=100_000)
    nodes = cluster(4, 2, rows=rows, memory_gib=2e-3)
    given = problem(nodes, spec, table=table, global_batch=16, fixed={"tp": 2})
    made = document(given)
    assert {entry["source"] for entry in made["certificate"]["candidates"]} >= {"memory", "relaxation", "placement"}
    assert made["strategy"]["pp"] > 1
    return made


def test_a_fresh_plan_holds(plan: Document) -> None:
    """The document as written is accepted, and its gap is derived again."""
    outcome = verify_document(plan)
    assert outcome.faults == ()
    assert outcome.holds
    assert outcome.gap == pytest.approx(plan["certificate"]["gap"], abs=1e-9)


@pytest.mark.parametrize("first", [0, pytest.param(30, marks=pytest.mark.long)])
def test_plans_of_random_problems_hold(first: int) -> None:
    """Plans of every shape of problem are accepted, stopped early or not, with overlapping reductions or without."""
    checked = 0
    for seed in range(first, first + 30):
        given = replace(random_problem(seed), overlap_grad_reduce=seed % 4 < 2)
        limits = Limits(work_limit=3 if seed % 2 else None, workers=1)
        result = search(given, limits)
        if result.incumbent is None:
            continue
        made = json.loads(json.dumps(plan_document(given, result, limits)))
        assert verify_document(made).faults == (), seed
        checked += 1
    assert checked > 20


def resigned(plan: Document) -> Document:
    """The document with digests that match its (corrupted) inputs."""
    for section in plan["inputs"].values():
        section["sha256"] = digest(section["spec"])
    certificate = plan["certificate"]
    certificate["problem_sha256"] = problem_digest(plan["inputs"], certificate)
    return plan


def _objective(plan: Document) -> None:
    plan["certificate"]["objective_s"] *= 0.99


def _objective_everywhere(plan: Document) -> None:
    plan["certificate"]["objective_s"] *= 0.99
    plan["predicted"]["step_time_s"] *= 0.99


def _bound(plan: Document) -> None:
    plan["certificate"]["lower_bound_s"] *= 1.001


def _bound_down(plan: Document) -> None:
    plan["certificate"]["lower_bound_s"] *= 0.5


def _no_bound(plan: Document) -> None:
    plan["certificate"]["lower_bound_s"] = None


def _gap(plan: Document) -> None:
    plan["certificate"]["gap"] = 0.5


def _communication_gap(plan: Document) -> None:
    plan["certificate"]["communication_gap"] = 0.5


def _verified_gap(plan: Document) -> None:
    plan["certificate"]["verified_gap"] = 0.5


def _no_margin(plan: Document) -> None:
    plan["certificate"]["lower_bound_no_margin_s"] *= 1.01


def _status(plan: Document) -> None:
    plan["status"] = "feasible" if plan["status"] == "optimal" else "optimal"


def _boundary(plan: Document) -> None:
    plan["strategy"]["stages"][0][1] += 1
    plan["strategy"]["stages"][1][0] += 1


def _gap_between_stages(plan: Document) -> None:
    plan["strategy"]["stages"][0][1] -= 1


def _recompute(plan: Document) -> None:
    recompute = plan["strategy"]["recompute"]
    recompute[0] = "full" if recompute[0] != "full" else "none"


def _degrees(plan: Document) -> None:
    plan["strategy"]["micro_batch"] *= 2


def _schedule(plan: Document) -> None:
    plan["strategy"]["schedule"] = "interleaved"


def _device_twice(plan: Document) -> None:
    devices = plan["placement"]["devices"]
    devices[0][0][0] = devices[1][0][0]


def _torn_group(plan: Document) -> None:
    devices = plan["placement"]["devices"]
    devices[0][0][0], devices[1][0][0] = devices[1][0][0], devices[0][0][0]


def _moved_group(plan: Document) -> None:
    devices = plan["placement"]["devices"]
    devices[0][0], devices[1][0] = devices[1][0], devices[0][0]


def _dropped_candidate(plan: Document) -> None:
    del plan["certificate"]["candidates"][3]


def _repeated_candidate(plan: Document) -> None:
    candidates = plan["certificate"]["candidates"]
    candidates[3] = copy.deepcopy(candidates[4])


def _shrunk_space(plan: Document) -> None:
    plan["certificate"]["space"]["schedules"] = ["1f1b"]


def _shrunk_space_and_candidates(plan: Document) -> None:
    certificate = plan["certificate"]
    certificate["space"]["schedules"] = ["1f1b"]
    certificate["candidates"] = [c for c in certificate["candidates"] if c["strategy"]["schedule"] == "1f1b"]


def _memory(plan: Document) -> None:
    plan["predicted"]["memory_bytes"][0] -= 1024


def _capacity(plan: Document) -> None:
    plan["predicted"]["capacity_bytes"][0] += 1024


def _margin(plan: Document) -> None:
    plan["predicted"]["margin_bytes"][0] += 1024


def _breakdown(plan: Document) -> None:
    plan["predicted"]["breakdown_s"]["compute"] *= 1.01


def _throughput(plan: Document) -> None:
    plan["predicted"]["tokens_per_s"] *= 2


def _cost(plan: Document) -> None:
    chosen = plan["strategy"]
    for row in plan["inputs"]["costs"]["spec"]["rows"]:
        if (row["tp"], row["micro_batch"]) == (chosen["tp"], chosen["micro_batch"]):
            row["forward_s"] *= 0.5


def _model(plan: Document) -> None:
    plan["inputs"]["model"]["spec"]["hidden"] = 128


def _bandwidth(plan: Document) -> None:
    plan["inputs"]["cluster"]["spec"]["bandwidth_matrix"]["rows"][0][1] *= 2


def _digest(plan: Document) -> None:
    plan["inputs"]["costs"]["sha256"] = "0" * 64


def _problem_digest(plan: Document) -> None:
    plan["certificate"]["problem_sha256"] = "0" * 64


def _latency_model(plan: Document) -> None:
    plan["certificate"]["latency_model"] = "amp"


def _overlap(plan: Document) -> None:
    plan["certificate"]["overlap_grad_reduce"] ^= True


def _first(plan: Document, **wanted: str) -> Document:
    entries: list[Document] = plan["certificate"]["candidates"]
    return next(entry for entry in entries if all(entry[name] == value for name, value in wanted.items()))


def _candidate_bound(plan: Document) -> None:
    _first(plan, source="relaxation")["lower_bound_s"] *= 1.01


def _candidate_source(plan: Document) -> None:
    _first(plan, source="relaxation")["source"] = "claimed"


def _stronger_source(plan: Document) -> None:
    _first(plan, source="relaxation")["source"] = "memory"


def _hidden_candidate(plan: Document) -> None:
    entry = _first(plan, state="pruned")
    entry["state"], entry["source"], entry["lower_bound_s"] = "infeasible", "memory", None
    entry["witness"] = {"missing_kib": 1, "stage": 0}


def _witness(plan: Document) -> None:
    _first(plan, state="infeasible")["witness"]["missing_kib"] += 1


def _witness_stage(plan: Document) -> None:
    _first(plan, state="infeasible")["witness"]["stage"] += 1


def _renamed_input(plan: Document) -> None:
    plan["inputs"]["cluster"]["name"] = "another"


def _huge_memory(plan: Document) -> None:
    plan["predicted"]["memory_bytes"][0] = 10**400


def _huge_stage(plan: Document) -> None:
    plan["strategy"]["stages"][-1][1] = 10**400


def _huge_seconds(plan: Document) -> None:
    plan["predicted"]["step_time_s"] = 10**400


def _huge_bound(plan: Document) -> None:
    _first(plan, source="relaxation")["lower_bound_s"] = 10**400


def _true_for_one(plan: Document) -> None:
    entry = next(c for c in plan["certificate"]["candidates"] if c["strategy"]["pp"] == 1)
    entry["strategy"]["pp"] = True


def _recompute_modules(plan: Document) -> None:
    plan["certificate"]["space"]["recompute_modules"] = ["mlp"]


def _offload(plan: Document) -> None:
    plan["inputs"]["memory_model"]["spec"]["optimizer_offload_fraction"] = 0.5


def _unknown_fixed(plan: Document) -> None:
    plan["certificate"]["space"]["fixed"] = {"foo": 1}


def _text_for_number(plan: Document) -> None:
    plan["inputs"]["costs"]["spec"]["rows"][0]["forward_s"] = "0.01"


def _state(plan: Document) -> None:
    _first(plan, state="infeasible")["state"] = "pruned"


def _nearest_faster(plan: Document) -> None:
    plan["nearest"][0]["step_time_s"] *= 1 - 1e-6


def _nearest_of_the_plan(plan: Document) -> None:
    plan["nearest"][0] |= {name: plan[name] for name in ("strategy", "placement")}
    plan["nearest"][0]["step_time_s"] = plan["certificate"]["objective_s"]


def _nearest_device_twice(plan: Document) -> None:
    plan["nearest"][0]["placement"]["devices"][0][0][0] = plan["nearest"][0]["placement"]["devices"][-1][-1][-1]


def _nearest_unknown(plan: Document) -> None:
    plan["nearest"][0]["strategy"]["micro_batch"] *= 3


CORRUPTIONS = [
    value for name, value in list(globals().items()) if name.startswith("_") and callable(value) and name != "_first"
]


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda corrupt: corrupt.__name__.strip("_"))
def test_corruption_is_refused(plan: Document, corrupt: Callable[[Document], None]) -> None:
    """One corrupted figure, whatever it is, makes the check fail."""
    changed = copy.deepcopy(plan)
    corrupt(changed)
    assert not _accepted(changed)


@pytest.mark.parametrize(
    "corrupt", [_cost, _model, _bandwidth, _shrunk_space, _latency_model, _offload, _unknown_fixed, _text_for_number]
)
def test_corruption_with_matching_digests_is_refused(plan: Document, corrupt: Callable[[Document], None]) -> None:
    """Recomputing the digests does not help: the figures themselves are derived again."""
    changed = copy.deepcopy(plan)
    corrupt(changed)
    assert not _accepted(resigned(changed))


@pytest.fixture(scope="module")
def overlapping() -> Document:
    """A plan whose reductions overlap the backward pass, of stages larger than a bucket of 40 million parameters."""
    # A layer of 12 x 2048^2 parameters has 200 MB of gradients, 0.2 s at 1 GB/s beside 0.03 s of computation.
    spec = ModelSpec.parse({"name": "wide", "layers": 4, "hidden": 2048, "heads": 16, "seq": 100}, "wide")
    table = costs(spec, seconds={"block": 0.01}, optimizer=1e-10)
    given = problem(cluster(4, 1, memory_gib=80.0), spec, table=table, latency_model="step", fixed={"dp": 2})
    made = document(replace(given, overlap_grad_reduce=True))
    assert made["predicted"]["breakdown_s"]["data_parallel"] > 0
    return made


@pytest.mark.parametrize("corrupt", [_overlap, _latency_model, _breakdown, _objective_everywhere])
def test_corruption_of_a_whole_step_is_refused(overlapping: Document, corrupt: Callable[[Document], None]) -> None:
    """What a step waits for after its passes is priced again, whether reductions overlap or not."""
    assert verify_document(overlapping).holds
    changed = copy.deepcopy(overlapping)
    corrupt(changed)
    assert not _accepted(changed)
    assert not _accepted(resigned(changed))


@pytest.fixture(scope="module")
def copies() -> Document:
    """A plan of two copies on two nodes, which sum their shares between the nodes once a step."""
    slow = 0.05
    nodes = cluster(2, 2, rows=[[0.0, slow], [slow, 0.0]])
    table = costs(model(), seconds={"block": 1e-4})
    made = document(problem(nodes, table=table, latency_model="step", max_tp=1, zero=[2, 3], fixed={"pp": 1}))
    assert made["strategy"]["dp_shard"] == 2
    return made


@pytest.fixture(scope="module")
def expert_copies() -> Document:
    """A plan of several copies beside expert ranks, which sum shards of experts and of all else between the nodes."""
    given, fixed = routed(seconds=1e-4, nodes=4), {"pp": 1, "ep": 2, "micro_batch": 1}
    made = document(replace(given, space=given.space.model_copy(update={"global_batch": 16, "fixed": fixed})))
    assert made["strategy"]["dp_shard"] == 2
    return made


def _other_shards(plan: Document) -> None:
    plan["strategy"]["dp_shard"] = 4


def _no_shards(plan: Document) -> None:
    del plan["strategy"]["dp_shard"]


def _no_copies_in_candidates(plan: Document) -> None:
    kept = [entry for entry in plan["certificate"]["candidates"] if "dp_shard" not in entry["strategy"]]
    plan["certificate"]["candidates"] = kept


def _whole_copies_in_candidates(plan: Document) -> None:
    for entry in plan["certificate"]["candidates"]:
        entry["strategy"].pop("dp_shard", None)


def _fixed_shards(plan: Document) -> None:
    plan["certificate"]["space"]["fixed"]["dp_shard"] = 4


@pytest.mark.parametrize(
    "corrupt",
    [
        *(_other_shards, _no_shards, _no_copies_in_candidates, _whole_copies_in_candidates, _fixed_shards),
        *(_latency_model, _breakdown, _objective_everywhere),
    ],
)
@pytest.mark.parametrize("written", ["copies", "expert_copies"])
def test_corruption_of_several_copies_is_refused(
    written: str, corrupt: Callable[[Document], None], request: pytest.FixtureRequest
) -> None:
    """How many replicas share a copy is part of the plan, of its candidates and of the space; beside experts too."""
    made: Document = request.getfixturevalue(written)
    assert verify_document(made).holds
    changed = copy.deepcopy(made)
    corrupt(changed)
    assert not _accepted(changed)
    assert not _accepted(resigned(changed))


@pytest.fixture(scope="module")
def contexts() -> Document:
    """A plan of two context ranks on two nodes, whose ring attention hides."""
    rows = [[0.0, 1.0], [1.0, 0.0]]
    table = costs(model(), seconds={"block": 1e-4})
    table = table.model_copy(update={"rows": [row.model_copy(update={"cp": 2}) for row in table.rows]})
    nodes = cluster(2, 1, rows=rows)
    for group in nodes.nodes:
        group.device.peak_tflops["bf16"] = 1e-3
    given = problem(nodes, table=table, latency_model="step", max_tp=1, max_cp=2, fixed={"cp": 2})
    kinds = {"cp_comm": ["p2p", "all_gather", "a2a"], "overlap_context": True}
    made = document(replace(given, space=given.space.model_copy(update=kinds)))
    assert made["strategy"]["cp_comm"] == "p2p"
    return made


def _other_kind(plan: Document) -> None:
    plan["strategy"]["cp_comm"] = "a2a"


def _no_overlap(plan: Document) -> None:
    del plan["certificate"]["space"]["overlap_context"]


def _gathers(plan: Document) -> None:
    plan["certificate"]["space"]["cp_comm"] = ["all_gather"]


@pytest.mark.parametrize("corrupt", [_other_kind, _gathers, _no_overlap, _objective_everywhere])
def test_corruption_of_context_ranks_is_refused(contexts: Document, corrupt: Callable[[Document], None]) -> None:
    """How context ranks share attention, and what it hides, is part of the plan and of its space."""
    assert verify_document(contexts).holds
    changed = copy.deepcopy(contexts)
    corrupt(changed)
    assert not _accepted(changed)
    assert not _accepted(resigned(changed))


@pytest.fixture(scope="module")
def ends() -> Document:
    """A plan of two devices with two chunks each, embedding and head as slow as a layer."""
    spec = ModelSpec.parse({"name": "m", "layers": 3, "hidden": 64, "heads": 4, "seq": 128, "vocab": 256}, "m")
    plain = [row for row in costs(spec).rows if row.recompute == "none"]
    alike = [row.model_copy(update={"kind": kind}) for row in plain for kind in ("embedding", "head")]
    table = costs(spec).model_copy(update={"rows": [*costs(spec).rows, *alike]})
    given = problem(cluster(1, 2), spec, table=table, latency_model="step", max_tp=1, fixed={"pp": 2})
    update = {"schedules": ["interleaved-1f1b"], "max_vpp": 2, "empty_ends": True}
    made = document(replace(given, space=given.space.model_copy(update=update)))
    assert made["strategy"]["empty_ends"]
    assert made["strategy"]["stages"][-1][1] == 3
    return made


def _no_ends(plan: Document) -> None:
    del plan["strategy"]["empty_ends"]


def _no_ends_in_the_space(plan: Document) -> None:
    del plan["certificate"]["space"]["empty_ends"]


def _no_ends_in_candidates(plan: Document) -> None:
    for entry in plan["certificate"]["candidates"]:
        entry["strategy"].pop("empty_ends", None)


def _one_layer_more(plan: Document) -> None:
    plan["strategy"]["stages"][-1][1] += 1


@pytest.mark.parametrize(
    "corrupt", [_no_ends, _no_ends_in_the_space, _no_ends_in_candidates, _one_layer_more, _objective_everywhere]
)
def test_corruption_of_end_chunks_is_refused(ends: Document, corrupt: Callable[[Document], None]) -> None:
    """Whether end chunks may have no layers is part of the plan, of its candidates and of the space."""
    assert verify_document(ends).holds
    changed = copy.deepcopy(ends)
    corrupt(changed)
    assert not _accepted(changed)
    assert not _accepted(resigned(changed))


def test_workload_stands_first(overlapping: Document) -> None:
    """A plan begins with what is planned: batch, sequence length and latency model, as the inputs say."""
    assert list(overlapping)[:3] == ["format", "status", "workload"]
    shape = {"num_devices": 4, "global_batch": 8, "sequence_length": 100}
    names = {"model": "wide", "cluster": "small", "latency_model": "step", "overlap_grad_reduce": True}
    assert overlapping["workload"] == names | shape


def test_a_plan_of_an_earlier_version_has_no_overlap(plan: Document) -> None:
    """A file without the fields is read as one whose reductions follow the backward pass."""
    changed = copy.deepcopy(plan)
    del changed["workload"]
    del changed["certificate"]["overlap_grad_reduce"]
    assert verify_document(changed).holds


@pytest.mark.parametrize("name", ["hfu", "busy_s"])
def test_a_plan_of_an_earlier_version_has_no_figures_of_computation(plan: Document, name: str) -> None:
    """A file without the field is checked without it; another figure, or none, in its place is refused."""
    changed = copy.deepcopy(plan)
    figure = changed["predicted"].pop(name)
    assert figure > 0 and verify_document(changed).holds
    for other in (1.01 * figure, None):
        changed["predicted"][name] = other
        assert not verify_document(changed).holds


def _accepted(changed: Document) -> bool:
    try:
        return verify_document(changed).holds
    except DataError:
        return False


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all numbers, booleans and texts below a value."""
    if isinstance(value, dict):
        return [leaf for name, inner in value.items() for leaf in _leaves(inner, (*path, name))]
    if isinstance(value, list):
        return [leaf for index, inner in enumerate(value) for leaf in _leaves(inner, (*path, index))]
    return [path]


def _mutated(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + int(rng.choice([-1, 1, 7]))
    if isinstance(value, float):
        return value * float(rng.choice([0.9, 1.0001, 2.0])) if value else 1.0
    return 0.25 if value is None else value + "x"


def test_any_single_changed_entry_is_refused(plan: Document) -> None:
    """Of all numbers, words and flags outside the provenance, none can change unnoticed."""
    rng = np.random.default_rng(0)
    paths = [p for p in _leaves(plan) if p[0] != "provenance"]
    chosen = [p for p in paths if p[0] != "certificate" and p[0] != "inputs"]
    for section in ("certificate", "inputs"):
        inside = [p for p in paths if p[0] == section]
        chosen += [inside[i] for i in rng.choice(len(inside), size=60, replace=False)]
    for path in chosen:
        changed = copy.deepcopy(plan)
        holder = changed
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = _mutated(holder[path[-1]], rng)
        assert not _accepted(changed), path


@pytest.mark.parametrize("section", ["format", "strategy", "placement", "predicted", "certificate", "inputs", "status"])
def test_missing_section_is_bad_input(plan: Document, section: str) -> None:
    """A document without one of its sections is refused in one line that names it."""
    changed = copy.deepcopy(plan)
    del changed[section]
    with pytest.raises(DataError, match=section) as refusal:
        verify_document(changed, "plan.json")
    assert "\n" not in str(refusal.value)


def test_stopped_search_is_certified_with_its_open_candidates() -> None:
    """A search cut short yields a certificate that holds, with a gap above zero."""
    rng = np.random.default_rng(3)
    given = problem(cluster(6, 2, rows=rng.uniform(0.001, 0.1, (12, 12)).tolist()), model(6), global_batch=12)
    made = document(given, Limits(work_limit=5))
    outcome = verify_document(made)
    assert outcome.holds
    assert made["status"] == "feasible"
    assert any(entry["state"] == "open" for entry in made["certificate"]["candidates"])


def test_a_false_bound_of_another_candidate_meets_its_plan(plan: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the code of bounds raises one beyond the plan that the search found of that candidate, this is named."""
    near = plan["nearest"][0]
    place = next(
        k
        for k, entry in enumerate(plan["certificate"]["candidates"])
        if all(near["strategy"][name] == value for name, value in entry["strategy"].items())
    )
    changed, false = copy.deepcopy(plan), near["step_time_s"] * (1 + 1e-6)
    entry = changed["certificate"]["candidates"][place]
    entry["lower_bound_s"], entry["state"] = false, "pruned"

    def planted(ladder: Ladder, candidate: Candidate, source: str, witness: dict[str, Any]) -> float:
        at_fault = candidate.as_dict() == entry["strategy"]
        return false if at_fault else derived_bound(ladder, candidate, source, witness)

    monkeypatch.setattr(verify, "derived_bound", planted)
    (fault,) = verify_document(changed).faults
    assert fault.startswith("nearest.0: the bound") and "exceeds its plan of" in fault
    del changed["nearest"]
    assert not any(fault.startswith("nearest") for fault in verify_document(changed).faults)


def test_samples_and_what_the_space_leaves_out_are_stated(plan: Document) -> None:
    """A check says how many plans it priced against the bounds, and names what was fixed."""
    outcome = verify_document(plan)
    assert outcome.sampled >= outcome.feasible_samples > 0
    assert "fixed: tp=2" in outcome.narrowed
    again = verify_document(plan)
    assert (again.sampled, again.feasible_samples) == (outcome.sampled, outcome.feasible_samples)


def test_a_loss_of_an_older_plan_is_a_truth_value() -> None:
    """True is read as the loss of Transformer Engine and false as none; any other truth value for a word is a fault."""
    assert list(retyped("spec", {"fused_loss": True}, {"fused_loss": "te"})) == []
    assert list(retyped("spec", {"fused_loss": False}, {"fused_loss": "none"})) == []
    assert list(retyped("spec", {"fused_loss": True}, {"fused_loss": "native"})) != []
    assert list(retyped("spec", {"name": "true"}, {"name": True})) != []
