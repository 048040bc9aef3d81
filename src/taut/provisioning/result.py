"""What is known of every number of nodes, and the best plan of all."""

from dataclasses import dataclass
from typing import Any

from taut.planning.plan import Plan
from taut.provisioning.goal import Goal
from taut.solver.result import relative_gap
from taut.words import percent, text_table


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCountPoint:
    """
    One number of nodes.

    ``step_time_s`` is that of the plan, None where none was found; ``lower_bound_s`` holds for every plan on so many
    nodes, 0 where none was searched, None where there is proven to be no plan. ``state`` is ``in time``, ``too slow``
    or ``infeasible`` (both proven), ``no candidate``, ``unknown``, or ``not in time yet`` where the plan is too slow
    and its bound is not.
    """

    nodes: int
    gpus: int
    step_time_s: float | None
    lower_bound_s: float | None
    days: float | None
    dollars: float | None
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provision:
    """
    The best number of nodes for a goal.

    ``value`` is seconds a step, dollars or GPUs of ``plan``; no plan in time on any number of the nodes has a value
    below ``lower_bound``.
    """

    goal: Goal
    value: float
    lower_bound: float
    plan: Plan
    points: tuple[NodeCountPoint, ...]

    @property
    def gap(self) -> float | None:
        """Relative distance of the value from the bound."""
        return relative_gap(self.value, self.lower_bound)

    @property
    def nodes(self) -> int:
        """Nodes of the plan."""
        return self.plan.cluster_spec.num_nodes

    def as_dict(self) -> dict[str, Any]:
        """Plain values, without the plan."""
        goal = self.goal
        asked = {name: getattr(goal, name) for name in ("objective", "steps", "price", "deadline_days")}
        found = {"nodes": self.nodes, "value": self.value, "lower_bound": self.lower_bound, "gap": self.gap}
        names = NodeCountPoint.__annotations__
        return asked | found | {"node_counts": [{name: getattr(each, name) for name in names} for each in self.points]}

    def __str__(self) -> str:
        """The goal, a line for each number of nodes that is best at something, and the best one."""
        best = next(point for point in self.points if point.nodes == self.nodes)
        goal, unit = self.goal, {"time": " s a step", "cost": " dollars", "gpus": " GPUs"}[self.goal.objective]
        wanted = f"objective   {goal.objective}" + ("" if goal.steps is None else f", {goal.steps:,} steps")
        wanted += "" if goal.price is None else f", $ {goal.price:g} an hour of a GPU"
        wanted += "" if goal.deadline_days is None else f", at most {goal.deadline_days:g} days"
        proven = f"{self.lower_bound:,.6g} on 1 to {len(self.points)} nodes"
        found = f"best        {best.nodes} nodes, {best.gpus} GPUs: {self.value:,.6g}{unit}"
        lines = [
            wanted,
            found,
            f"bound       {proven}, gap {percent(self.gap, places=2)}",
            "",
            text_table(self._lines()),
        ]
        return "\n".join(lines)

    def _lines(self) -> list[tuple[str, ...]]:
        lines: list[tuple[str, ...]] = [("nodes", "GPUs", "seconds", "bound", "days", "dollars", "")]
        for each in self.points:
            seconds = [f"{value:.6g}" if value else "-" for value in (each.step_time_s, each.lower_bound_s)]
            days = "-" if each.days is None else f"{each.days:.2f}"
            dollars = "-" if each.dollars is None else f"{each.dollars:,.0f}"
            mark = "best" if each.nodes == self.nodes else each.state
            lines.append((str(each.nodes), str(each.gpus), *seconds, days, dollars, mark))
        return lines
