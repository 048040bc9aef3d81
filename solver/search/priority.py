"""Classes of candidates in the heap of the branch and bound: a good plan of one class shortens those of the next."""

from enum import IntEnum

from taut.solver.result import CandidateBound, Source
from taut.solver.search.standing import Stage, Standing


class Priority(IntEnum):
    """Classes of candidates, those whose turn comes first before the others."""

    CLOSED_FORM = 0
    ORDER_PRICED = 1
    DIVIDED = 2
    BRANCHING = 3


_OF_STAGE = {Stage.DIVIDE: Priority.ORDER_PRICED, Stage.BRANCH: Priority.BRANCHING}


def turn(bound: CandidateBound, at: Standing) -> tuple[Priority, float]:
    """
    Class of a candidate, and its key in there.

    ``bound``: its bound; as long as that is the first one the candidate comes with the closed forms; ``at``: where it
    stands; those that are divided come by the seconds of their division.
    """
    if bound.source is Source.BALANCE or not bound.candidate.is_order_priced:
        return Priority.CLOSED_FORM, bound.lower_bound
    priority = _OF_STAGE.get(at.stage, Priority.DIVIDED)
    return priority, at.found_seconds if priority is Priority.DIVIDED else bound.lower_bound
