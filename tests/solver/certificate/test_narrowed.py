"""A space is compared with what its stack runs: every choice that is taken away is named, and nothing else."""

from typing import Any

import pytest

from taut.data.load import load_stack
from taut.formulations.space import StrategySpace
from taut.solver.certificate.narrowed import held, narrowed, unsearched
from tests.support.small import cluster

LAYERS = 8
CHUNKED = {"schedules": ["1f1b", "gpipe", "interleaved-1f1b"]}


def words(**space: Any) -> list[str]:
    """What is taken away from a space on two nodes of four devices, and what is not searched, once written down."""
    values = StrategySpace(**{"global_batch": 8, "max_tp": 4, **space}).model_dump(mode="json")
    taken_away = narrowed(values, cluster(2, 4), mechanisms=False)
    return [*taken_away, *unsearched(values, layers=LAYERS)]


def test_the_default_space_leaves_nothing_out() -> None:
    """Neither the papers' space nor a wider one is narrowed."""
    assert words() == []
    assert words(zero=[0, 1, 2, 3], max_tp=8, schedules=["1f1b", "gpipe", "zb-v"]) == []


@pytest.mark.parametrize("name", ["megatron-core", "torchtitan", "deepspeed", "any"])
def test_what_a_stack_runs_is_no_narrowing(name: str) -> None:
    """The whole of a stack's choices is stated in a line, and nothing of it is missing."""
    stack = load_stack(name)
    of_stack = {each: getattr(stack, each) for each in ("schedules", "zero", "sequence_parallel", "recompute")}
    written = "" if name == "any" else name
    values = StrategySpace(global_batch=8, max_tp=4, stack=written, **of_stack).model_dump(mode="json")
    assert list(narrowed(values, cluster(2, 4))) == []
    assert f"is what {written or 'taut'} runs: schedules {', '.join(stack.schedules)}; ZeRO" in held(values)
    fewer = {**values, "schedules": ["1f1b"]}
    left_out = [kind for kind in stack.schedules if kind != "1f1b"]
    said = [f"schedules: 1f1b (left out: {', '.join(left_out)})"] if left_out else []
    assert list(narrowed(fewer, cluster(2, 4))) == said


def test_a_stack_of_a_user_runs_what_its_space_holds() -> None:
    """A file that is not at hand is not compared with."""
    values = StrategySpace(global_batch=8, max_tp=4, stack="mine", schedules=["gpipe"]).model_dump(mode="json")
    assert list(narrowed(values, cluster(2, 4))) == []
    assert "what mine runs: schedules gpipe; " in held(values)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"max_even_vpp": LAYERS}, ["vpp above 4 with unequal chunks"]),
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


def test_experts_narrow_every_space() -> None:
    """With experts the bound leaves out expert parallelism, or some of it, and says so."""
    values = StrategySpace(global_batch=8, max_tp=4).model_dump(mode="json")
    said = "experts: split over tensor ranks, all on every replica (left out: expert parallelism, ep > 1)"
    assert list(narrowed(values, cluster(2, 4), experts=True, mechanisms=False)) == [said]
    said = "experts: ep > 1, etp 1 or tp (left out: other etp)"
    assert list(unsearched({**values, "max_ep": 8}, layers=LAYERS, experts=True)) == [said]
    titan = {**values, "max_ep": 8, "expert_zero": [2, 3], "expert_tensor": False}
    said = "experts: ep > 1, etp 1 (left out: ZeRO-0, ZeRO-1 beside ep > 1, other etp)"
    assert list(unsearched(titan, layers=LAYERS, experts=True)) == [said]


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"recompute": ["full"]}, "recompute: full (left out: none, selective)"),
        ({"sequence_parallel": [False]}, "sequence_parallel: false (left out: true)"),
        ({"recompute_modules": ["moe"]}, "selective recompute: of moe (left out: other modules)"),
        (
            {
                "activation_offload": [{"fraction": 0.5, "recompute": ["none"]}],
                "offload_modules": ["core_attn", "attn_proj"],
            },
            "activations on hosts: 0.5 of core_attn, attn_proj (left out: other shares, and other modules)",
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
