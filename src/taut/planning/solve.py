"""
The main job: from a model and a cluster to a plan with a proven gap.

The way of a plan: a ``PlanRequest`` becomes a ``PlanningProblem`` (``taut.planning.resolve``). The branch and bound
(``taut.solver.search.search``) finds strategy, stages and placement with a bound on every candidate. The certificate
(``taut.solver.certificate.write``) writes down everything that ``taut verify`` needs. With another method
(``taut.solver.methods``) the plan is the plan of that method, and the branch and bound gives it its bounds.

A stack may have two spaces: one degree for all stages, and meshes (``taut.planning.meshes``). ``plan_request`` searches
one after the other and returns the better plan with a bound on both. Of two equal plans it is the plan of one degree.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Unpack, overload

from taut.data.costs import RECOMPUTE
from taut.data.memory import beyond
from taut.data.suggest import one_of
from taut.errors import ExtrapolationWarning, FieldError, InfeasibleError, NothingFoundError
from taut.formulations.mechanisms.unequal_replicas import of_even_batches
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.formulations.tables.memory import candidate_features
from taut.planning.meshes import has_meshes, mesh_problem, on_flagscale, plan_meshes
from taut.planning.options import PlanOptions
from taut.planning.plan import Plan
from taut.planning.request import ClusterInput, ModelInput, PlanRequest, request_of
from taut.planning.resolve import planning_problem, wider_costs
from taut.planning.stated import Stated, fastest
from taut.solver.branch_and_bound.stop import Listener, Progress, interrupt_requested
from taut.solver.certificate.document import with_other_space
from taut.solver.certificate.write import plan_document, with_plainer
from taut.solver.methods.certified import METHOD_SHARE, Certified, planned_within
from taut.solver.methods.named import MESHES, NAMES, SEARCH, SIMULATED, method_of
from taut.solver.result import Incumbent, Limits, NearTie, SearchResult, State, Status, StoppedBy
from taut.solver.search.plainer import near_ties
from taut.solver.search.search import search

_STOPPED = {
    StoppedBy.TIME: "the time limit came first",
    StoppedBy.WORK: "the work limit came first",
    StoppedBy.INTERRUPT: "interrupted before there was one",
}
WHY_NOT_SHARE = 0.25
"""Share of the time limit in which what would make a plan fit is tried, as much as plainer plans have."""
PlanSpace = Callable[[PlanRequest], Plan]
"""The search of one space, within the limits of a request."""
Nothing = InfeasibleError | NothingFoundError


@overload
def plan(
    model: PlanRequest,
    /,
    *,
    method: str = SEARCH,
    processes: int = 1,
    plainer: bool = False,
    progress: Listener | None = None,
) -> Plan: ...
@overload
def plan(
    model: ModelInput,
    cluster: ClusterInput,
    *,
    method: str = SEARCH,
    processes: int = 1,
    plainer: bool = False,
    progress: Listener | None = None,
    **options: Unpack[PlanOptions],
) -> Plan: ...
def plan(
    model: ModelInput | PlanRequest,
    cluster: ClusterInput | None = None,
    *,
    method: str = SEARCH,
    processes: int = 1,
    plainer: bool = False,
    progress: Listener | None = None,
    **options: Any,
) -> Plan:
    """
    Plan the training of a model on a cluster.

    Parameters
    ----------
    model, cluster
        Specs or their plain values, catalog names (``gpt3-175b``, ``dgx-a100:16``) or files; or a ``PlanRequest``
        alone, which holds everything below but ``method``, ``processes``, ``plainer`` and ``progress``.
    method
        ``branch-and-bound`` searches every space of a named ``stack``: one degree for all stages and, with several
        types of device, meshes (degrees by type). ``meshes`` searches the latter only. ``simulated`` scores the best
        candidates by simulation. ``cp-sat`` and ``cbc`` solve the strategy as an integer program and the placement as
        a quadratic assignment. ``megatron``, ``amp``, ``pipette``, ``hethub``, ``varuna``, ``fsdp`` and ``random`` are
        baselines from their papers. With every method the bounds are those of the
        branch and bound in any case, which has what the method leaves of the time limit, at least a quarter.
    processes
        Processes of the branch and bound, which share incumbent and bounds. With several processes ``work_limit`` holds
        for each group of candidates. If several plans are within the gap, the clock then decides which one is found.
    plainer
        Whether plainer plans are searched after the best one, such as the best with even stages, each with a bound
        (``Plan.plainer``). One that costs less than the prices can tell is returned in its place, unless plans of
        meshes are searched too. They take at most a quarter of the limits beyond these. There are none with another
        method, under the papers' latency models, or for plans of meshes.
    progress
        Called with a ``Progress``: ``wall_s``, ``incumbent``, ``lower_bound``, and in ``doing`` what was just done.
    **options
        ``global_batch``, and any other option of a request (``taut.planning.options``), such as ``seq``, ``stack``,
        ``fix`` or ``time_limit``. ``help(taut.PlanRequest)`` lists them with their meanings.

    Returns
    -------
    Plan
        The best plan found, with its bound.

    Raises
    ------
    DataError
        If an input is wrong or no candidate exists; a ``FieldError`` names the argument.
    InfeasibleError
        If no plan fits the devices' memory.
    NothingFoundError
        If a limit or an interrupt came before the first plan, or the method has none.

    Examples
    --------
    >>> import taut
    >>> taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 1, "tp": 1, "micro_batch": 4})
    <Plan gpt2-345m on dgx-a100, pp=1 tp=1 dp=8 micro_batch=4 1f1b zero=3, 0.1496 s a step, gap 0 %>
    """
    request = request_of(model, cluster, options)
    return plan_request(request, method=method, processes=processes, plainer=plainer, progress=progress)


def plan_request(
    request: PlanRequest,
    *,
    method: str = SEARCH,
    processes: int = 1,
    plainer: bool = False,
    progress: Listener | None = None,
) -> Plan:
    """
    Plan what a request asks for; arguments and errors are those of ``plan``.

    With two spaces each search has half of a limit of time or work, and the second also what the first left over.
    """
    request, method = _ranked_by_simulation(request, method)
    spaces = _spaces(request, method, processes, plainer, progress)
    began, work, found = perf_counter(), 0, list[Plan | Nothing]()
    for k, plan_space in enumerate(spaces):
        limits = _shared_limits(request, len(spaces) - k, perf_counter() - began if k else 0.0, work)
        if k and _was_interrupted(found[-1]):
            limits["time_limit"] = 0.0
        try:
            best = plan_space(request.model_copy(update=limits))
            found.append(best)
            work += best.sections.provenance["work"]
        except (InfeasibleError, NothingFoundError) as nothing:
            found.append(nothing)
            work += limits["work_limit"] or 0
        except FieldError as error:
            if k == 0:
                raise
            found.append(InfeasibleError(str(error)))
    return _better(found)


def _spaces(
    request: PlanRequest, method: str, processes: int, plainer: bool, progress: Listener | None
) -> list[PlanSpace]:
    """The searches that a request asks for, one a space."""
    if processes < 1 or (processes > 1 and method != SEARCH):
        reason = f"expected a number above 0, and 1 with a method other than {SEARCH}"
        raise FieldError("processes", str(processes), reason)
    if method == MESHES:
        if request.seen:
            raise FieldError("seen", "true", f"is of plans with one degree for all stages, expected none with {MESHES}")
        request = on_flagscale(request)
        return [partial(plan_meshes, mesh_problem(request), progress=progress)]
    one_degree = partial(plan_one_degree, method=method, processes=processes, plainer=plainer, progress=progress)
    if method != SEARCH or processes > 1 or request.seen or not has_meshes(request):
        return [one_degree]
    try:
        # The better plan of both spaces is taken, so neither gives way to a plainer one.
        return [partial(one_degree, takes=False), partial(plan_meshes, mesh_problem(request), progress=progress)]
    except FieldError as error:
        warnings.warn(f"plans of meshes are not searched: {error}", UserWarning, stacklevel=4)
        return [one_degree]


def _shared_limits(request: PlanRequest, searches: int, seconds: float, work: int) -> dict[str, Any]:
    """Limits of the next of the searches that are left, after so many seconds and so much work."""
    most, units = request.time_limit, request.work_limit
    return {
        "time_limit": None if most is None else max(most - seconds, 0.0) / searches,
        "work_limit": None if units is None else max(units - work, 0) // searches,
    }


def _was_interrupted(found: Plan | Nothing) -> bool:
    """Whether Ctrl-C ended the search of a plan."""
    return isinstance(found, Plan) and found.sections.provenance.get("stopped_by") == StoppedBy.INTERRUPT


def _better(found: Sequence[Plan | Nothing]) -> Plan:
    """The better plan of one or two spaces, with what is known of the other space beside it."""
    plans = [each for each in found if isinstance(each, Plan)]
    if not plans:
        raise next(each for each in found if isinstance(each, InfeasibleError | NothingFoundError))
    best = min(plans, key=lambda each: each.step_time_s)
    others = [each for each in found if each is not best]
    return best if not others else Plan(with_other_space(best.document, _known(others[0])))


def _known(found: Plan | Nothing) -> dict[str, Any]:
    """What a search says of its space: its plan's document, or a state and a bound without a plan."""
    if isinstance(found, Plan):
        return found.document
    if isinstance(found, InfeasibleError):
        return {"status": "infeasible", "lower_bound_s": None}
    return {"status": "unknown", "lower_bound_s": found.lower_bound_s}


