"""Prefixes of divisions: the bound is the optimum by enumeration, derived again, refused if altered."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from taut.formulations.order_division import ROUNDING, ChunkProblem, SlowLinks
from taut.solver.order_priced import layer_bounds, prefixes
from taut.solver.order_priced.prefixes import Prefixes, prefixes_of
from taut.solver.order_priced.witness import _Critical, add_critical, rederived
from tests.solver.order_priced.test_layer_tree import CASES, TOLERANCE, chunk_problem, in_turns, optimum


@pytest.fixture(autouse=True)
def differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers count as unlike however few they are."""
    monkeypatch.setattr(layer_bounds, "MOST_DIFFERING", 0)


def drawn(rng: np.random.Generator, case: tuple[int, int, int, int], budget: float) -> ChunkProblem:
    """A problem whose layers differ everywhere, or take turns."""
    given = chunk_problem(rng, *case, budget, differing=case[3] - 2)
    return in_turns(given, int(rng.choice([2, 3])), float(rng.uniform(0.2, 3))) if rng.random() < 0.5 else given


def searched(given: ChunkProblem, limit: float, at_once: int) -> Prefixes:
    """The prefixes, searched to the end."""
    found = prefixes_of(given, limit)
    assert found is not None
    while found.is_left:
        found.step(at_once)
    assert found.has_ended
    return found


def again(given: ChunkProblem, found: Prefixes, **changed: object) -> float:
    """What the witness proves from a file, altered or not."""
    return rederived(given, json.loads(json.dumps(found.witness())) | changed)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("budget", [1e6, 130.0, 110.0])
def test_the_bound_is_the_least_of_limit_and_optimum(case: tuple[int, int, int, int], budget: float) -> None:
    """Random problems, with memory to spare and without, in small steps and large ones, and limits on both sides."""
    rng = np.random.default_rng((*case, int(budget)))
    for _ in range(8):
        given = drawn(rng, case, budget)
        exact = optimum(given)
        for part in (0.97, 1.0, 1.1):
            limit = part * min(exact, 1e3)
            found = searched(given, limit, int(rng.choice([1, 7, 100_000])))
            assert min(limit, exact) * (1 - 2e-6) <= found.seconds <= min(limit, exact) * TOLERANCE
            assert again(given, found) == found.seconds * (1 - ROUNDING)
            if part > 1 and np.isfinite(exact):
                assert found.incumbent[0] == exact


