"""Restrictions: which plans meet them, by their names, and as the reference evaluator tells them."""

from dataclasses import fields, replace

import numpy as np
import pytest

from taut.data.model import ModelSpec
from taut.errors import DataError
from taut.formulations.plainer import meets, restricted, restriction_of, restrictions_on, wider
from taut.formulations.strategy import Strategy, division_of_layers
from taut.solver.certificate.reference.candidates import candidates
from taut.solver.certificate.reference.space import Choice, candidates_of, divisions_of, is_known, recompute_of, whole
from tests.support.chunked import chunked
from tests.support.instances import random_problem
from tests.support.reference import case_of, choice_of
from tests.support.runs import with_few_runs, with_runs

NAMES = ["even-stages", "no-context-ranks", "at-most-2-chunks", "no-interleaving", "seen"]


@pytest.mark.parametrize("name", ["", "even", "at-most-0-chunks", "at-most-x-chunks", "at-most--1-chunks"])
def test_other_names_are_none(name: str) -> None:
    """A name has its number in the middle, and it is above 0."""
    assert restriction_of(name) is None
    assert not is_known(name)


def test_the_reference_tells_the_same_candidates() -> None:
    """Candidates and forms of every restriction, on random problems with chunks and contexts."""
    counts = dict.fromkeys(NAMES, 0)
    for seed in range(40):
        given = chunked(seed) if seed % 2 else replace(random_problem(seed), latency_model="step")
        given = with_few_runs(seed, given) if given.candidates else with_runs(given)
        for name in NAMES:
            restriction = restriction_of(name, given.calibration)
            assert restriction is not None and is_known(name)
            alone = restricted(given, restriction)
            assert alone.space.divisions == divisions_of(case_of(given), name)
            assert alone.space.recompute == recompute_of(case_of(given), name)
            kept = [candidate for candidate in alone.candidates if restriction.keeps(candidate)]
            wanted = candidates_of(candidates(case_of(alone)), name, given.calibration)
            assert [choice_of(candidate) for candidate in kept] == wanted
            every = {choice_of(candidate) for candidate in given.candidates}
            for candidate, choice in zip(kept, wanted, strict=True):
                assert choice_of(wider(candidate, given.candidates)) == whole(choice, every)
            counts[name] += len(given.candidates) - len(kept)
    assert counts["no-context-ranks"] and counts["at-most-2-chunks"] and counts["no-interleaving"] and counts["seen"]


def test_without_runs_there_is_no_restriction_to_them() -> None:
    """Neither without a calibration nor with one that does not say what its runs have been."""
    given = with_runs(chunked(1))
    assert given.calibration is not None and restriction_of("seen", given.calibration) is not None
    silent = given.calibration.model_copy(update={"seen": None})
    assert restriction_of("seen") is None and restriction_of("seen", silent) is None
    with pytest.raises(DataError, match="no calibration says what its runs have been"):
        candidates_of([], "seen", silent)


def named(sizes: list[int], vpp: int = 1, cp: int = 1) -> list[str]:
    """Names of the restrictions that a plan of two stages with so many layers a chunk does not meet."""
    given = chunked(1)
    model = ModelSpec.parse({**given.model.model_dump(mode="json"), "layers": sum(sizes)}, "m")
    first = next(each for each in given.candidates if each.vpp == 1)
    schedule = "interleaved-1f1b" if vpp > 1 else "1f1b"
    candidate = replace(first, vpp=vpp, cp=cp, schedule=schedule, empty_ends=not all(sizes))
    division = division_of_layers(candidate, sizes, np.zeros(len(sizes), dtype=np.int64))
    strategy = Strategy(candidate=candidate, division=division)
    given = replace(given, model=model)
    found = [*restrictions_on(given, strategy)]
    assert not any(meets(given, restriction, strategy) for restriction in found)
    return [restriction.name for restriction in found]


def test_a_restriction_that_a_plan_meets_is_none() -> None:
    """Even stages are those that flags state: with embedding, loss or both as a layer too."""
    assert named([4, 4]) == named([3, 4]) == named([4, 3]) == []
    assert named([5, 3]) == ["even-stages"]
    assert named([4, 4], cp=2) == ["no-context-ranks"]
    assert named([2, 2, 2, 2], vpp=2) == ["no-interleaving"]
    assert named([1, 2, 2, 1], vpp=2) == ["no-interleaving"]
    assert named([0, 3, 3, 2], vpp=2) == ["no-interleaving", "even-stages"]
    assert named([2] * 8, vpp=4) == ["no-interleaving", "at-most-2-chunks"]
    assert named([2] * 10, vpp=5) == ["no-interleaving", "at-most-2-chunks"]
    assert named([2, 2, 2, 2, 2, 1, 2, 2], vpp=4) == ["no-interleaving", "at-most-2-chunks", "even-stages"]


def test_choices_have_the_fields_of_candidates() -> None:
    """What a restriction reads of a candidate the reference reads of its choice."""
    assert {"cp", "vpp", "empty_ends"} <= {each.name for each in fields(Choice)}
