"""The check of a plan of meshes: its own evaluator, and what it refuses."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from taut.errors import DataError
from taut.formulations.gradient_reductions import hierarchical_ring, seconds_of_best
from taut.formulations.meshes import step_time
from taut.formulations.meshes.choice import MeshChoice
from taut.formulations.meshes.step_time import Crossing, crossing, mesh_memory, mesh_step, mesh_violations
from taut.formulations.tables.block_traffic import BlockSeconds
from taut.solver.bounds.least_rings import ring_per_byte
from taut.solver.certificate.reference.meshes import Meshes, MeshFigures, every_choice
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import mesh_document
from taut.solver.layer_division.known_devices import Waits
from taut.solver.meshes import bound
from taut.solver.meshes.bound import HopRange, hop_range
from taut.solver.meshes.search import search_meshes
from taut.solver.result import Limits
from tests.solver.certificate.test_independence import FORBIDDEN, reached
from tests.support.blocks import blocks
from tests.support.meshes import mesh_choices, mesh_problem, random_plan
from tests.support.reference import case_of, small_buckets


def meshes_of(choice: MeshChoice) -> Meshes:
    """A choice as the reference evaluator takes it."""
    each = tuple((mesh.kind, mesh.tp, mesh.dp, mesh.pp, mesh.micro_batch) for mesh in choice.meshes)
    return Meshes(each, choice.num_micro_batches, choice.zero, choice.recompute)


@pytest.mark.parametrize("block", [0, *(pytest.param(k, marks=pytest.mark.proof) for k in range(1, 6))])
def test_two_evaluators_agree(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices, seconds, bytes and broken rules of random plans are the same for the reference evaluator."""
    small_buckets(monkeypatch)
    for seed in range(15 * block, 15 * (block + 1)):
        problem, rng = mesh_problem(seed), np.random.default_rng(seed)
        choices, case = mesh_choices(problem), case_of(problem)
        assert sorted(map(repr, every_choice(case))) == sorted(repr(meshes_of(choice)) for choice in choices)
        for k in rng.permutation(len(choices))[:4].tolist():
            plan = random_plan(rng, problem, choices[k])
            division = plan.division
            figures = MeshFigures(case, meshes_of(choices[k]), division.stages, division.recompute, plan.devices)
            assert figures.total() == pytest.approx(mesh_step(problem, plan).total, rel=1e-9), (seed, choices[k])
            assert figures.memory() == mesh_memory(problem, plan)
            assert len([*figures.faults()]) == len(mesh_violations(problem, plan))


@cache
def document(seed: int = 0) -> str:
    """The plan of a problem with a gap, as JSON; of the first problem from a seed that has one."""
    while True:
        problem = mesh_problem(seed)
        found = search_meshes(problem, Limits())
        if found.incumbent is not None and found.lower_bound < found.incumbent.seconds * 0.999:
            return json.dumps(mesh_document(problem, found, Limits()))
        seed += 1


@pytest.mark.parametrize("block", blocks(12))
@pytest.mark.proof
def test_what_is_written_holds(block: int) -> None:
    """Plans that the search finds are accepted, with the bound that it states."""
    written = 0
    for seed in range(10 * block, 10 * (block + 1)):
        problem = mesh_problem(seed)
        found = search_meshes(problem, Limits())
        if found.incumbent is not None:
            outcome = verify_document(json.loads(json.dumps(mesh_document(problem, found, Limits()))))
            assert outcome.holds, (seed, outcome.faults)
            assert outcome.lower_bound == found.lower_bound and outcome.sampled >= outcome.feasible_samples
            written += 1
    assert written >= 5


