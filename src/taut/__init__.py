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
    from taut.placement_plot import plot_placement
    from taut.planning import Plan, plan
    from taut.plot import plot_memory, plot_time
    from taut.schedule_page import schedule_page
    from taut.schedule_plot import plot_schedule
    from taut.schedule_posing import Stages
    from taut.scheduling import ScheduleSearch, best_schedule, published_schedule
    from taut.solver.verify import verify_document

_HOMES = {
    "ClusterSpec": "taut.data.cluster",
    "CostTable": "taut.data.costs",
    "MemoryModel": "taut.data.memory",
    "ModelSpec": "taut.data.model",
    "Plan": "taut.planning",
    "ScheduleSearch": "taut.scheduling",
    "Stages": "taut.schedule_posing",
    "best_schedule": "taut.scheduling",
    "load_cluster": "taut.data.load",
    "load_model": "taut.data.load",
    "plan": "taut.planning",
    "plot_memory": "taut.plot",
    "plot_placement": "taut.placement_plot",
    "plot_schedule": "taut.schedule_plot",
    "plot_time": "taut.plot",
    "published_schedule": "taut.scheduling",
    "schedule_page": "taut.schedule_page",
    "verify_document": "taut.solver.verify",
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
