"""The calibration of a plan whose errors on unseen runs are known: its band says where a run is expected."""

from typing import TYPE_CHECKING

from taut.data.calibration import Calibration

if TYPE_CHECKING:
    from taut.solver.certificate.document import PlanDocument


def calibration_with_errors(plan: "PlanDocument") -> Calibration | None:
    """The calibration of a plan, None without one or without errors on unseen runs."""
    if (given := plan.inputs.get("calibration")) is None:
        return None
    found = Calibration.parse(given.spec, "inputs.calibration")
    return found if found.residuals else None