def _set(value: Any, *path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(values: Any) -> None:
        for part in path[:-1]:
            values = values[part]
        old = values[path[-1]]
        values[path[-1]] = value(old) if callable(value) else value

    return change


TAMPERED = {
    "step time": _set(lambda s: s * 1.001, "predicted", "step_time_s"),
    "objective": _set(lambda s: s * 0.999, "certificate", "objective_s"),
    "bound": _set(lambda s: s * 1.0005, "certificate", "lower_bound_s"),
    "gap": _set(0.0, "certificate", "gap"),
    "status": _set("optimal", "status"),
    "memory": _set(lambda kept: [kept[0] - 1, *kept[1:]], "predicted", "memory_bytes"),
    "capacity": _set(lambda kept: [kept[0] + 1, *kept[1:]], "predicted", "capacity_bytes"),
    "part": _set(lambda s: s + 1.0, "predicted", "breakdown_s", "passes"),
    "parts moved": _set(
        lambda parts: {**dict.fromkeys(parts, 0.0), "passes": sum(parts.values())}, "predicted", "breakdown_s"
    ),
    "part less": _set(lambda parts: {k: v for k, v in parts.items() if k != "constant"}, "predicted", "breakdown_s"),
    "margin": _set(lambda margins: [each + 1 for each in margins], "predicted", "margin_bytes"),
    "no margin": _set(None, "predicted", "margin_bytes"),
    "utilisation": _set(0.99, "predicted", "mfu"),
    "no utilisation": _set(None, "predicted", "mfu"),
    "tokens": _set(lambda s: s * 2, "predicted", "tokens_per_s"),
    "choices": _set(lambda n: n + 1, "certificate", "choices"),
    "examined bound": _set(lambda s: s * 1.001, "certificate", "examined", 0, "lower_bound_s"),
    "examined plan": _set(lambda s: s * 0.9, "certificate", "examined", -1, "step_time_s"),
    "examined choice": _set(lambda b: 2 * b, "certificate", "examined", 0, "strategy", "num_micro_batches"),
    "digest": _set("0" * 64, "certificate", "problem_sha256"),
    "input": _set("another", "inputs", "model", "name"),
    "micro-batch": _set(lambda b: 2 * b, "strategy", "meshes", 0, "micro_batch"),
    "micro-batches": _set(lambda m: m + 1, "strategy", "num_micro_batches"),
    "zero": _set(2, "strategy", "zero"),
    "device type": _set("nothing", "strategy", "meshes", 0, "device"),
    "stages": _set(lambda stages: stages[::-1], "strategy", "stages"),
    "recompute": _set(lambda kinds: ["some", *kinds[1:]], "strategy", "recompute"),
    "device twice": _set(lambda stages: [stages[-1], *stages[1:]], "devices"),
    "stage less": _set(lambda stages: stages[:-1], "devices"),
    "types exchanged": _set(lambda meshes: meshes[::-1], "strategy", "meshes"),
    "space": _set(lambda n: n * 2, "certificate", "space", "global_batch"),
}


def raised_bound(values: dict[str, Any]) -> None:
    """A bound between the derived one and the objective, with gap and status that follow from it."""
    stated = values["certificate"]
    stated["lower_bound_s"] = (stated["lower_bound_s"] + stated["objective_s"]) / 2
    stated["gap"] = (stated["objective_s"] - stated["lower_bound_s"]) / stated["objective_s"]


def test_the_plan_that_is_changed_below_holds() -> None:
    """As it is written it is accepted."""
    assert verify_document(json.loads(document())).holds


@pytest.mark.parametrize("change", [*TAMPERED.values(), raised_bound], ids=[*TAMPERED, "raised bound"])
def test_a_changed_figure_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    """With any one figure, degree, stage or device changed the plan does not hold."""
    values = copy.deepcopy(json.loads(document()))
    change(values)
    assert not verify_document(values).holds


def test_another_document_is_bad_input() -> None:
    """A field of the wrong type, or another format, is one line that names it."""
    values = json.loads(document())
    with pytest.raises(DataError, match=r"plan: strategy.meshes.0.tp: is 'four'"):
        verify_document(values | {"strategy": values["strategy"] | {"meshes": [{"tp": "four", "device": "d"}]}})
    with pytest.raises(DataError, match="expected a taut-plan/1 document"):
        verify_document(values | {"format": "taut-plan/1"})


SOUND: list[tuple[Any, str, Any]] = [
    (step_time, "crossing", crossing),
    (step_time, "hierarchical_ring", hierarchical_ring),
    (bound, "ring_per_byte", ring_per_byte),
    (bound, "hop_range", hop_range),
    (bound, "seconds_of_best", seconds_of_best),
    (bound, "Waits", Waits),
]
"""What the bugs below replace."""
BUGS: dict[str, tuple[Any, str, Any]] = {
    "crossings for nothing": (step_time, "crossing", lambda *given: _free(crossing(*given))),
    "reductions forgotten": (step_time, "hierarchical_ring", lambda *_: 0.0),
    "rings of bounds forty-fold": (bound, "ring_per_byte", lambda *given: 40 * ring_per_byte(*given)),
    "hops of bounds thirty-fold": (bound, "hop_range", lambda *given: _longer(hop_range(*given))),
    "traffic of bounds ten-fold": (bound, "seconds_of_best", lambda *given: _slower(seconds_of_best(*given))),
    "reductions of bounds follow all passes": (bound, "Waits", lambda **given: _following(Waits(**given))),
}


def _following(given: Waits) -> Waits:
    """Every stage waits for the passes of all."""
    return given._replace(forward=given.seconds, before=given.cuts)


def _longer(found: HopRange) -> HopRange:
    return found._replace(least=30 * found.least)


def _slower(found: BlockSeconds) -> BlockSeconds:
    return found._replace(both=10 * found.both, forward=10 * found.forward)


def _free(found: Crossing) -> Crossing:
    return found._replace(forth=0 * found.forth, back=0 * found.back)


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.proof
def test_planted_bugs_do_not_pass(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With prices or bounds that are wrong, all of the false certificates are refused, and some there are."""
    monkeypatch.setattr(*BUGS[bug])
    false = refused = 0
    for seed in range(25):
        problem = mesh_problem(seed)
        found = search_meshes(problem, Limits())
        if found.incumbent is None:
            continue
        with pytest.MonkeyPatch.context() as clean:
            for sound in SOUND:
                clean.setattr(*sound)
            truth = search_meshes(problem, Limits())
            seconds = mesh_step(problem, found.incumbent.plan).total
        wrong_time = abs(found.incumbent.seconds - seconds) > 1e-9 * seconds
        assert truth.incumbent is not None
        if wrong_time or found.lower_bound > truth.incumbent.seconds * (1 + 1e-9):
            false += 1
            refused += not verify_document(json.loads(json.dumps(mesh_document(problem, found, Limits())))).holds
    assert false >= 3 and refused == false, (false, refused)


def test_the_check_reaches_no_search() -> None:
    """The reference evaluator of meshes imports neither the search nor the formulas that it checks."""
    chains = reached("taut.solver.certificate.reference.meshes")
    refused = (*FORBIDDEN, "taut.formulations.meshes", "taut.solver.meshes")
    assert [chain for name, chain in chains.items() if name.startswith(refused)] == []


def test_a_plan_without_memory_is_refused() -> None:
    """The same plan on devices with half of what its fullest stage needs breaks the rule of memory."""
    problem = next(p for p in map(mesh_problem, range(100)) if search_meshes(p, Limits()).incumbent)
    found = search_meshes(problem, Limits())
    assert found.incumbent is not None
    need = max(mesh_memory(problem, found.incumbent.plan)) / 2**31
    nodes = [
        group.model_copy(update={"device": group.device.model_copy(update={"memory_gib": need})})
        for group in problem.cluster.nodes
    ]
    small = replace(problem, cluster=problem.cluster.model_copy(update={"nodes": nodes}))
    outcome = verify_document(json.loads(json.dumps(mesh_document(small, found, Limits()))))
    assert any("bytes" in fault for fault in outcome.faults)
