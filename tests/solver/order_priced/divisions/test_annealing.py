"""Annealed divisions fit memory, begin anywhere, and reach the enumerated optimum of small instances."""

from itertools import pairwise

import numpy as np
import pytest

from taut.data.stack import SCHEDULES
from taut.formulations.compiled import in_python
from taut.formulations.strategy import Division
from taut.formulations.tables.memory import device_memory
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.order_priced import divisions as annealing
from taut.solver.order_priced.divisions import DivisionAnnealing
from taut.solver.order_priced.master_rows import least_makespan
from tests.solver.order_priced.test_bound import enumerable, random_orders
from tests.solver.order_priced.test_capacity import divisions

pytestmark = pytest.mark.proof
LOOP = annealing._run


def test_the_optimum_of_small_instances_is_found() -> None:
    """Where the first division meets the memory or not: the run ends in the best one that fits, or with none."""
    optimal, total = 0, 0
    for seed in range(60):
        given = random_orders(3000 + seed, list(SCHEDULES[2:]))
        for choice in enumerable(given)[::4]:
            division = chunked(given, choice, BestLinks(given.links, given.rings))
            memory = device_memory(given, choice)
            every = list(divisions(division))
            if len(every) > 800:
                continue
            fits = [one for one in every if max(memory.bytes_of(*one.ranges)) <= division.budget - (1 << 15)]
            run = DivisionAnnealing(given, choice, division, every[0], moves=600)
            assert not run.advance()
            found = run.division
            if not fits:
                continue
            assert found is not None, seed
            assert max(memory.bytes_of(*found.ranges)) <= division.budget
            least = min(least_makespan(division, one) for one in fits)
            total, optimal = total + 1, optimal + (least_makespan(division, found) <= least * (1 + 1e-9))
    assert total >= 40
    assert optimal >= 0.9 * total


def test_a_run_is_deterministic() -> None:
    """The same seed gives the same division, in parts as well."""
    given = random_orders(3000, list(SCHEDULES[2:]))
    choice = enumerable(given)[0]
    division = chunked(given, choice, BestLinks(given.links, given.rings))
    start: Division = next(iter(divisions(division)))
    for parts in (1, 4):
        runs = [DivisionAnnealing(given, choice, division, start, moves=200, parts=parts, seed=3) for _ in range(2)]
        for run in runs:
            assert [run.advance() for _ in range(parts)] == [True] * (parts - 1) + [False]
        assert runs[0].division == runs[1].division
        assert runs[0].division is None or np.isfinite(least_makespan(division, runs[0].division))


def test_parts_never_lose_what_an_earlier_one_found() -> None:
    """The best division of a run in parts gets no slower from part to part."""
    given = random_orders(3001, list(SCHEDULES[2:]))
    choice = enumerable(given)[0]
    division = chunked(given, choice, BestLinks(given.links, given.rings))
    run = DivisionAnnealing(given, choice, division, next(iter(divisions(division))), moves=50, parts=6)
    seconds = []
    while run.advance():
        seconds.append(np.inf if run.division is None else least_makespan(division, run.division))
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(seconds))


def test_divisions_refuted_without_a_run_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in Python end alike whether the least seconds of a division refute it, are nothing, or have a bug."""
    ended = dict[float, list[list[int]]]()
    for share in (annealing.ROUNDED, 0.0, 2.0):
        monkeypatch.setattr(annealing, "ROUNDED", share)
        monkeypatch.setattr(annealing, "_run", in_python(LOOP))
        for seed in range(4):
            given = random_orders(3100 + seed, list(SCHEDULES[2:]))
            for choice in enumerable(given)[:1]:
                division = chunked(given, choice, BestLinks(given.links, given.rings))
                run = DivisionAnnealing(given, choice, division, next(iter(divisions(division))), moves=40, seed=seed)
                run.advance()
                found = [] if run.division is None else [*run.division.ends, *run.division.recompute_index]
                ended.setdefault(share, []).append(found)
    sound, without, wrong = ended.values()
    assert sound == without != wrong
