"""
Plans the training of large models on GPU clusters, and proves how good the plan is.

Everything public is a name of this package, loaded when it is first used, so that importing it costs nothing.

========================  ==========================================================================================
to plan                   ``plan``, ``pareto``, ``resource_front``, ``predict``,
                          ``sweep``, ``place``, ``place_strategy``, ``verify``, ``provision``, ``compare``,
                          ``compare_plans``, ``load_plan``, ``export``, ``regret``, ``break_even``, ``replan``,
                          ``spare_nodes``;
                          ``Provision``, ``Replanned``, ``Comparison``, ``Plan``, ``PlanRequest``, ``Frontier``,
                          ``FrontierPoint``,
                          ``ResourceFront``, ``Verification``, ``AssignmentResult``, ``StrategyPlacement``
inputs                    ``load_model``, ``load_cluster``, ``load_costs``, ``load_memory_model``,
                          ``load_calibration``, ``load_stack``; ``ModelSpec``, ``LayerSpec``, ``ClusterSpec``,
                          ``NodeSpec``, ``NetworkSpec``, ``DeviceSpec``, ``CostTable``, ``MemoryModel``,
                          ``Calibration``, ``Stack``
the problem               ``PlanningProblem``, ``StrategySpace``, ``Candidate``, ``Strategy``, ``Limits``, ``Status``,
                          ``QuadraticAssignment``; ``planning_problem``
measured runs             ``fit_latency``, ``fit_memory_samples``
many jobs on one cluster  ``jobs``; ``JobsSchedule``
packed sequences          ``pack``; ``PackedPlan``
one step, event by event  ``simulate``, ``simulate_strategy``; ``Simulation``, ``MeshSimulation``
pipeline schedules        ``best_schedule``, ``published_schedule``; ``Stages``, ``Schedule``, ``ScheduleSearch``
pictures                  ``plot_placement``, ``plot_memory``, ``plot_time``, ``plot_frontier``, ``plot_resources``,
                          ``plot_schedule``, ``schedule_page``, ``plan_page``,
                          ``plot_timeline``, ``plot_jobs``, ``plot_packing``
what goes wrong           ``TautError``, ``DataError``, ``FieldError``, ``MissingProfileError``, ``FormulationError``,
                          ``SolverError``, ``InfeasibleError``, ``NothingFoundError``, ``CertificateError``,
                          ``ExtrapolationWarning``
========================  ==========================================================================================
"""

