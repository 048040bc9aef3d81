"""A space is compared with what its stack runs: every choice that is taken away is named, and nothing else."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from taut.data.costs import CostRow
from taut.data.load import load_cluster, load_model, load_stack
from taut.data.model import ModelSpec
from taut.errors import TautError
from taut.formulations.space import StrategySpace
from taut.formulations.stack_space import stack_space
from taut.planning.request import PlanRequest
from taut.planning.resolve import resolved_problem
from taut.solver.certificate.narrowed import held, narrowed, renamed, unpriced, unsearched
from tests.support.small import cluster, model

LAYERS = 8
EXPERTS = "experts: split over tensor ranks, all on every replica (left out: expert parallelism, ep > 1)"
CHUNKED = {"schedules": ["1f1b", "gpipe", "interleaved-1f1b"]}


def words(**space: Any) -> list[str]:
    """What is taken away from a space on two nodes of four devices, and what is not searched, once written down."""
    values = StrategySpace(**{"global_batch": 8, "max_tp": 4, **space}).model_dump(mode="json")
    taken_away = narrowed(values, model(LAYERS), cluster(2, 4), mechanisms=False)
    return [*taken_away, *unsearched(values, layers=LAYERS)]


def test_the_default_space_leaves_nothing_out() -> None:
    """Neither the papers' space nor a wider one is narrowed."""
    assert words() == []
    assert words(zero=[0, 1, 2, 3], max_tp=8, schedules=["1f1b", "gpipe", "zb-v"]) == []


def whole(name: str = "megatron-core", *, experts: bool = False) -> dict[str, Any]:
    """The whole space of a stack on two nodes of four devices, as a plan states it."""
    return stack_space(load_stack(name), job(experts=experts), cluster(2, 4), 8).model_dump(mode="json")


def job(*, experts: bool = False) -> ModelSpec:
    """Eight layers of 8,192 tokens, with or without eight experts each."""
    values = {**load_model("mixtral-8x22b" if experts else "llama3-8b").model_dump(), "seq": 8192, "layers": LAYERS}
    return ModelSpec.parse(values, "job")


@pytest.mark.parametrize("name", ["megatron-core", "torchtitan", "deepspeed", "flagscale", "any"])
@pytest.mark.parametrize("experts", [False, True])
def test_what_a_stack_runs_is_no_narrowing(name: str, experts: bool) -> None:
    """The whole of a stack's space is stated in a line, and nothing of it is missing."""
    space, stack = whole(name, experts=experts), load_stack(name)
    lost = [*narrowed(space, job(experts=experts), cluster(2, 4))]
    assert lost == ([EXPERTS] if experts and not stack.expert_parallel else [])
    written = "taut" if name == "any" else name
    assert f"is what {written} runs: schedules {', '.join(stack.schedules)}; ZeRO" in held(space)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"schedules": ["1f1b"]}, "schedules: 1f1b (left out: interleaved-1f1b)"),
        ({"zero": [0, 1]}, "zero: 0, 1 (left out: 2, 3)"),
        ({"zero": [1]}, "zero: 1 (left out: 0, 2, 3)"),
        ({"pipeline_zero": [0]}, "zero in pipelines: 0 (left out: 1)"),
        ({"sequence_parallel": [True]}, "sequence_parallel: true (left out: false)"),
        ({"recompute": ["none"]}, "recompute: none (left out: selective, full)"),
        ({"recompute": ["none", "full"]}, "recompute: none, full (left out: selective)"),
        ({"max_tp": 1}, "max_tp: at most 1, not 4"),
        ({"max_tp": 2}, "max_tp: at most 2, not 4"),
        ({"max_cp": 1}, "max_cp: at most 1, not 2"),
        ({"cp_comm": ["p2p"]}, "cp_comm: p2p (left out: all_gather, a2a, a2a+p2p)"),
        ({"max_vpp": 1}, "max_vpp: at most 1, not 4"),
        ({"max_even_vpp": 0}, "max_even_vpp: at most 0, not 8"),
        ({"empty_ends": False}, "empty_ends: false, not true"),
        ({"hybrid_sharding": False}, "hybrid_sharding: false, not true"),
        ({"divisions": ["even"]}, "divisions: even (left out: layout)"),
        ({"fixed": {"tp": 2}}, "fixed: tp=2"),
        ({"fixed": {"cp": 1}, "max_cp": 1}, "fixed: cp=1"),
    ],
)
def test_every_choice_that_is_taken_away_is_named(changed: dict[str, Any], said: str) -> None:
    """What one field takes away is said in one line, and nothing else."""
    assert list(narrowed({**whole(), **changed}, job(), cluster(2, 4))) == [said]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"max_ep": 1}, [EXPERTS]),
        ({"max_ep": 4}, ["max_ep: at most 4, not 8"]),
        ({"expert_zero": [1]}, ["zero beside expert ranks: 1 (left out: 0, 2, 3)"]),
        ({"expert_tensor": False}, ["expert_tensor: false, not true"]),
    ],
)
def test_what_experts_lose_is_named(changed: dict[str, Any], said: list[str]) -> None:
    """Expert ranks, their number, their ZeRO stages, and tensor ranks that share an expert."""
    assert list(narrowed({**whole(experts=True), **changed}, job(experts=True), cluster(2, 4))) == said


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (lambda row: row.tp == 1 and row.cp == 1, "tp 2, 4; cp 2"),
        (lambda row: row.tp == 4, "tp 1, 2"),
        (lambda row: row.micro_batch == 2, "micro_batch 1, 4, 8"),
        (lambda row: row.tp == 4 and row.cp == 1 and row.micro_batch == 2, "tp 1, 2; cp 2; micro_batch 1, 4, 8"),
        (lambda row: row.tp == 1 or row.micro_batch == 2, "tp 2 cp 1 ep 1 micro_batch 1; "),
        (lambda row: False, "tp 1, 2, 4"),
    ],
)
def test_degrees_without_costs_are_named(kept: Callable[[CostRow], bool], said: str) -> None:
    """Rows that a cost table lacks take candidates away, which is said by degree."""
    problem = resolved_problem(PlanRequest(job(), "dgx-h100:1", global_batch=8, max_tp=4))
    space, every = problem.space.model_dump(mode="json"), problem.costs
    assert list(unpriced(space, problem.model, problem.cluster, every)) == []
    fewer = every.model_copy(update={"rows": [row for row in every.rows if kept(row)]})
    (words,) = unpriced(space, problem.model, problem.cluster, fewer)
    assert words.startswith(f"costs: no rows of {said}") and words.endswith(", which have no candidates")


