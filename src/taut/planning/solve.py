"""
The main job: from a model and a cluster to a plan with a proven gap.

The way a plan takes: a ``PlanRequest`` becomes a ``PlanningProblem`` (``taut.planning.resolve``), the branch and bound
(``taut.solver.search.search``) finds strategy, stages and placement with a bound on every candidate, and the
certificate (``taut.solver.certificate.write``) writes down everything that ``taut verify`` needs. With another method
(``taut.solver.methods``) the plan is that method's, and the branch and bound gives it its bounds.
"""

import math
from collections.abc import Sequence
from typing import Any, Unpack, overload

from taut.errors import FieldError, InfeasibleError, NothingFoundError
from taut.formulations.problem import PlanningProblem
from taut.planning.extrapolation import warn_outside
from taut.planning.method import found_nothing, named, of_even_batches, scored_by_simulation
from taut.planning.plan import Plan
from taut.planning.request import ClusterInput, ModelInput, PlanOptions, PlanRequest, request_of
from taut.planning.resolve import planning_problem, wider_costs
from taut.planning.stated import Stated, fastest
from taut.solver.branch_and_bound.progress import Listener
from taut.solver.certificate.write import plan_document
from taut.solver.infeasibility.diagnosis import diagnose
from taut.solver.methods.certified import METHOD_SHARE, planned_within
from taut.solver.methods.named import SEARCH
from taut.solver.result import Incumbent, Limits, SearchResult, Status, StoppedBy
from taut.solver.search.search import search

_STOPPED = {
    StoppedBy.TIME: "the time limit came first",
    StoppedBy.WORK: "the work limit came first",
    StoppedBy.INTERRUPT: "interrupted before there was one",
}


@overload
def plan(
    model: PlanRequest, /, *, method: str = SEARCH, processes: int = 1, progress: Listener | None = None
) -> Plan: ...
@overload
def plan(
    model: ModelInput,
    cluster: ClusterInput,
    *,
    method: str = SEARCH,
    processes: int = 1,
    progress: Listener | None = None,
    **options: Unpack[PlanOptions],
) -> Plan: ...
def plan(
    model: ModelInput | PlanRequest,
    cluster: ClusterInput | None = None,
    *,
    method: str = SEARCH,
    processes: int = 1,
    progress: Listener | None = None,
    **options: Any,
) -> Plan:
    """
    Plan the training of a model on a cluster.

    Parameters
    ----------
    model, cluster
        Specs or their plain values, catalog names (``gpt3-175b``, ``dgx-a100:16``) or files; or a ``PlanRequest``
        alone, which holds everything below but ``method``, ``processes`` and ``progress``.
    method
        ``branch-and-bound``; ``simulated``, its best candidates scored by simulating them; ``cp-sat`` or ``cbc``, the
        strategy as an integer program and its placement as a quadratic assignment; or a baseline from its paper,
        ``megatron``, ``amp``, ``pipette``, ``hethub``, ``varuna``, ``fsdp`` or ``random``. Bounds are those of the
        branch and bound in any case, which has what the method leaves of the time limit, at least a quarter.
    processes
        Of the branch and bound, which share incumbent and bounds; with several, ``work_limit`` holds for groups of
        candidates, and which of several plans within the gap is found depends on the time.
    progress
        Called with a ``Progress``: ``wall_s``, ``incumbent``, ``lower_bound``, and in ``doing`` what was just done.
    **options
        ``global_batch``: sequences per step.

        ``seq``: sequence length in tokens, if it is to differ from the model's.
        ``mtp_layers``: further tokens that the model predicts (multi-token prediction), if not as its file says; files
        of Hugging Face leave them out.

        ``profile``: measured layer costs, by catalog name or file; analytic costs without them.

        ``memory_model``: catalog name, file or model of a device's memory; without it the one fitted for the
        calibration's stack, or the analytic one.

        ``latency_model``: ``step`` (the default), ``pipette``, ``pipette-printed`` or ``amp``; or ``simulated``, which
        is method ``simulated`` at the prices of ``step``.

        ``overlap_grad_reduce``: whether gradients are reduced during the last backward pass, in ``step``.

        ``overlap_moe_expert_parallel_comm``, ``moe_token_dispatcher``, ``fp8_dispatch``, ``moe_router_dtype``,
        ``imbalance``: how expert ranks exchange tokens: hidden behind another micro-batch, by ``flex`` (the default) or
        ``taut.data.layers.dispatch``'s others, in fp8 forward, scores in fp32 or fp64, and the fullest rank's load.

        ``calibration``: coefficients fitted on measured runs, by catalog name or file; the stated efficiencies
        without it.

        ``stack``: the framework that is to run the plan, by catalog name or file (``taut catalog stacks``): it limits
        the space and brings a calibration; by default ``megatron-core`` in ``step``, and ``any`` under the papers'
        latency models.

        ``precision``: ``bf16``, ``fp16``, ``fp32``, ``fp8``, ``fp8-blockwise``, ``mxfp8`` or ``nvfp4``;
        by default the first of bf16, fp16 and fp32 in which every device computes.

        ``grad_precision``: in which gradients are kept and summed, ``bf16``, ``fp16`` or ``fp32``; by default fp16
        where ``precision`` is, and fp32 elsewhere.

        ``optimizer_offload_fraction``: the share of the optimizer states that is in the host's memory, where the host
        updates its weights; by default none. Several shares, or ``auto`` for quarters from 0 to 1, are a choice of the
        plan.

        ``activation_offload_fraction``: the share of the activations that goes to the host's memory and comes back for
        the backward pass; by default none. Several shares, or ``auto``, are a choice of the plan.

        ``fix``: degrees and choices that must have these values, such as ``{"tp": 8, "schedule": "1f1b"}``.

        ``max_tp``: largest tensor degree; by default the largest node.

        ``max_cp``: largest context degree; by default the largest that leaves each rank 4,096 tokens, in ``step`` and
        for stacks that have contexts.

        ``schedules``: ``all``, names separated by commas, or a list of names; by default ``1f1b,gpipe``, and what
        ``fix`` asks for.

        ``time_limit``, ``work_limit``, ``gap``: when to stop: seconds, refinements of candidates, relative gap.

        ``seed``, ``workers``: seed of the annealing, and threads it runs on; the plan does not depend on the number
        of threads.

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
    <Plan gpt2-345m on dgx-a100, pp=1 tp=1 dp=8 micro_batch=4 1f1b zero=3, 0.1494 s a step, gap 0 %>
    """
    return planned(request_of(model, cluster, options), method=method, processes=processes, progress=progress)


