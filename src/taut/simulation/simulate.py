"""
Simulating one training step: from a plan, or from a model, a cluster and fixed values.

The graph of the step is built from the evaluator's own prices (``taut.formulations.simulation.graph``) and swept once.

The strategy is a plan's, or the one that fixed values state (``taut.planning.stated``). Both are simulated by the
prices of the latency model ``step``.
"""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any, Unpack, cast, overload

from taut.data.arrays import Ints
from taut.errors import DataError, FieldError
from taut.formulations.latency import violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.simulation.graph import operator_graph
from taut.formulations.strategy import Strategy
from taut.planning.options import PlanOptions
from taut.planning.plan import Plan, load_plan
from taut.planning.request import ClusterInput, ModelInput, PlanRequest, request_of
from taut.planning.stated import stated_configuration
from taut.simulation.result import MeshSimulation, Simulation, simulate_meshes
from taut.solver.certificate.document import devices_of, problem_of, strategy_of

Configuration = tuple[PlanningProblem, Strategy, Ints]
"""Problem in the latency model ``step``, strategy, and the device of every worker."""


def of_plan(plan: Plan) -> Configuration:
    """Strategy and placement of a plan."""
    problem, strategy = problem_of(plan.typed, plan.source), strategy_of(plan.typed.strategy, plan.source)
    devices = devices_of(plan.typed, plan.source)
    if faults := violations(problem, strategy, devices):
        raise DataError(f"{plan.source}: {faults[0]}")
    return problem.priced_by("step"), strategy, devices


def of_request(request: PlanRequest) -> Configuration:
    """The strategy that a request's fixed values state, in the order of the devices."""
    stated = stated_configuration(request)
    return stated.problem.priced_by("step"), stated.strategy, stated.devices


PlanInput = Plan | str | PathLike[str] | Mapping[str, Any]


@overload
def simulate(model: PlanRequest, /, *, share_links: bool = False) -> Simulation: ...
@overload
def simulate(model: PlanInput, /, *, share_links: bool = False) -> Simulation | MeshSimulation: ...
@overload
def simulate(
    model: ModelInput, cluster: ClusterInput, *, share_links: bool = False, **options: Unpack[PlanOptions]
) -> Simulation: ...
def simulate(
    model: PlanInput | ModelInput | PlanRequest,
    cluster: ClusterInput | None = None,
    *,
    share_links: bool = False,
    **options: Any,
) -> Simulation | MeshSimulation:
    """
    Simulate one training step, event by event.

    Parameters
    ----------
    model, cluster
        Specs or their plain values, catalog names or files, as of ``taut.plan``; or, alone, a plan, its file or its
        values, or a ``PlanRequest``.
    share_links
        Whether messages, gathers and reductions that meet on a node's network cards slow each other.
    **options
        Those of ``taut.plan``. ``fix`` states the configuration; what it leaves open is chosen by the evaluator among
        simple plans (even stages, workers in the order of the devices).

    Returns
    -------
    Simulation or MeshSimulation
        Step time, bubble, exposed communication, utilisation, memory over time, and every event; of a plan of meshes
        the passes of every pipeline.

    Raises
    ------
    DataError
        If an input is wrong or no candidate exists; a ``FieldError`` names the argument.

    Examples
    --------
    >>> import taut
    >>> taut.simulate("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4, "zero": 0})
    <Simulation pp=2 tp=1 dp=4 micro_batch=4 1f1b recompute=none, 0.2274 s a step, 210 tasks, bubble 30.3%>
    """
    if isinstance(model, PlanRequest) or cluster is not None:
        return simulate_strategy(*of_request(request_of(cast("Any", model), cluster, options)), share_links=share_links)
    if options:
        raise FieldError(min(options), None, "given together with a plan, expected nothing that the plan holds")
    plan = _read(cast("PlanInput", model))
    if plan.meshes:
        return simulate_meshes(plan, share_links=share_links)
    return simulate_strategy(*of_plan(plan), share_links=share_links)


def simulate_strategy(
    problem: PlanningProblem,
    strategy: Strategy,
    devices: Ints,
    *,
    every_replica: bool = False,
    recompute_communication: bool = True,
    share_links: bool = False,
) -> Simulation:
    """
    Simulate a strategy on a placement.

    Parameters
    ----------
    problem
        What is planned, in the latency model ``step``.
    strategy
        Candidate, stages and recompute.
    devices
        Device of every worker (pp, dp, tp cp).
    every_replica
        Whether equal replicas are simulated one by one; the times are the same.
    recompute_communication
        Whether recomputed operators repeat their communication.
    share_links
        Whether flows that meet on a node's cards slow each other.

    Raises
    ------
    FormulationError
        If the problem has another latency model.

    Examples
    --------
    >>> import taut
    >>> found = taut.simulate("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> every = taut.simulate_strategy(found.problem, found.strategy, found.workers, every_replica=True)
    >>> round(every.step_time_s / found.step_time_s, 12), every.tasks > found.tasks
    (1.0, True)
    """
    began = perf_counter()
    graph = operator_graph(
        problem,
        strategy,
        devices,
        every_replica=every_replica,
        recompute_communication=recompute_communication,
        share_links=share_links,
    )
    start = graph.times()
    return Simulation(problem, strategy, devices, graph, start, perf_counter() - began, share_links)


def _read(subject: PlanInput) -> Plan:
    """The plan itself, of its values, or of its file."""
    if isinstance(subject, Plan):
        return subject
    return Plan(dict(subject)) if isinstance(subject, Mapping) else load_plan(Path(subject))
