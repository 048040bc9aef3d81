r"""
Step time, GPUs, dollars and memory against each other: a frontier of memory limits for each number of nodes.

Of a cluster of K equal nodes, k of them are a smaller cluster. Sets: numbers of nodes k, memory limits M, plans p on
k nodes within M. Data: :math:`n_k` GPUs, step time :math:`T_p`, S steps, q dollars an hour of a GPU, and the bound
:math:`B_{kM}` on every plan on k nodes within M (``taut.frontier.frontier`` (2)).

(1) A point is the best plan found on k nodes within M. No plan there costs less than
    :math:`q \, n_k S B_{kM} / 3600` dollars, or takes less than :math:`S B_{kM}` seconds.
(2) A point is on the front if no other one has as few GPUs, as few seconds a step, as few dollars and needs as little
    memory, and less of one of them. Where steps or price are not said, GPU seconds of a step stand for dollars: of two
    points the same one is cheaper.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from taut.errors import DataError, FieldError, InfeasibleError, NothingFoundError
from taut.files import made_folder
from taut.frontier.frontier import Frontier, FrontierPoint, pareto, rounded_down, rounded_up
from taut.planning.request import ClusterInput, ModelInput, PlanRequest, request_of
from taut.provisioning import Goal, check_alike, counts_of, steps_of
from taut.solver.branch_and_bound.stop import Listener
from taut.words import csv_text, percent, text_table


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePoint:
    """A number of nodes and a memory limit, (1); ``on_front`` by (2). Figures are None where nothing was found."""

    nodes: int
    gpus: int
    at: FrontierPoint
    goal: Goal
    on_front: bool = False

    @property
    def gpu_seconds(self) -> float | None:
        """GPU seconds of a step."""
        return None if self.at.step_time_s is None else self.gpus * self.at.step_time_s

    @property
    def days(self) -> float | None:
        """Days of the training; None where its steps are not said."""
        return None if self.at.step_time_s is None else self.goal.days(self.at.step_time_s)

    @property
    def dollars(self) -> float | None:
        """Dollars of the training; None where steps or price are not said."""
        return None if self.at.step_time_s is None else self.goal.dollars(self.gpus, self.at.step_time_s)

    @property
    def least_dollars(self) -> float | None:
        """Dollars that no plan on so many nodes within the limit is below, (1)."""
        return None if self.at.lower_bound_s is None else self.goal.dollars(self.gpus, self.at.lower_bound_s)

    @property
    def criteria(self) -> tuple[float, ...] | None:
        """What is compared, (2): GPUs, seconds, GPU seconds (dollars at one price) and GiB."""
        found = (self.at.step_time_s, self.gpu_seconds, self.at.needs_gib)
        return None if None in found else (float(self.gpus), *(float(each or 0.0) for each in found))

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        own = {name: getattr(self, name) for name in ("nodes", "gpus", "days", "dollars", "least_dollars", "on_front")}
        return own | {"gpu_seconds": self.gpu_seconds} | self.at.as_dict()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ResourceFront:
    """
    Points by number of nodes and memory limit, ascending, and the frontier of each number of nodes.

    ``complaints`` says by number of nodes why there is no plan.
    """

    model: str
    cluster: str
    global_batch: int
    goal: Goal
    points: tuple[ResourcePoint, ...]
    frontiers: dict[int, Frontier]
    complaints: dict[int, str]

    @property
    def front(self) -> list[ResourcePoint]:
        """Points on the front."""
        return [point for point in self.points if point.on_front]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        head = {name: getattr(self, name) for name in ("model", "cluster", "global_batch")}
        asked = {name: getattr(self.goal, name) for name in ("steps", "price")}
        complaints = {str(nodes): words for nodes, words in self.complaints.items()}
        return head | asked | {"points": [point.as_dict() for point in self.points], "no_plan": complaints}

    def csv(self) -> str:
        """One row a point."""
        figures = ("step_time_s", "lower_bound_s", "gap", "gpu_seconds", "days", "dollars", "least_dollars")
        names = ("nodes", "gpus", "limit_gib", *figures, "needs_gib", "on_front", "status")
        rows = [[point.as_dict()[name] for name in names] for point in self.points]
        return csv_text([names, *rows])

    def write_plans(self, folder: str | Path) -> list[Path]:
        """Write every plan as JSON, in a folder for each number of nodes; ``taut verify`` checks each."""
        home, found = made_folder(folder), self.frontiers.items()
        return [path for nodes, each in found for path in each.write_plans(home / f"{nodes:04d}-nodes")]

    def __str__(self) -> str:
        """A line for each point, and what has no plan."""
        goal, dollars = self.goal, self.goal.dollars(1, 1.0) is not None
        said = "" if goal.steps is None else f", {goal.steps:,} steps"
        said += "" if goal.price is None else f", $ {goal.price:g} an hour of a GPU"
        cost = ("dollars", "at least") if dollars else ("GPU seconds",)
        heads = ("nodes", "GPUs", "limit GiB", "seconds", "bound", "gap", "days", *cost, "needs GiB", "front", "plan")
        lines = [heads, *(_cells(point, dollars) for point in self.points)]
        words = [f"{nodes} nodes: {text}" for nodes, text in self.complaints.items()]
        head = f"{self.model} on up to {self.cluster}, global batch {self.global_batch}{said}"
        note = "* no other point has as few GPUs, seconds and dollars and needs as little memory"
        return "\n".join([head, "", text_table(lines), "", note, *words])

    def __repr__(self) -> str:
        """One line: model, cluster, points."""
        return f"<ResourceFront {self.model} on {self.cluster}, {len(self.front)} of {len(self.points)} on the front>"


def resource_front(
    model: ModelInput | PlanRequest,
    cluster: ClusterInput | None = None,
    *,
    nodes: Iterable[int] | None = None,
    limits: Iterable[float] | None = None,
    points: int | None = 1,
    tokens: float | None = None,
    steps: int | None = None,
    price: float | None = None,
    progress: Listener | None = None,
    **options: Any,
) -> ResourceFront:
    """
    Step time, GPUs, dollars and memory against each other, each point with its bound.

    Parameters
    ----------
    model, cluster, **options
        As for ``taut.plan``, or a ``PlanRequest`` alone; the cluster's nodes are alike. Seconds are those of all
        searches together, work and gap those of each point.
    nodes
        Numbers of nodes; by default powers of two, and all of them.
    limits, points
        Memory limits of a device, as for ``taut.pareto``; by default its capacity alone.
    tokens, steps, price
        Length of the training, one of the two, and dollars an hour of a GPU; without them GPU seconds are compared.
    progress
        As for ``taut.plan``.

    Raises
    ------
    DataError
        If an input is wrong, or the cluster's nodes are not alike.
    InfeasibleError, NothingFoundError
        If no number of nodes has a plan, which is proven or not.

    Examples
    --------
    >>> import taut
    >>> fix = {"tp": 1, "pp": 1, "micro_batch": 1}
    >>> found = taut.resource_front("gpt2-345m", "dgx-a100:2", global_batch=64, steps=1000, price=2, fix=fix)
    >>> [(point.gpus, round(point.dollars), point.on_front) for point in found.points]
    [(8, 4, True), (16, 4, True)]
    """
    request = request_of(model, cluster, options)
    spec = request.cluster_spec
    check_alike(spec, "cluster", spec.name)
    counts = {count.nodes: count for count in counts_of(request, spec)}
    usual = [1 << k for k in range(len(counts).bit_length())]
    chosen = sorted({*usual, len(counts)} if nodes is None else set(nodes))
    if wrong := [count for count in chosen if count not in counts]:
        raise FieldError("nodes", str(wrong[0]), f"expected numbers from 1 to {len(counts)}, such as 1,2,4")
    given = None if limits is None else list(limits)
    found: dict[int, Frontier] = {}
    refused: dict[int, DataError | InfeasibleError | NothingFoundError] = {}
    began = time.perf_counter()
    for number, count in enumerate(chosen):
        own = request.limits.shared(time.perf_counter() - began, len(chosen) - number)
        asked = counts[count].request.model_copy(update={"time_limit": own.time_limit})
        try:
            found[count] = pareto(asked, limits=given, points=points, progress=progress)
        except (DataError, InfeasibleError, NothingFoundError) as error:
            refused[count] = error
    if not found:
        raise next(iter(refused.values()))
    first = next(iter(found.values()))
    length = steps_of(tokens, steps, first.tokens_per_step)
    goal = Goal(objective="time", steps=length, price=price)
    made = tuple(
        ResourcePoint(nodes=count, gpus=counts[count].gpus, at=point, goal=goal)
        for count, frontier in found.items()
        for point in frontier.points
    )
    return ResourceFront(
        model=first.model,
        cluster=spec.name,
        global_batch=first.global_batch,
        goal=goal,
        points=tuple(replace(point, on_front=_undominated(point, made)) for point in made),
        frontiers=found,
        complaints={count: str(error) for count, error in refused.items()},
    )


def _undominated(point: ResourcePoint, every: Iterable[ResourcePoint]) -> bool:
    """Whether a point has a plan and none is as good in all and better in one of (2)."""
    own = point.criteria
    if own is None:
        return False
    others = [other.criteria for other in every if other.criteria is not None]
    return not any(all(a <= b for a, b in zip(other, own, strict=True)) and other != own for other in others)


def _cells(point: ResourcePoint, dollars: bool) -> tuple[str, ...]:
    at, figures = point.at, (point.at.step_time_s, point.at.lower_bound_s)
    seconds = ["-" if value is None else f"{value:.6g}" for value in figures]
    costs = (point.dollars, point.least_dollars) if dollars else (point.gpu_seconds,)
    cost = ["-" if value is None else f"{value:,.0f}" if dollars else f"{value:.6g}" for value in costs]
    days = "-" if point.days is None else f"{point.days:.2f}"
    chosen = at.strategy
    contexts = f" cp={chosen.cp}" if chosen is not None and chosen.cp > 1 else ""
    plan = str(at.status) if chosen is None else f"pp={chosen.pp} tp={chosen.tp}{contexts} dp={chosen.dp}"
    needs = "-" if at.needs_gib is None else rounded_up(at.needs_gib)
    mark = "*" if point.on_front else ""
    head = (str(point.nodes), str(point.gpus), rounded_down(at.limit_gib), *seconds, percent(at.gap, places=2), days)
    return (*head, *cost, needs, mark, plan)
