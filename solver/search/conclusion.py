"""What a search ends with: states of candidates, and the status, that follow from its plan and bounds."""

import math
from typing import Any

from taut.solver.result import (
    OPTIMALITY_GAP,
    CandidateBound,
    Incumbent,
    SearchResult,
    State,
    Status,
    StoppedBy,
    relative_gap,
)


def concluded(
    bounds: list[CandidateBound],
    incumbent: Incumbent | None,
    lower_bound: float,
    stopped: StoppedBy | None,
    **more: Any,
) -> SearchResult:
    """
    The result of a search that has ended.

    ``bounds``: of all candidates; those that the incumbent refutes become pruned; ``incumbent``, ``lower_bound``: the
    best plan, and the global bound; ``stopped``: why it stopped, None where nothing was left; ``**more``: further
    fields of the result.
    """
    seconds = math.inf if incumbent is None else incumbent.seconds
    for bound in bounds:
        if bound.state is State.OPEN and bound.lower_bound >= seconds:
            bound.state = State.PRUNED
    if incumbent is None:
        done = stopped is None and all(bound.state is State.INFEASIBLE for bound in bounds)
        status = Status.INFEASIBLE if done else Status.UNKNOWN
    else:
        gap = relative_gap(incumbent.seconds, lower_bound)
        status = Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE
    return SearchResult(
        status=status,
        stopped_by=stopped or StoppedBy.EXHAUSTED,
        incumbent=incumbent,
        lower_bound=lower_bound,
        bounds=sorted(bounds, key=lambda bound: bound.candidate),
        **more,
    )
