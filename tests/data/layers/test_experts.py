"""Shares of experts that take a token, where its router keeps to some groups of them and where it does not."""

from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pytest

from taut.data.layers.experts import ExpertsSpec
from taut.errors import DataError

DEEPSEEK3 = {"num_experts": 256, "experts_per_token": 8, "router_num_groups": 8, "router_group_topk": 4}
DRAWS = 50_000


def experts(**sizes: int) -> ExpertsSpec:
    return ExpertsSpec.parse({"expert_ffn_hidden": 64, **sizes}, "experts")


def drawn(given: ExpertsSpec, *, by_scores: bool = False) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Experts of random tokens: of groups that are drawn, or of those with the best sums of their best scores."""
    rng, groups = np.random.default_rng(3), given.router_num_groups
    scores = rng.random((DRAWS, groups, given.num_experts // groups))
    best = given.experts_per_token // given.router_group_topk
    of_group = np.sort(scores)[..., -best:].sum(axis=-1) if by_scores else rng.random((DRAWS, groups))
    kept = of_group.argsort(axis=1).argsort(axis=1) >= groups - given.router_group_topk
    ranked = np.where(kept[..., None], scores, -1.0).reshape(DRAWS, -1).argsort(axis=1).argsort(axis=1)
    return np.asarray(ranked >= given.num_experts - given.experts_per_token)


def hit(tokens: np.ndarray[Any, np.dtype[np.bool_]], ranks: int) -> float:
    """Share of pairs of a token and a rank that has one of its experts."""
    return float(tokens.reshape(len(tokens), ranks, -1).any(axis=-1).mean())


def test_a_share_of_experts_takes_a_token_of_deepseek_v3_by_hand() -> None:
    """Eight nodes of a group each: half the groups, 8 of 128 experts not of 96; else 8 of 256 not of 224."""
    given, free = experts(**DEEPSEEK3), experts(num_experts=256, experts_per_token=8)
    assert given.reach(8) == pytest.approx(0.5 * (1 - comb(96, 8) / comb(128, 8)), rel=1e-14)
    assert free.reach(8) == pytest.approx(1 - comb(224, 8) / comb(256, 8), rel=1e-14)
    # Copies to seven other nodes.
    assert [round(7 * each.reach(8), 2) for each in (given, free)] == [3.18, 4.63]
    # Four nodes of two groups each: none, one or both of them among four of eight.
    none = [comb(2, j) * comb(6, 4 - j) / comb(8, 4) * comb(128 - 32 * j, 8) / comb(128, 8) for j in range(3)]
    assert given.reach(4) == pytest.approx(1 - sum(none), rel=1e-14)


@pytest.mark.parametrize(
    ("sizes", "ranks"),
    [
        (DEEPSEEK3, 64),
        (DEEPSEEK3, 8),
        (DEEPSEEK3, 4),
        ({"num_experts": 160, "experts_per_token": 6, "router_num_groups": 8, "router_group_topk": 3}, 20),
        ({"num_experts": 24, "experts_per_token": 4, "router_num_groups": 8, "router_group_topk": 3}, 6),
    ],
    ids=["device", "group", "groups", "deepseek-v2", "across"],
)
def test_shares_are_those_of_random_tokens(sizes: dict[str, int], ranks: int) -> None:
    """Within a group, one group, two of them, and ranks with parts of groups, within three standard errors."""
    given = experts(**sizes)
    expected = given.reach(ranks)
    assert hit(drawn(given), ranks) == pytest.approx(expected, abs=3 * (expected * (1 - expected) / DRAWS) ** 0.5)


def test_groups_of_the_best_scores_have_their_experts_more_evenly() -> None:
    """DeepSeek-V3's router on independent scores: 9 % more of eight ranks, 2 % more of 64, fewer than a free one."""
    given, free = experts(**DEEPSEEK3), experts(num_experts=256, experts_per_token=8)
    tokens = drawn(given, by_scores=True)
    found = {ranks: hit(tokens, ranks) for ranks in (8, 64)}
    assert found[8] / given.reach(8) == pytest.approx(1.09, abs=0.01)
    assert found[64] / given.reach(64) == pytest.approx(1.018, abs=0.01)
    assert all(found[ranks] < free.reach(ranks) for ranks in found)


def test_shares_are_means_over_all_sets_of_groups() -> None:
    """Every size up to 24 experts and six groups, enumerated; with all groups chosen the share of a free router."""
    for count, groups in [(8, 2), (8, 4), (12, 3), (12, 6), (18, 6), (24, 6)]:
        for kept in range(1, groups + 1):
            left = kept * count // groups
            for chosen, ranks in [(1, 2), (left, 4), (left // 2 + 1, 3), (2, count)]:
                if count % ranks or chosen > left:
                    continue
                sizes = {"num_experts": count, "experts_per_token": chosen}
                given = experts(**sizes, router_num_groups=groups, router_group_topk=kept)
                group_of, rank_of = np.arange(count) * groups // count, np.arange(count) * ranks // count
                none = [
                    comb(left - int(((rank_of == rank) & np.isin(group_of, some)).sum()), chosen) / comb(left, chosen)
                    for some in combinations(range(groups), kept)
                    for rank in range(ranks)
                ]
                assert given.reach(ranks) == pytest.approx(1 - float(np.mean(none)), rel=1e-12)
                if kept == groups:
                    assert given.reach(ranks) == pytest.approx(experts(**sizes).reach(ranks), rel=1e-14)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"router_num_groups": 3}, r"router_num_groups is 3, expected a divisor of num_experts \(8\)"),
        ({"router_group_topk": 5}, r"router_group_topk is 5, expected at most router_num_groups \(4\)"),
        (
            {"router_group_topk": 1},
            r"router_group_topk is 1, expected groups with experts_per_token \(3\) experts, not",
        ),
        ({"router_num_groups": 0}, "router_num_groups: is 0, expected to be greater than 0"),
    ],
)
def test_impossible_groups_are_refused(changes: dict[str, int], words: str) -> None:
    """Groups that do not divide the experts, more chosen than there are, and too few for a token's experts."""
    sizes = {"num_experts": 8, "experts_per_token": 3, "router_num_groups": 4, "router_group_topk": 2}
    with pytest.raises(DataError, match=words):
        experts(**(sizes | changes))


def test_a_router_without_groups_is_written_as_before() -> None:
    """Neither field is in the values of experts that have none, so that digests of models stay."""
    free = experts(num_experts=8, experts_per_token=2)
    assert not {"router_num_groups", "router_group_topk"} & free.model_dump().keys()
    assert ExpertsSpec.parse(given := experts(**DEEPSEEK3).model_dump(), "experts").model_dump() == given
    assert given["router_group_topk"] == 4
