"""A space is compared with the default one: every choice that it leaves out is named, and nothing else."""

from typing import Any

import pytest

from taut.formulations.space import StrategySpace
from taut.solver.certificate.narrowed import narrowed
from tests.support.small import cluster


def words(**space: Any) -> list[str]:
    """What a space on two nodes of four devices leaves out, after it was written down."""
    values = StrategySpace(**{"global_batch": 8, "max_tp": 4, **space}).model_dump(mode="json")
    return list(narrowed(values, cluster(2, 4)))


def test_the_default_space_leaves_nothing_out() -> None:
    """Neither the default nor a wider space is narrowed."""
    assert words() == []
    assert words(zero=[0, 1, 2, 3], max_tp=8, schedules=["1f1b", "gpipe", "zb-v"]) == []


def test_experts_narrow_every_space() -> None:
    """With experts the bound leaves out expert parallelism, or some of it, and says so."""
    values = StrategySpace(global_batch=8, max_tp=4).model_dump(mode="json")
    said = "experts: split over tensor ranks, all on every replica (left out: expert parallelism, ep > 1)"
    assert list(narrowed(values, cluster(2, 4), experts=True)) == [said]
    said = "experts: ep > 1, etp 1 or tp (left out: other etp)"
    assert list(narrowed({**values, "max_ep": 8}, cluster(2, 4), experts=True)) == [said]
    titan = {**values, "max_ep": 8, "expert_zero": [2, 3], "expert_tensor": False}
    said = "experts: ep > 1, etp 1 (left out: ZeRO-0, ZeRO-1 beside ep > 1, other etp)"
    assert list(narrowed(titan, cluster(2, 4), experts=True)) == [said]


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
        ({"max_vpp": 2, "schedules": ["1f1b", "gpipe", "interleaved-1f1b"]}, "max_vpp: at most 2, not 4"),
        ({"fixed": {"tp": 2, "sequence_parallel": False}}, "fixed: tp=2, sequence_parallel=false"),
    ],
)
def test_what_is_left_out_is_named(space: dict[str, Any], said: str) -> None:
    """One line for each choice that a space does not offer."""
    assert words(**space) == [said]
