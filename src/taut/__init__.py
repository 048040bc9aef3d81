"""
Plans the training of large models on GPU clusters, and proves how good the plan is.

``plan`` is the main job; ``Plan`` its result. Names are loaded when they are first used, so that importing the
package costs nothing.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taut.data.cluster import ClusterSpec
    from taut.data.costs import CostTable
    from taut.data.load import load_cluster, load_model
    from taut.data.memory import MemoryModel
    from taut.data.model import ModelSpec
    from taut.formulations.schedules.stages import Stages
    from taut.planning import Plan, plan
    from taut.plots.placement import plot_placement
    from taut.plots.plan import plot_memory, plot_time
    from taut.plots.schedule import plot_schedule
    from taut.plots.schedule_page import schedule_page
    from taut.schedules.portfolio import ScheduleSearch, best_schedule, published_schedule
    from taut.solver.certificate.verify import verify_document

_HOMES = {
    "ClusterSpec": "taut.data.cluster",
    "CostTable": "taut.data.costs",
    "MemoryModel": "taut.data.memory",
    "ModelSpec": "taut.data.model",
    "Plan": "taut.planning",
    "ScheduleSearch": "taut.schedules.portfolio",
    "Stages": "taut.formulations.schedules.stages",
    "best_schedule": "taut.schedules.portfolio",
    "load_cluster": "taut.data.load",
    "load_model": "taut.data.load",
    "plan": "taut.planning",
    "plot_memory": "taut.plots.plan",
    "plot_placement": "taut.plots.placement",
    "plot_schedule": "taut.plots.schedule",
    "plot_time": "taut.plots.plan",
    "published_schedule": "taut.schedules.portfolio",
    "schedule_page": "taut.plots.schedule_page",
    "verify_document": "taut.solver.certificate.verify",
}

__version__ = version("taut")
__all__ = [
    "ClusterSpec",
    "CostTable",
    "MemoryModel",
    "ModelSpec",
    "Plan",
    "ScheduleSearch",
    "Stages",
    "best_schedule",
    "load_cluster",
    "load_model",
    "plan",
    "plot_memory",
    "plot_placement",
    "plot_schedule",
    "plot_time",
    "published_schedule",
    "schedule_page",
    "verify_document",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'taut' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
