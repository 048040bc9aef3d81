"""
Checking what a plan says of its simulated step (``taut.solver.methods.simulated``).

The step is simulated again, and the bound computed again over all candidates of the space, by the deterministic
algorithm of ``taut.solver.bounds.simulated``.
"""

from collections.abc import Iterator
from typing import Any

from taut.data.arrays import Ints
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.solver.bounds.simulated import least_simulated, simulated_seconds
from taut.solver.certificate.closeness import is_close, is_close_or_small
from taut.solver.result import relative_gap

NAME = "provenance.method.simulated"


def simulated_faults(
    provenance: dict[str, Any], problem: PlanningProblem, strategy: Strategy, devices: Ints
) -> Iterator[str]:
    """
    Figures of the simulated step that are not derived; none where the plan states none.

    ``provenance``: of the plan, where the figures stand; ``problem``, ``strategy``, ``devices``: the plan, read back.
    """
    method = provenance.get("method")
    stated = method.get("simulated") if isinstance(method, dict) else None
    if stated is None:
        return
    if not isinstance(stated, dict):
        yield f"{NAME} is {stated!r}, expected figures by name"
        return
    step, bound = simulated_seconds(problem, strategy, devices), least_simulated(problem)
    for name, derived in (("step_time_s", step), ("lower_bound_s", bound)):
        if not _is_number(stated.get(name)) or not is_close(derived, stated[name]):
            yield f"{NAME}.{name} is {stated.get(name)}, derived {derived}"
    gap = relative_gap(step, bound)
    if gap is not None and not (_is_number(stated.get("gap")) and is_close_or_small(gap, stated["gap"], 1.0)):
        yield f"{NAME}.gap is {stated.get('gap')}, derived {gap}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