def test_what_was_refuted_spares_prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of up to 18 layers in eight or twelve chunks requirements (4) leave fewer prefixes, and the same bound."""
    rng, few, many = np.random.default_rng(4), list[Prefixes](), list[Prefixes]()
    every = [drawn(rng, (4, 2 + k % 2, 8, 14 + k % 5), float(rng.choice([1e6, 100.0]))) for k in range(6)]
    for found, kept in ((few, prefixes.MOST_ROWS), (many, 0)):
        monkeypatch.setattr(prefixes, "MOST_ROWS", kept)
        found += [searched(given, 1e3, 10_000_000) for given in every]
    for one, other in zip(few, many, strict=True):
        assert one.seconds == pytest.approx(other.seconds, rel=2e-6)
    assert sum(each.visited for each in few) < 0.8 * sum(each.visited for each in many)


def test_requirements_refute_all_that_follows() -> None:
    """Whatever a prefix has, if its rows reach what is required, every way to go on has a row beyond its room."""
    rng, seen = np.random.default_rng(5), 0
    for _ in range(4):
        found = searched(drawn(rng, (4, 2, 8, 14), float(rng.choice([1e6, 100.0]))), 1e3, 10_000_000)
        rows, kept, chunks, layers = found._rows, found._kept, 8, 14
        for c, end in zip(*np.nonzero(kept.number), strict=True):
            ways = np.array([(end, *cut, layers) for cut in combinations(range(end + 1, layers), chunks - c - 1)])
            of_chunks = np.arange(c, chunks)
            after = (rows.until[of_chunks, ways[:, 1:]] - rows.until[of_chunks, ways[:, :-1]]).sum(axis=1).T
            for g in range(kept.number[c, end]):
                n = kept.length[c, end, g]
                numbers, least = kept.rows[c, end, g, :n], kept.least[c, end, g, :n, None]
                beyond = least + after[numbers] >= rows.room[numbers, None] - 1e-9
                assert beyond.any(axis=0).all()
                seen += 1
    assert seen > 100


def test_altered_witnesses_are_refused() -> None:
    """A limit above the optimum, no critical paths, and those of other numbers prove nothing; a lower limit does."""
    rng, refused = np.random.default_rng(6), 0
    for case in CASES:
        given = drawn(rng, case, 1e6)
        found = searched(given, 1e3, 100_000)
        critical = found.witness()["critical"]
        assert again(given, found, limit_s=found.limit * 1.001) == -np.inf
        assert again(given, found, limit_s=0.9 * found.limit) == pytest.approx(0.9 * found.limit)
        assert again(given, found, critical=[]) == -np.inf
        assert again(given, found, critical=critical + critical[:1]) == -np.inf
        assert again(given, found, critical=[critical[0] | {"most": 99}]) == -np.inf
        refused += sum(again(given, found, critical=critical[:k] + critical[k + 1 :]) < 0 for k in range(len(critical)))
    assert refused > len(CASES)


def test_a_lower_limit_keeps_what_was_refuted() -> None:
    """A search that is halfway through at a far limit ends with the bound of the lower one."""
    rng = np.random.default_rng(8)
    for case in CASES:
        given = drawn(rng, case, 1e6)
        exact = optimum(given)
        found = prefixes_of(given, 2 * exact)
        assert found is not None
        found.step(20)
        found.lower(0.99 * exact)
        found.step(1_000_000)
        assert found.has_ended and found.limit == 0.99 * exact and again(given, found) == found.seconds * (1 - ROUNDING)


def test_others_have_no_prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor have like layers, choices of recompute, slow links, and more layers than rounding allows."""
    given = drawn(np.random.default_rng(9), CASES[0], 1e6)
    assert prefixes_of(given, 1e3) is not None
    assert prefixes_of(replace(given, passes=np.repeat(given.passes[:, :1], 3, axis=1)), 1e3) is None
    assert prefixes_of(replace(given, slow=SlowLinks(hops=1, seconds=0.1)), 1e3) is None
    monkeypatch.setattr(layer_bounds, "MOST_DIFFERING", 4)
    assert prefixes_of(chunk_problem(np.random.default_rng(9), *CASES[0], 1e6), 1e3) is None
    monkeypatch.setattr(layer_bounds, "MOST_DIFFERING", 0)
    for most in ("MOST_SUMS", "MOST_CELLS"):
        with monkeypatch.context() as patched:
            patched.setattr(prefixes, most, 15)
            assert prefixes_of(given, 1e3) is None


def test_rows_beyond_sixteen_bits_are_told_apart() -> None:
    """With 66,000 rows that refute nothing before those of paths a check refutes no limit above the optimum."""
    given = drawn(np.random.default_rng(5), (2, 4, 6, 14), 1e6)
    found = searched(given, 1e4, 1_000_000)
    check = prefixes_of(given, 1.0005 * found.limit)
    assert check is not None
    for _ in range(66_000):
        check._append(1e3 * np.ones((given.num_chunks, layer_bounds.FIGURES)), np.inf)
    known = [_Critical.model_validate(each.plain()) for each in found.rows.critical_for if each is not None]
    add_critical(check.rows, known)
    check.take_paths()
    assert not check.refutes()


def test_a_search_and_its_check_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond as many prefixes as they may visit there is no bound."""
    given = drawn(np.random.default_rng(10), CASES[3], 1e6)
    found = searched(given, 1e3, 100_000)
    monkeypatch.setattr(prefixes, "MOST_CHECKED", 10)
    assert again(given, found) == -np.inf
    monkeypatch.setattr(prefixes, "MOST_VISITED", 10)
    cut_short = prefixes_of(given, 1e3)
    assert cut_short is not None
    cut_short.step(10)
    assert not cut_short.is_left and cut_short.seconds == -np.inf