import re
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taut.assignment import StrategyPlacement as StrategyPlacement
    from taut.assignment import place as place
    from taut.assignment import place_strategy as place_strategy
    from taut.comparison.compare import compare as compare
    from taut.comparison.result import Comparison as Comparison
    from taut.comparison.result import compare_plans as compare_plans
    from taut.data.calibration import Calibration as Calibration
    from taut.data.cluster import ClusterSpec as ClusterSpec
    from taut.data.cluster import NetworkSpec as NetworkSpec
    from taut.data.cluster import NodeSpec as NodeSpec
    from taut.data.costs import CostTable as CostTable
    from taut.data.device import DeviceSpec as DeviceSpec
    from taut.data.layers.layer import LayerSpec as LayerSpec
    from taut.data.load import load_calibration as load_calibration
    from taut.data.load import load_cluster as load_cluster
    from taut.data.load import load_costs as load_costs
    from taut.data.load import load_memory_model as load_memory_model
    from taut.data.load import load_model as load_model
    from taut.data.load import load_stack as load_stack
    from taut.data.memory import MemoryModel as MemoryModel
    from taut.data.model import ModelSpec as ModelSpec
    from taut.data.stack import Stack as Stack
    from taut.errors import CertificateError as CertificateError
    from taut.errors import DataError as DataError
    from taut.errors import ExtrapolationWarning as ExtrapolationWarning
    from taut.errors import FieldError as FieldError
    from taut.errors import FormulationError as FormulationError
    from taut.errors import InfeasibleError as InfeasibleError
    from taut.errors import MissingProfileError as MissingProfileError
    from taut.errors import NothingFoundError as NothingFoundError
    from taut.errors import SolverError as SolverError
    from taut.errors import TautError as TautError
    from taut.exports.export import export as export
    from taut.formulations.assignment import QuadraticAssignment as QuadraticAssignment
    from taut.formulations.problem import PlanningProblem as PlanningProblem
    from taut.formulations.schedules.schedule import Schedule as Schedule
    from taut.formulations.schedules.stages import Stages as Stages
    from taut.formulations.space import Candidate as Candidate
    from taut.formulations.space import StrategySpace as StrategySpace
    from taut.formulations.strategy import Strategy as Strategy
    from taut.frontier.frontier import Frontier as Frontier
    from taut.frontier.frontier import FrontierPoint as FrontierPoint
    from taut.frontier.frontier import pareto as pareto
    from taut.frontier.resources import ResourceFront as ResourceFront
    from taut.frontier.resources import resource_front as resource_front
    from taut.packing import PackedPlan as PackedPlan
    from taut.packing import pack as pack
    from taut.packing import plot_packing as plot_packing
    from taut.planning.plan import Plan as Plan
    from taut.planning.plan import load_plan as load_plan
    from taut.planning.request import PlanRequest as PlanRequest
    from taut.planning.resolve import planning_problem as planning_problem
    from taut.planning.solve import plan as plan
    from taut.plots.frontier import plot_frontier as plot_frontier
    from taut.plots.frontier import plot_resources as plot_resources
    from taut.plots.jobs import plot_jobs as plot_jobs
    from taut.plots.plan import plot_memory as plot_memory
    from taut.plots.plan import plot_placement as plot_placement
    from taut.plots.plan import plot_time as plot_time
    from taut.plots.schedule import plot_schedule as plot_schedule
    from taut.plots.schedule import plot_timeline as plot_timeline
    from taut.plots.schedule_page import schedule_page as schedule_page
    from taut.prediction.fitting import fit_latency as fit_latency
    from taut.prediction.fitting import fit_memory_samples as fit_memory_samples
    from taut.prediction.rows import predict as predict
    from taut.provisioning import Provision as Provision
    from taut.provisioning import provision as provision
    from taut.replanning.replan import replan as replan
    from taut.replanning.result import Replanned as Replanned
    from taut.replanning.spares import spare_nodes as spare_nodes
    from taut.reports.page.page import plan_page as plan_page
    from taut.schedules.portfolio import ScheduleSearch as ScheduleSearch
    from taut.schedules.portfolio import best_schedule as best_schedule
    from taut.schedules.portfolio import published_schedule as published_schedule
    from taut.sensitivity import break_even as break_even
    from taut.sensitivity import regret as regret
    from taut.sharing.jobs import JobsSchedule as JobsSchedule
    from taut.sharing.jobs import jobs as jobs
    from taut.simulation import MeshSimulation as MeshSimulation
    from taut.simulation import Simulation as Simulation
    from taut.simulation import simulate as simulate
    from taut.simulation import simulate_strategy as simulate_strategy
    from taut.solver.certificate.verify import Verification as Verification
    from taut.solver.qap.quadratic import AssignmentResult as AssignmentResult
    from taut.solver.result import Limits as Limits
    from taut.solver.result import Status as Status
    from taut.sweeping.sweep import sweep as sweep
    from taut.verification import verify as verify

# Checkers read the imports above and Python skips them: names and homes stand there alone.
_HOME = {name: home for home, name in re.findall(r"^    from (\S+) import (\w+) as", Path(__file__).read_text(), re.M)}

__version__ = version("taut")
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        near = import_module("taut.data.suggest").nearest(name, sorted(__all__, key=str.swapcase))
        raise AttributeError(f"module 'taut' has no attribute {name!r}" + (f"; did you mean {near}?" if near else ""))
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
