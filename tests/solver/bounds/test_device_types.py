"""No bound on devices of two or three types is above the enumerated optimum."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from taut.data.arrays import Floats
from taut.formulations import partition
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.ladder.computations import partition as partition_rung
from taut.solver.ladder.ladder import Ladder
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.ladder import TOLERANCE, check_candidates
from tests.support.oracle import enumerate_candidate

pytestmark = pytest.mark.proof


def with_types(seed: int) -> PlanningProblem | None:
    """A random problem on devices of several types, in ``step``, in turn with every ZeRO stage; None for one type."""
    given = random_problem(seed, large=seed % 9 == 0)
    if len(given.device_types) == 1:
        return None
    space = given.space.model_copy(update={"zero": [[0, 1], [2], [3], [1]][seed % 4]})
    return replace(given, space=space, latency_model="step", overlap_grad_reduce=seed % 5 == 0)


@pytest.mark.parametrize("block", blocks(20))
def test_no_bound_on_device_types_is_above_the_optimum(block: int) -> None:
    """Two thousand candidates, a hundred a block: blocks in nodes and on several, of one type or of more."""
    checked, wide, seed = 0, 0, 20_000 * block
    while checked < 100:
        given = with_types(seed)
        if given is not None:
            chosen, widest = check_candidates(given, given.candidates, seed, 4), int(given.links.gpus_per_node.max())
            checked, wide = checked + len(chosen), wide + sum(candidate.width > widest for candidate in chosen)
        seed += 1
    assert wide > 0


def _bounds(given: PlanningProblem, of_classes: Callable[..., Floats]) -> dict[Candidate, float]:
    """Bound ``partition`` of the closed forms on blocks that span nodes, with some forward seconds by class."""
    widest = given.links.gpus_per_node.max()
    wide = [each for each in given.closed_forms if each.width > widest and each.pp > 1]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(partition, "of_classes", of_classes)
        return {each: partition_rung(Ladder(given), each).seconds for each in wide}


def _of_any(problem: PlanningProblem, forward: Floats, seconds: Floats, candidate: Candidate) -> Floats:
    """A slow block on several nodes with the least forward seconds of both classes."""
    found = own_classes(problem, forward, seconds, candidate)
    return found if len(found) == 1 else found[[0, 2, 2]]


def _of_slow(problem: PlanningProblem, forward: Floats, seconds: Floats, candidate: Candidate) -> Floats:
    """A planted bug: a slow block with the slow class's, whatever backward pass its fast devices have."""
    return own_classes(problem, forward, np.where(np.isinf(seconds), seconds, forward[:, None]), candidate)


own_classes = partition.of_classes


def test_slow_blocks_on_several_nodes_pass_forward_as_slowly_as_no_longer_backward_pass_hides() -> None:
    """Where no type's backward pass is longer than the slow one's, its forward pass counts; elsewhere it would err."""
    raised, beyond = 0, 0
    for seed in (247, 760, 1033, 2071, 2764, 2800):
        given = with_types(seed)
        assert given is not None
        least, every = _bounds(given, _of_any), _bounds(given, own_classes)
        for candidate, planted in _bounds(given, _of_slow).items():
            optimum = enumerate_candidate(given, candidate).seconds
            assert least[candidate] <= every[candidate] * TOLERANCE <= optimum * TOLERANCE**2, (seed, candidate)
            raised += every[candidate] > least[candidate] * TOLERANCE
            beyond += planted > optimum * TOLERANCE
    assert raised > 5 and beyond > 0
