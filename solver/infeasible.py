"""
Why no plan fits, by how much, and the nearest way out: each computed, none guessed.

The nearest candidate is the one whose best division of layers exceeds memory least. Ways out are tried in order of
what they cost: dropping fixed values, keeping no margin, more of the same nodes, larger devices.
"""

from collections.abc import Iterator
from dataclasses import replace

from taut.data.units import GIB, KIB
from taut.formulations.partition import partition_problem
from taut.formulations.problem import PlanningProblem
from taut.solver.partition import least_excess
from taut.solver.result import SearchResult, State

MOST_TIMES_NODES = 64


def explain_infeasible(problem: PlanningProblem, result: SearchResult) -> str:
    """One sentence: the device that lacks memory, the bytes that are missing, and the nearest way out."""
    refused = [bound for bound in result.bounds if bound.state is State.INFEASIBLE]
    nearest = min(refused, key=lambda bound: (bound.witness["missing_kib"], bound.candidate))
    missing, stage = int(nearest.witness["missing_kib"]) * KIB, int(nearest.witness["stage"])
    candidate = nearest.candidate
    device = stage * candidate.dp * candidate.tp
    node = problem.cluster.node_list[int(problem.links.node_of[device])]
    margin = problem.memory.margin_kib(node.device.capacity_kib) * KIB
    return (
        f"no plan fits: the nearest, {candidate}, even with the best stages and recompute lacks {_gib(missing)} "
        f"({missing} bytes) on device {device} ({node.device.name}, stage {stage}), which has "
        f"{node.device.memory_gib:g} GiB less {_gib(margin)} of margin; nearest way out: "
        f"{next(_ways_out(problem, missing))}"
    )


def _gib(count: int) -> str:
    return f"{count / GIB:.2f} GiB"


def _ways_out(problem: PlanningProblem, missing: int) -> Iterator[str]:
    """What would make a plan fit, the cheapest first; the last one always does."""
    if problem.space.fixed:
        free = replace(problem, space=problem.space.model_copy(update={"fixed": {}}), _tables={})
        if _fits(free):
            fixed = ",".join(f"{field}={value}" for field, value in problem.space.fixed.items())
            yield f"drop --fix {fixed}"
    if problem.memory.margin > 0 and _fits(problem, margin=False):
        yield f"keep no memory margin (now {problem.memory.margin:.0%})"
    if factor := _times_nodes(problem):
        nodes = problem.cluster.num_nodes
        yield f"{factor * nodes} such nodes instead of {nodes}"
    most = max(device.memory_gib for device in problem.cluster.devices.values())
    needed = most + missing / GIB / (1 - problem.memory.margin)
    yield f"devices with {needed:.1f} GiB instead of {most:g} GiB"


def _fits(problem: PlanningProblem, *, margin: bool = True) -> bool:
    """Whether any candidate has a division of layers within memory."""
    return any(
        least_excess(partition_problem(problem, candidate, margin=margin))[0] == 0 for candidate in problem.candidates
    )


def _times_nodes(problem: PlanningProblem) -> int | None:
    """How many times as many nodes hold the model, by doubling; None if even the most do not."""
    # Of the candidates at given degrees these need least memory, so the others need not be asked.
    lean = {
        "fixed": {"micro_batch": 1},
        "schedules": ["1f1b"],
        "zero": [max(problem.space.zero)],
        "sequence_parallel": [True] if True in problem.space.sequence_parallel else [False],
    }
    space = problem.space.model_copy(update=lean)
    factor = 2
    while factor <= MOST_TIMES_NODES:
        cluster = problem.cluster.scaled(factor)
        if _fits(replace(problem, cluster=cluster, space=space, _tables={})):
            return factor
        factor *= 2
    return None
