r"""
What the limits of a stack cost at most.

With T the step time of a stack's plan and B a lower bound on the whole space at the same prices, of one degree for all
stages and of meshes where the devices are of several types, the best plan of all is faster by at most

(1) :math:`T / B - 1`.
"""

from contextlib import suppress
from dataclasses import dataclass

from taut.data.stack import SCHEDULES
from taut.errors import FieldError, NothingFoundError
from taut.formulations.stack_space import WHOLE_SPACE
from taut.planning.meshes import has_meshes, mesh_problem
from taut.planning.plan import Plan
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.planning.stack import stack_of
from taut.solver.branch_and_bound.stop import Listener
from taut.solver.meshes.search import search_meshes
from taut.solver.search.search import search


@dataclass(frozen=True, slots=True)
class StackPrice:
    """Step of a stack's plan, a bound on the whole space, the share (1), and schedules that its search ``left_out``."""

    stack: str
    step_time_s: float
    whole_space_bound_s: float
    left_out: tuple[str, ...] = ()

    @property
    def at_most(self) -> float:
        """Share by which a plan beyond the stack's limits may be faster, (1)."""
        return self.step_time_s / self.whole_space_bound_s - 1

    def __str__(self) -> str:
        bound = f"no plan of the whole space is faster than {self.whole_space_bound_s:.6g} s at the same prices"
        more = (
            f"; the stack runs {', '.join(self.left_out)} as well, which --schedules leaves out"
            if self.left_out
            else ""
        )
        return f"stack price {self.stack}'s limits cost at most {100 * max(self.at_most, 0.0):.3g} %: {bound}{more}"


def stack_price(request: PlanRequest, plan: Plan, *, progress: Listener | None = None) -> StackPrice:
    """Bound the whole space at the prices of a plan's stack, within the limits of the plan's request."""
    request = request.at_own_prices()
    priced = planning_problem(request)
    wider = request.model_copy(
        update={
            "stack": WHOLE_SPACE,
            "calibration": priced.calibration,
            "memory_model": priced.memory,
            "overlap_grad_reduce": priced.overlap_grad_reduce,
            # What a user leaves out is no limit of the stack, and the bound is one on the whole space.
            "schedules": SCHEDULES,
            "seen": False,
        }
    )
    bounds = [search(planning_problem(wider), request.limits, progress).lower_bound]
    if has_meshes(wider):
        with suppress(FieldError):
            bounds.append(search_meshes(mesh_problem(wider), request.limits, progress).lower_bound)
    if not min(bounds) > 0:
        raise NothingFoundError("no stack price: the search was stopped before it bounded the whole space")
    considered = SCHEDULES if "schedule" in request.fix else priced.space.schedules
    left_out = tuple(kind for kind in stack_of(request).schedules if kind not in considered)
    return StackPrice(priced.space.stack or WHOLE_SPACE, plan.step_time_s, min(bounds), left_out)