CUT_DOWN: list[tuple[dict[str, Any], Callable[[CostRow], bool], list[str]]] = [
    ({"max_cp": 1}, lambda _: True, ["max_cp: at most 1, not 2"]),
    (
        {"max_cp": 1, "max_even_vpp": 0, "empty_ends": False, "zero": [0, 1]},
        lambda _: True,
        [
            *("zero: 0, 1 (left out: 2, 3)", "max_cp: at most 1, not 2", "max_even_vpp: at most 0, not 80"),
            "empty_ends: false, not true",
        ],
    ),
    ({}, lambda row: row.tp == 8, ["costs: no rows of tp 1, 2, 4, which have no candidates"]),
    (
        {},
        lambda row: row.tp == 8 and row.micro_batch == 2 and row.cp == 1,
        ["costs: no rows of tp 1, 2, 4; cp 2; micro_batch 1, 4, 8, 16, 32, 64, 128, which have no candidates"],
    ),
    (
        {},
        lambda row: row.tp == 1 and row.cp == 1,
        ["costs: no rows of tp 2, 4, 8; cp 2, which have no candidates"],
    ),
]
"""Spaces of Llama-3 70B that were certified once in the words of the whole space, up to 18.8 % slower than its best."""


@pytest.mark.parametrize(("changed", "kept", "said"), CUT_DOWN)
def test_a_cut_down_space_is_named(changed: dict[str, Any], kept: Callable[[CostRow], bool], said: list[str]) -> None:
    """Contexts, chunks, empty ends and rows of costs that were taken away on 64 H100 are said, and nothing else."""
    problem = resolved_problem(PlanRequest("llama3-70b", "dgx-h100:8", global_batch=128))
    space = problem.space.model_dump(mode="json")
    costs = problem.costs.model_copy(update={"rows": [row for row in problem.costs.rows if kept(row)]})
    words = [*narrowed({**space, **changed}, problem.model, problem.cluster)]
    words += unpriced({**space, **changed}, problem.model, problem.cluster, costs)
    assert words == said


def test_a_recompute_without_costs_is_named() -> None:
    """Without rows of selective recompute it saves nothing, so that plans with it are lost, which is said."""
    problem = resolved_problem(PlanRequest(job(), "dgx-h100:1", global_batch=8))
    rows = [row for row in problem.costs.rows if row.recompute != "selective"]
    fewer, space = problem.costs.model_copy(update={"rows": rows}), problem.space.model_dump(mode="json")
    said = ["costs: no rows of selective recompute, which is none there"]
    assert list(unpriced(space, problem.model, problem.cluster, fewer)) == said
    assert list(unpriced({**space, "recompute": ["none"]}, problem.model, problem.cluster, fewer)) == []


