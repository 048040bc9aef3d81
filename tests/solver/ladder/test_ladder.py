"""The ladder shares what candidates have in common, and nothing else."""

from dataclasses import replace

from taut.data.stack import SCHEDULES
from taut.formulations.mechanisms.expert_ranks import hides_exchange
from taut.solver.ladder.ladder import Ladder
from tests.support.contexts import all_context_kinds
from tests.support.expert_ranks import with_hidden_exchanges
from tests.support.instances import random_problem


def test_candidates_relaxed_together_have_the_bounds_of_each_alone() -> None:
    """Of random problems with every schedule, ZeRO stage and kind of context ranks, end chunks empty or not."""
    checked = 0
    for seed in (0, 1, 4, 5):
        given = random_problem(seed)
        update = {"empty_ends": True, "zero": [0, 1, 2, 3], "schedules": list(SCHEDULES), "max_vpp": 2}
        given = replace(given, space=given.space.model_copy(update=update), latency_model="step")
        given = all_context_kinds(given, seed)
        together = Ladder(given)
        together.relax(given.candidates)
        for candidate in given.candidates[::4]:
            assert together.relaxation(candidate) == Ladder(given).relaxation(candidate), str(candidate)
            checked += 1
    assert checked > 50


def test_exchanges_hidden_by_one_schedule_are_priced_under_another() -> None:
    """Of a problem with both, candidates that hide exchanges and those that do not have their own seconds of layers."""
    given = with_hidden_exchanges(108)
    given = replace(given, space=given.space.model_copy(update={"schedules": ["1f1b", "interleaved-1f1b"]}))
    apart = [each for each in given.candidates if each.ep > 1]
    assert {hides_exchange(given.space, given.model, each) for each in apart} == {False, True}
    for order in (apart, apart[::-1]):
        together = Ladder(given)
        assert [together.relaxation(each) for each in order] == [Ladder(given).relaxation(each) for each in order]
