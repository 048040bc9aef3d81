"""The answers of a replanning: plans, bounds, what moving costs, and the words for them."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from taut.planning.plan import Plan
from taut.solver.moving import Moved
from taut.solver.result import relative_gap
from taut.words import percent, text_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A plan on what is left, its nodes, seconds a sequence and their bound, and what moving costs, if computed."""

    plan: Plan
    nodes: tuple[str, ...]
    batch: int
    rate: float
    rate_bound: float
    moved: Moved | None

    @property
    def gap(self) -> float | None:
        """Relative distance of the seconds a sequence from the bound."""
        return relative_gap(self.rate, self.rate_bound)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, without the plan."""
        return {
            "nodes": list(self.nodes),
            "global_batch": self.batch,
            "step_time_s": self.plan.step_time_s,
            "seconds_a_sequence": self.rate,
            "lower_bound_a_sequence_s": self.rate_bound,
            "gap": self.gap,
            "moved": None if self.moved is None else asdict(self.moved),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Replanned:
    """
    The two answers beside the plan that ran; ``kept`` is None where ``why_none`` says why.

    ``left`` names the nodes that are left. ``parts`` and ``searched`` count what was bounded and searched for the best
    plan.
    """

    before: Plan
    lost: tuple[str, ...]
    slow: tuple[str, ...]
    left: tuple[str, ...]
    kept: Answer | None
    why_none: str
    best: Answer
    parts: int
    searched: int

    @property
    def batch(self) -> int:
        """Sequences a step of the plan that ran."""
        return int(self.before.typed.certificate.space["global_batch"])

    @property
    def ahead_after(self) -> float | None:
        """Steps after which the best plan is ahead of the kept one at the latest, (6); None where it is not faster."""
        kept, best = self.kept, self.best
        if kept is None or kept.moved is None or best.moved is None or not best.rate < kept.rate:
            return None
        later = max(best.moved.most_s - kept.moved.least_s, 0.0)
        return later / (kept.rate - best.rate) / self.batch

    def as_dict(self) -> dict[str, Any]:
        """Plain values, without the plans."""
        return {
            "before": {"step_time_s": self.before.step_time_s, "global_batch": self.batch},
            "without": list(self.lost),
            "slow": list(self.slow),
            "kept": None if self.kept is None else self.kept.as_dict(),
            "why_none_kept": self.why_none or None,
            "best": self.best.as_dict(),
            "ahead_after_steps": self.ahead_after,
            "parts": self.parts,
            "searched": self.searched,
        }

    def __str__(self) -> str:
        """Both answers as a table, what moves, and when moving pays."""
        usual = self.before.step_time_s
        heads = ("", "nodes", "batch", "step s", f"s a {self.batch}", "bound", "gap", "slower")
        lines: list[tuple[str, ...]] = [heads]
        count = str(self.before.cluster_spec.num_nodes)
        stated = self.before.lower_bound_s
        own = "-" if stated is None else f"{stated:.6g}"
        lines.append(("before", count, str(self.batch), *[f"{usual:.6g}"] * 2, own, percent(self.before.gap), ""))
        answers = [("no weights moved", self.kept), ("best", self.best)]
        for name, each in answers:
            if each is None:
                lines.append((name, *["-"] * 7))
                continue
            scaled = each.rate * self.batch
            figures = f"{each.plan.step_time_s:.6g}", f"{scaled:.6g}", f"{each.rate_bound * self.batch:.6g}"
            more = f"{100 * (scaled / usual - 1):+.2f} %"
            lines.append((name, str(len(each.nodes)), str(each.batch), *figures, percent(each.gap), more))
        moves: list[tuple[str, ...]] = [
            ("moving to", "weights GB", "states GB", "at least GB", "inside", "between", "checkpoint", "seconds")
        ]
        for name, each in answers:
            if each is not None and (m := each.moved) is not None:
                least = "-" if m.least is None else _gb(m.least)
                figures_gb = _gb(m.weights), _gb(m.states), least, _gb(m.inside), _gb(m.between), _gb(m.checkpoint)
                moves.append((name, *figures_gb, f"{m.least_s:.3g} to {m.most_s:.3g}"))
        told = [f"without     {', '.join(self.lost)}"] if self.lost else []
        told += [f"slow        {', '.join(self.slow)}"] if self.slow else []
        plans = [(name, each) for name, each in answers if each is not None]
        text = [*told, *(f"{name:<17} {_named(each)}" for name, each in plans)]
        text += [f"no weights moved  none: {self.why_none}"] if self.kept is None else []
        moved = [text_table(moves), ""] if len(moves) > 1 else []
        return "\n".join([*text, "", text_table(lines), "", *moved, self._pays(), *self._proofs()])

    def _pays(self) -> str:
        """When moving pays, in a line."""
        if self.kept is None:
            return "moving      no plan keeps the weights where they are"
        if self.best.rate >= self.kept.rate:
            return "moving      does not pay: no better plan was found"
        gain = 1 - self.best.rate / self.kept.rate
        after = self.ahead_after
        steps = (
            "" if after is None else f", ahead after {max(math.ceil(after), 1)} step{'s' * (after > 1)} at the latest"
        )
        return f"moving      gains {percent(gain)} of every step{steps}, restarts aside"

    def _proofs(self) -> list[str]:
        """Nodes that stay idle, and what the bounds are about."""
        lines = []
        for name, each in (("no weights moved", self.kept), ("best", self.best)):
            if each is not None and (idle := [node for node in self.left if node not in each.nodes]):
                lines.append(f"idle        {name}: {', '.join(idle)}")
        if self.kept is not None:
            where = ", with the slow nodes or without" if self.slow else f" on {len(self.kept.nodes)} nodes"
            lines.append(f"bounds      no weights moved: every placement of this strategy{where}")
        name = "" if self.kept is not None else "bounds"
        return [*lines, f"{name:<12}best: {self.parts} sets of nodes and degrees, {self.searched} of them searched"]


def _gb(count: float) -> str:
    """Bytes in GB, with three figures."""
    return f"{count / 1e9:.3g}"


def _named(answer: Answer) -> str:
    """The strategy of an answer in a line."""
    return repr(answer.plan).removeprefix("<Plan ").removesuffix(">").partition(", ")[2]