def plan_one_degree(
    request: PlanRequest,
    *,
    method: str = SEARCH,
    processes: int = 1,
    plainer: bool = False,
    progress: Listener | None = None,
    starts: Sequence[Stated] = (),
    takes: bool = True,
) -> Plan:
    """
    Plan with one degree for all stages.

    The search knows the configurations ``starts`` from the beginning. A plainer plan may take the place of the fastest
    if it ``takes`` any.
    """
    if method not in NAMES:
        raise FieldError("method", method, f"expected {one_of(method, NAMES)}")
    problem, limits = planning_problem(request), request.limits
    if method != SEARCH:
        problem = of_even_batches(problem, method)
    tried = None if method == SEARCH else planned_within(problem, method_of(method), limits, progress)
    known = fastest(problem, starts)
    result = _searched(problem, limits, processes, progress, known) if tried is None else tried.result
    if result.status is Status.INFEASIBLE:
        from taut.solver.infeasibility.diagnosis import diagnose

        left = None if (most := limits.time_limit) is None else min(most - result.wall_s, WHY_NOT_SHARE * most)
        if progress is not None:
            # Where it takes no plainer plan, meshes are to be searched after this.
            doing = "what would make one fit" if takes else "with one degree for all stages; what would make one fit"
            progress(Progress(result.wall_s, math.inf, math.inf, doing, result.work))
        wider = partial(wider_costs, problem, request.profile)
        why_not = diagnose(problem, result, pricing=wider, seconds=None if left is None else max(left, 0.0))
        raise InfeasibleError(str(why_not), why_not.as_dict())
    if result.incumbent is None:
        raise _nothing_found(problem, result, limits, tried)
    ties = list[NearTie]()
    if plainer and tried is None and problem.latency.prices_mechanisms:
        result, ties = near_ties(problem, result, limits, progress, takes=takes)
    assert result.incumbent is not None
    _warn_outside(problem, result.incumbent.strategy)
    document = plan_document(problem, result, limits, None if tried is None else tried.figures)
    return Plan(with_plainer(document, ties))