def planned(
    request: PlanRequest,
    *,
    method: str = SEARCH,
    processes: int = 1,
    progress: Listener | None = None,
    starts: Sequence[Stated] = (),
) -> Plan:
    """
    What ``plan`` finds for a request.

    Parameters
    ----------
    request, method, processes, progress
        As of ``plan``.
    starts
        Configurations that the branch and bound of one process knows from the beginning, where they fit and lie in the
        space.

    Raises
    ------
    DataError, InfeasibleError, NothingFoundError
        As ``plan`` does.
    """
    request, method = scored_by_simulation(request, method)
    if processes < 1 or (processes > 1 and method != SEARCH):
        reason = f"expected a number above 0, and 1 with a method other than {SEARCH}"
        raise FieldError("processes", str(processes), reason)
    problem, limits = planning_problem(request), request.limits
    if method != SEARCH:
        problem = of_even_batches(problem, method)
    tried = None if method == SEARCH else planned_within(problem, named(method), limits, progress)
    known = fastest(problem, starts)
    result = _searched(problem, limits, processes, progress, known) if tried is None else tried.result
    if result.status is Status.INFEASIBLE:
        why_not = diagnose(problem, result, pricing=lambda max_tp: wider_costs(problem, request.profile, max_tp))
        raise InfeasibleError(str(why_not), why_not.as_dict())
    if result.incumbent is None:
        if tried is not None and tried.outcome.wall_s < METHOD_SHARE * (limits.time_limit or math.inf):
            raise NothingFoundError(f"no plan found: {found_nothing(tried, problem)}")
        why = _STOPPED.get(result.stopped_by, "every candidate left mixes devices in ways that did not fit")
        raise NothingFoundError(f"no plan found: {why}; no plan is faster than {result.lower_bound:.6g} s")
    warn_outside(problem, result.incumbent.strategy)
    return Plan(plan_document(problem, result, limits, None if tried is None else tried.figures))


def _searched(
    problem: PlanningProblem, limits: Limits, processes: int, progress: Listener | None, known: Incumbent | None
) -> SearchResult:
    """The branch and bound, on so many processes."""
    if processes == 1:
        return search(problem, limits, progress, incumbent=known)
    from taut.processes import local_executor
    from taut.solver.search.shared import search_on

    with local_executor(processes) as executor:
        return search_on(executor, processes, problem, limits, progress)
