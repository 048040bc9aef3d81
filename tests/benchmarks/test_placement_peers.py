"""Peers of the placement benchmark: the moves and identity order of Pipette's annealing."""

import numpy as np
import pytest

from benchmarks.pipette_annealing import _move, identity
from benchmarks.placement_clusters import problem, rates
from benchmarks.quadratic_surrogate import _slots_of
from taut.errors import DataError
from taut.formulations.placement import PlacementProblem, placement_problem
from taut.formulations.strategy import Division, Strategy


def placed(nodes: int, stages: int, tp: int) -> PlacementProblem:
    """The workload in equal stages on a fat tree."""
    given = problem(nodes, stages, tp, "fat-tree", 1, "pipette")
    share = 96 // stages
    ranges = tuple((share * x, share * (x + 1)) for x in range(stages))
    return placement_problem(
        given, Strategy(candidate=given.candidates[0], division=Division(ranges, ("full",) * stages))
    )


def test_identity_order_is_the_faster_of_two() -> None:
    """With four groups in a node, replicas side by side or stages side by side; slots lead back to the order."""
    given = placed(8, 8, 2)
    found = identity(given)
    by_stage = np.array([given.slots[x * 4 + z] for z in range(4) for x in range(8)])
    assert given.cost(found) == min(given.cost(given.slots), given.cost(by_stage))
    slots = _slots_of(given, found)
    assert sorted(slots) == list(range(32))
    assert (given.slots[slots] == found).all()


@pytest.mark.parametrize(
    ("kind", "a", "b", "expected"),
    [(0, 1, 3, "adcbe"), (1, 1, 3, "acdbe"), (1, 3, 1, "adbce"), (2, 1, 3, "adcbe"), (2, 4, 0, "edcba")],
)
def test_moves_swap_migrate_and_reverse(kind: int, a: int, b: int, expected: str) -> None:
    """The string abcde under the paper's three moves."""
    string = np.arange(5).reshape(5, 1)
    _move.py_func(string, kind, a, b)
    assert "".join("abcde"[element] for element in string[:, 0]) == expected


def test_measured_nodes_are_drawn_in_their_order() -> None:
    """Eight of sixteen nodes, other ones by seed, none twice and rows as measured; more than there are is refused."""
    measured = np.add.outer(100.0 * np.arange(16), np.arange(16))
    drawn = [rates(8, "mpigraph", seed, measured) for seed in (1, 2)]
    nodes = [np.diag(matrix) % 100 for matrix in drawn]
    assert all((np.diff(kept) > 0).all() for kept in nodes)
    assert not np.array_equal(nodes[0], nodes[1])
    assert drawn[0][2, 5] == 100 * nodes[0][2] + nodes[0][5]
    with pytest.raises(DataError, match="has 16 nodes, expected at least 32"):
        rates(32, "mpigraph", 1, measured)


def test_kinds_of_cluster_differ_as_stated() -> None:
    """Half of the nodes are in the other rack, one of eight is slow, and nothing is faster than 1.5 times 25 GB/s."""
    racks, slow, wide = (rates(8, kind, 3) for kind in ("racks", "slow", "lognormal40"))
    assert (((racks > 0) & (racks < 12.5)).sum(axis=1) == 4).all()
    off = slow[~np.eye(8, dtype=bool)].reshape(8, 7)
    assert ((off < 14).all(axis=1)).sum() == 1
    assert wide.max() <= 37.5
    assert np.array_equal(wide, wide.T)