def _ranked_by_simulation(request: PlanRequest, method: str) -> tuple[PlanRequest, str]:
    """The request and method for latency model ``simulated``; any other request as it is."""
    if not request.is_simulated:
        return request, method
    if method not in (SEARCH, SIMULATED):
        raise FieldError("method", method, f"given together with latency model {SIMULATED}, expected none")
    return request.at_own_prices(), SIMULATED


def _searched(
    problem: PlanningProblem, limits: Limits, processes: int, progress: Listener | None, known: Incumbent | None
) -> SearchResult:
    """The branch and bound, on so many processes."""
    if processes == 1:
        return search(problem, limits, progress, incumbent=known)
    from taut.processes import local_executor
    from taut.solver.search.search import search_on

    # A signal is heard until the processes are ended.
    with interrupt_requested(), local_executor(processes) as executor:
        return search_on(executor, processes, problem, limits, progress)


def _nothing_found(
    problem: PlanningProblem, result: SearchResult, limits: Limits, tried: Certified | None
) -> NothingFoundError:
    """Why a search, or a method that was tried, has no plan."""
    in_time = tried is not None and tried.outcome.wall_s < METHOD_SHARE * (limits.time_limit or math.inf)
    if tried is not None and in_time and result.stopped_by is not StoppedBy.INTERRUPT:
        outcome = tried.outcome
        why = f"{outcome.method} found none that fits among {outcome.candidates} candidates"
        if outcome.candidates == 0:
            why = f"none of the {len(problem.candidates)} candidates is one that {outcome.method} considers"
        elif math.isfinite(tried.best_s):
            why += f"; {SEARCH} has one of {tried.best_s:.6g} s"
        return NothingFoundError(f"no plan found: {why}")
    left = sum(bound.state is State.OPEN for bound in result.bounds)
    why = _STOPPED.get(result.stopped_by, f"none that fits was found for the {left} candidates left")
    bound = result.lower_bound
    return NothingFoundError(f"no plan found: {why}; no plan is faster than {bound:.6g} s", bound)


def _warn_outside(problem: PlanningProblem, strategy: Strategy) -> None:
    """Warn where the memory model is asked beyond the runs that it was fitted on."""
    choice, block, network = strategy.candidate, problem.model.blocks[0], problem.memory.network
    if network is not None:
        used = sorted({RECOMPUTE.index(recompute) for recompute in strategy.recompute})
        far = network.outside(candidate_features(network.names, problem.model, choice)[used])
        words = f"{network.name}: asked beyond the runs it was trained on: {', '.join(far)}"
    else:
        far = problem.memory.outside(
            n_gpus=problem.cluster.num_devices,
            hidden=block.hidden,
            layers=len(problem.model.blocks),
            seq=block.seq,
            tp=choice.tp,
            pp=choice.pp,
            dp=choice.dp,
            micro_batch=choice.micro_batch,
            num_micro_batches=choice.num_micro_batches,
        )
        words = f"{problem.memory.name}: {beyond(problem.memory, far)}"
    if far:
        warnings.warn(words, ExtrapolationWarning, stacklevel=3)