def cuts(space: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every field of a space with less in it: a list without one of its values, half a number, a switch off."""
    for name, value in space.items():
        if isinstance(value, bool):
            yield from [(name, False)] * value
        elif isinstance(value, int):
            yield from ((name, less) for less in {value // 2, 1, 0} if less < value and name != "global_batch")
        elif isinstance(value, list):
            yield from ((name, [each for each in value if each != one]) for one in value)
    degrees = {"tp": 2, "pp": 2, "dp": 2, "cp": 1, "micro_batch": 2, "zero": 1, "schedule": "1f1b", "vpp": 1}
    yield from (("fixed", {name: value}) for name, value in degrees.items())


@pytest.mark.parametrize("experts", [False, True], ids=["dense", "experts"])
def test_whatever_takes_candidates_away_is_named(experts: bool) -> None:
    """Each of some dozens of cuts of a space that leaves fewer candidates, or fewer recomputes, has a line."""
    problem = resolved_problem(PlanRequest(job(experts=experts), "dgx-h100:1", global_batch=8))
    space, found = problem.space.model_dump(mode="json"), 0
    whole = set(replace(problem, space=StrategySpace.model_validate(space)).candidates)
    usual = set(narrowed(space, problem.model, problem.cluster))
    for name, value in cuts(space):
        try:
            less = StrategySpace.model_validate({**space, name: value})
            fewer = set(replace(problem, space=less).candidates)
        except (TautError, ValidationError):
            continue
        if whole - fewer:
            found += 1
            said = narrowed(less.model_dump(mode="json"), problem.model, problem.cluster)
            assert set(said) - usual, (name, value)
    assert found >= 20


def test_inputs_with_a_borrowed_name_are_named() -> None:
    """A model or cluster under a name of the catalog says which fields are its own; other lengths are not one."""
    own, nodes = load_model("llama3-8b", seq=4096), load_cluster("dgx-h100:2")
    assert list(renamed("llama3-8b", own, "dgx-h100:2", nodes)) == []
    assert list(renamed("mine", job(), "lab", cluster(2, 4))) == []
    assert list(renamed("mine", job(), "dgx-h100:2 with at most 8 GiB", nodes)) == []
    faster = nodes.model_copy(update={"network": cluster(2, 4).network})
    said = [
        "its model llama3-8b is not the catalog's: layers differs",
        "its cluster dgx-h100:2 is not the catalog's: network differs",
    ]
    assert list(renamed("llama3-8b", job(), "dgx-h100:2", faster)) == said


def test_a_stack_of_a_user_runs_what_its_space_holds() -> None:
    """A file that is not at hand is not compared with, which is said."""
    values = StrategySpace(global_batch=8, max_tp=4, stack="mine", schedules=["gpipe"]).model_dump(mode="json")
    assert list(narrowed(values, job(), cluster(2, 4))) == []
    assert "what mine runs, by the plan alone, as the catalog has no such stack: schedules gpipe; " in held(values)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"max_even_vpp": LAYERS}, ["vpp above 4 unless all chunks can be equal"]),
        ({"max_even_vpp": 6}, ["vpp above 6"]),
        ({}, ["vpp above 4"]),
        ({"max_even_vpp": LAYERS, "fixed": {"vpp": 2}}, []),
        ({"max_even_vpp": LAYERS, "fixed": {"schedule": "1f1b"}}, []),
    ],
)
def test_chunks_that_are_not_searched_are_named(space: dict[str, Any], said: list[str]) -> None:
    """Many unequal chunks a device are in no plan's space; older plans leave out many equal ones too."""
    values = StrategySpace(**{"global_batch": 8, "max_tp": 4, "schedules": ["1f1b", "interleaved-1f1b"], **space})
    assert list(unsearched(values.model_dump(mode="json"), layers=LAYERS)) == said
    closed = values.model_copy(update={"schedules": ["1f1b"]})
    assert list(unsearched(closed.model_dump(mode="json"), layers=LAYERS)) == []


def test_how_experts_are_not_searched_is_named() -> None:
    """With experts the bound leaves out some expert parallelism, and says so."""
    values = StrategySpace(global_batch=8, max_tp=4).model_dump(mode="json")
    said = "etp other than 1 or tp, with ep > 1"
    assert list(unsearched({**values, "max_ep": 8}, layers=LAYERS, experts=True)) == [said]
    titan = {**values, "max_ep": 8, "expert_zero": [2, 3], "expert_tensor": False}
    said = "ZeRO-0, ZeRO-1, etp other than 1, with ep > 1"
    assert list(unsearched(titan, layers=LAYERS, experts=True)) == [said]


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"recompute": ["full"]}, "recompute: full (left out: none, selective)"),
        ({"sequence_parallel": [False]}, "sequence_parallel: false (left out: true)"),
        ({"recompute_modules": ["moe"]}, "selective recompute of modules other than moe"),
        (
            {
                "activation_offload": [{"fraction": 0.5, "recompute": ["none"]}],
                "offload_modules": ["core_attn", "attn_proj"],
            },
            "shares of activations on hosts other than 0.5, modules other than core_attn, attn_proj",
        ),
        ({"zero": [1]}, "zero: 1 (left out: 0)"),
        ({"schedules": ["gpipe"]}, "schedules: gpipe (left out: 1f1b)"),
        ({"max_tp": 2}, "max_tp: at most 2, not 4"),
        ({"max_vpp": 2, **CHUNKED, "fixed": {"vpp": 2}}, "max_vpp: at most 2, not 4; fixed: vpp=2"),
        ({"fixed": {"tp": 2, "sequence_parallel": False}}, "fixed: tp=2, sequence_parallel=false"),
    ],
)
def test_what_is_left_out_is_named(space: dict[str, Any], said: str) -> None:
    """One line for each choice that a space does not offer."""
    assert "; ".join(words(**space)) == said
