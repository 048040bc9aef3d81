"""The calibration of a plan whose errors on unseen runs are known: its band says where a run is expected."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from taut.data.calibration import Calibration
from taut.data.cluster import ClusterSpec

if TYPE_CHECKING:
    from taut.solver.certificate.document import AnyDocument, InputSection


def calibration_with_errors(plan: "AnyDocument") -> Calibration | None:
    """The calibration of a plan; None without one, without errors on unseen runs, or beside other types of device."""
    if (given := plan.inputs.get("calibration")) is None:
        return None
    found = Calibration.parse(given.spec, "inputs.calibration")
    if not found.residuals or others_than(found.device, plan.inputs):
        return None
    return found


def others_than(device: str | None, inputs: "Mapping[Any, InputSection]") -> list[str]:
    """Types of device of a plan's cluster beside the one of its calibration; none where that names no device."""
    if not device:
        return []
    return sorted(set(ClusterSpec.parse(inputs["cluster"].spec, "inputs.cluster").devices) - {device})
