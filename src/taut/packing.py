"""
What a plan's step takes when its micro-batches are packed from sequences of different lengths: ``taut pack``.

Steps are drawn from a distribution of lengths (``taut.data.lengths``), each is packed by every rule
(``taut.solver.packing.rules``) and priced and bounded as ``taut.solver.packing.step_graph`` says. Figures are means
over the drawn steps, which are the same for every rule:

(1) the expected step of a rule, with the standard error of the mean;
(2) the mean of the bounds of the drawn steps. No packing of their sequences into the plan's micro-batches is faster in
    the mean, whatever the order of micro-batches. The bound says nothing of other plans, of other numbers of
    micro-batches, or of sequences that are moved to another step;
(3) the distance of (1) from (2), which is what a better packing could gain at most;
(4) imbalance: work of the fullest micro-batch, and of the fullest replica, over the mean;
(5) where a plan of one stage has context ranks: dynamic degrees (``taut.solver.packing.rules``), with a bound of
    their own, since they are no packing into the plan's micro-batches;
(6) on request, the best plan found for these lengths, and a bound on the mean step of every plan of the space
    (``taut.solver.packing.plans``);
(7) without packing every sequence is padded to the plan's length. A step of the same sequences then has more
    micro-batches, each further one for the seconds of the busiest device.
"""

import math
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from os import PathLike
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.data.arrays import Floats
from taut.data.lengths import Lengths, load_lengths
from taut.errors import DataError, FieldError, NothingFoundError
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.planning.plan import Plan, load_plan
from taut.simulation import of_plan
from taut.solver.certificate.write import plan_document
from taut.solver.packing.plans import PACKED, search_mean_work, space_bound
from taut.solver.packing.rules import (
    RULES,
    Drawn,
    draw_steps,
    dynamic_step,
    has_contexts,
    least_rows,
    micro_batch_features,
    pack_by,
)
from taut.solver.packing.step_graph import Packed, packed_step, step_bound
from taut.solver.result import Limits
from taut.words import percent, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_DRAWS = 10_000
STANDS_IN = {"sorted": "first fit", "balanced": "first fit", "two-level": "balanced or first fit"}


@dataclass(frozen=True)
class RuleOutcome:
    """Means over the drawn steps under a rule, (1), (3), (4): seconds, error, gap, imbalances, steps without room."""

    rule: str
    step_s: float
    error_s: float
    tokens_per_s: float
    gap: float
    unlike_micro_batches: float
    unlike_replicas: float
    without_room: int


@dataclass(frozen=True)
class BestPlan:
    """The best plan found for the lengths, (6), under its ``rule``, the bound of all (0: none), and its document."""

    strategy: str
    rule: str
    step_s: float
    bound_s: float
    is_given: bool
    document: dict[str, Any] = field(repr=False)

    @property
    def gap(self) -> float | None:
        """Distance from the bound; None without one."""
        return self.step_s / self.bound_s - 1.0 if self.bound_s > 0 else None


@dataclass(frozen=True)
class PackedPlan:
    """A plan's step under each packing rule, with the bound; ``pack`` makes it."""

    plan: str
    lengths: str
    source: str
    mean_length: float
    median_length: int
    longest: int
    draws: int
    seed: int
    seq: int
    budget: int
    room: int
    micro_batches: int
    sequences: float
    tokens: float
    fill: float
    least_rows: float
    attention: float
    attention_of_plan: float
    plan_step_s: float
    unpacked_s: float
    bound_s: float
    rules: tuple[RuleOutcome, ...]
    dynamic_s: float | None
    dynamic_bound_s: float | None
    steps_s: dict[str, list[float]]
    bounds_s: list[float]
    best: BestPlan | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, without the document of the best plan."""
        values = asdict(self)
        if self.best is not None:
            values["best"] = {name: value for name, value in values["best"].items() if name != "document"}
        return values

    def __str__(self) -> str:
        """The outcome in words."""
        heads = ["packing", "step s", "+-", "tokens/s", "above the bound", "fullest micro-batch", "fullest replica"]
        lines = [heads, ["none", f"{self.unpacked_s:.4g}", "", f"{self.tokens / self.unpacked_s:,.0f}", "", "", ""]]
        lines += [
            [
                each.rule,
                f"{each.step_s:.4g}",
                f"{each.error_s:.2g}",
                f"{each.tokens_per_s:,.0f}",
                percent(each.gap),
                f"{each.unlike_micro_batches:.3f}",
                f"{each.unlike_replicas:.3f}",
            ]
            for each in self.rules
        ]
        lines.append(["bound", f"{self.bound_s:.4g}", "", f"{self.tokens / self.bound_s:,.0f}", "", "", ""])
        if self.dynamic_s is not None and self.dynamic_bound_s is not None:
            per_s, gap = f"{self.tokens / self.dynamic_s:,.0f}", percent(self.dynamic_s / self.dynamic_bound_s - 1.0)
            lines.append(["dynamic contexts", f"{self.dynamic_s:.4g}", "", per_s, gap, "", ""])
            bound_per_s = f"{self.tokens / self.dynamic_bound_s:,.0f}"
            lines.append(["bound of these", f"{self.dynamic_bound_s:.4g}", "", bound_per_s, "", "", ""])
        more = f", {self.room:,} when balanced" if self.room != self.budget else ""
        found = [
            f"{self.plan}, packed from {self.lengths}",
            f"lengths     mean {self.mean_length:,.0f} tokens, median {self.median_length:,}, longest {self.longest:,}",
            *wrap(self.source, 96, initial_indent=" " * 12, subsequent_indent=" " * 12),
            f"steps       {self.draws} drawn with seed {self.seed}: {self.sequences:,.0f} sequences and "
            f"{self.tokens:,.0f} tokens in the mean",
            f"            {percent(self.fill)} of {self.micro_batches} micro-batches of {self.budget:,} tokens{more}",
            f"            every packing needs {self.least_rows:.4g} or more of {self.rows} rows of {self.seq:,} tokens",
            f"attention   {percent(self.attention)} of the work, "
            f"{percent(self.attention_of_plan)} if every sequence has {self.seq:,} tokens",
            "",
            text_table(lines),
            "",
            "Fullest: work of the fullest micro-batch, and of the fullest replica, over the mean.",
            "The bound holds for every packing of the drawn sequences into the plan's micro-batches, at these prices.",
        ]
        found += self._best_lines() + [
            f"{each.rule} found no room in {each.without_room} step{'s' * (each.without_room > 1)}, "
            f"which {STANDS_IN[each.rule]} packed."
            for each in self.rules
            if each.without_room
        ]
        return "\n".join(found)

    @property
    def rows(self) -> int:
        """Rows of a step, the plan's global batch."""
        return self.micro_batches * (self.budget // self.seq)

    def _best_lines(self) -> list[str]:
        """What a search found, and what is proven of the space."""
        if (best := self.best) is None:
            return []
        first = min(self.rules, key=lambda each: each.step_s)
        gained = first.step_s / best.step_s - 1.0
        words = (
            f"the given plan, {best.strategy}" if best.is_given else f"{best.strategy}: {percent(gained)} more tokens/s"
        )
        known = "unknown" if best.gap is None else f"{best.bound_s:.4g} s, gap {percent(best.gap)}"
        return [
            "",
            f"best found  {words}",
            f"            {best.step_s:.4g} s with {best.rule} packing",
            f"            bound on the mean step of every plan of the space, however packed: {known}",
        ]


def pack(
    plan: Plan | str | PathLike[str],
    lengths: Lengths | str | PathLike[str],
    *,
    draws: int = 20,
    seed: int = 0,
    room: int | None = None,
    drop_longer: bool = False,
    search: float | None = None,
) -> PackedPlan:
    """
    Expected step of a plan whose micro-batches are packed from a data set, by rule, with a bound.

    Parameters
    ----------
    plan
        A plan of one degree for all stages, or its file.
    lengths
        Name of a published data set, a file of lengths or of a histogram, or a distribution.
    draws, seed
        Steps that are drawn, and the seed.
    room
        Tokens that a micro-batch may hold under ``balanced`` and ``two-level``; default: those of the plan.
    drop_longer
        Whether sequences that are longer than the plan's are left out instead of refused.
    search
        Seconds to search the plan's space for a plan that suits the lengths better; none by default.

    Raises
    ------
    DataError
        If an input is wrong; a ``FieldError`` names the argument.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> [rule.rule for rule in taut.pack(plan, "recipe-sft", draws=2, drop_longer=True).rules]
    ['first-fit', 'sorted', 'balanced', 'two-level']
    """
    if not 1 <= draws <= MOST_DRAWS:
        raise FieldError("draws", str(draws), f"expected a whole number from 1 to {MOST_DRAWS}")
    if seed < 0:
        raise FieldError("seed", str(seed), "expected a whole number of at least 0")
    if search is not None and not search > 0:
        raise FieldError("search", f"{search:g}", "expected seconds above 0")
    read = plan if isinstance(plan, Plan) else load_plan(Path(plan))
    problem, strategy, devices = of_plan(read)
    if problem.costs.name.endswith(PACKED):
        raise DataError(f"{read.source}: was priced for packed sequences, expected the plan that it was searched from")
    if problem.model.encoder:
        raise DataError(f"{read.source}: has an encoder of images, whose sequences are not packed, expected none")
    packed = packed_step(problem, strategy, devices, read.source)
    given = _fitting(lengths if isinstance(lengths, Lengths) else load_lengths(lengths), packed.seq, drop_longer)
    if room is not None and room < packed.budget:
        raise FieldError("room", str(room), f"expected at least {packed.budget}, the tokens of the plan's micro-batch")
    rows = packed.graph.replicas * packed.graph.micro_batches * (packed.budget // packed.seq)
    steps = list(islice(draw_steps(given, seed, rows, packed.seq), draws))
    name = f"{read.model} on {read.cluster}"
    found = _outcome(name, packed, given, steps, seed, packed.budget if room is None else room)
    return found if search is None else replace(found, best=_best(found, problem, strategy, given, steps, search))


def _best(
    given: PackedPlan,
    problem: PlanningProblem,
    strategy: Strategy,
    lengths: Lengths,
    steps: list[Drawn],
    seconds: float,
) -> BestPlan:
    """Search the space at the mean work of the drawn steps, (6)."""
    limits = Limits(time_limit=seconds, gap=1e-3, seed=given.seed)
    mean = search_mean_work(problem, np.concatenate([each.tokens for each in steps]), given.fill, limits)
    first = min(given.rules, key=lambda each: each.step_s)
    step_s, rule, words, is_given = first.step_s, first.rule, str(strategy.candidate), True
    if (incumbent := mean.result.incumbent) is None:
        raise NothingFoundError(f"no plan was found in {seconds:g} s at the mean work of the lengths")
    packed = packed_step(problem, incumbent.strategy, incumbent.devices, "the plan found")
    outcome = _outcome(given.plan, packed, lengths, steps, given.seed, packed.budget)
    other = min(outcome.rules, key=lambda each: each.step_s)
    if other.step_s < step_s:
        step_s, rule, words, is_given = other.step_s, other.rule, str(incumbent.strategy.candidate), False
    document = plan_document(mean.problem, mean.result, limits)
    return BestPlan(words, rule, step_s, space_bound(mean), is_given, document)


def _fitting(lengths: Lengths, seq: int, drop_longer: bool) -> Lengths:
    """The lengths of at most the plan's sequence; longer ones are refused, or left out."""
    if lengths.longest > seq and not drop_longer:
        words = f"has a sequence of {lengths.longest} tokens, expected at most {seq}, the plan's"
        raise FieldError("lengths", lengths.name, f"{words} (or taut pack --drop-longer)")
    return lengths.up_to(seq)


def _outcome(name: str, packed: Packed, lengths: Lengths, steps: list[Drawn], seed: int, room: int) -> PackedPlan:
    """Pack, price and bound the drawn steps."""
    graph, budget, draws = packed.graph, packed.budget, len(steps)
    replicas, m = graph.replicas, graph.micro_batches
    features = [packed.features(each.tokens) for each in steps]
    mean = np.mean([each.sum(axis=0) for each in features], axis=0) / (replicas * m)
    flows = graph.flows(mean)
    bounds = [step_bound(graph, flows, each) for each in features]
    total = graph.shown(mean).slope.sum(axis=1).mean(axis=0)
    tokens = float(np.mean([each.tokens.sum() for each in steps]))
    found, seconds = list[RuleOutcome](), dict[str, list[float]]()
    for rule in RULES:
        sums, missing = np.empty((draws, replicas, m, len(total))), 0
        for k, (drawn, each) in enumerate(zip(steps, features, strict=True)):
            places, had_room = pack_by(rule, drawn, each @ total, replicas, m, budget, room, budget // packed.seq)
            sums[k] = micro_batch_features(each, places, replicas, m)
            missing += not had_room
        by_step = graph.steps(sums)
        seconds[rule] = by_step.tolist()
        found.append(_of_rule(rule, by_step, sums @ total, bounds, tokens, missing))
    pooled = [dynamic_step(packed, each.tokens) for each in steps] if has_contexts(packed) else []
    return PackedPlan(
        plan=name,
        lengths=lengths.name,
        source=lengths.source,
        mean_length=lengths.mean,
        median_length=lengths.quantile(0.5),
        longest=lengths.longest,
        draws=draws,
        seed=seed,
        seq=packed.seq,
        budget=budget,
        room=room,
        micro_batches=replicas * m,
        sequences=float(np.mean([len(each.tokens) for each in steps])),
        tokens=tokens,
        fill=tokens / (replicas * m * budget),
        least_rows=float(np.mean([least_rows(each.tokens, packed.seq) for each in steps])),
        attention=float(1.0 - mean[0] * total[0] / (mean @ total)),
        attention_of_plan=float(1.0 - total[0] / total.sum()),
        plan_step_s=float(graph.steps(np.ones((replicas, m, len(total))))),
        unpacked_s=_unpacked(packed, steps),
        bound_s=float(np.mean(bounds)),
        rules=tuple(found),
        dynamic_s=float(np.mean([each.step_s for each in pooled])) if pooled else None,
        dynamic_bound_s=float(np.mean([each.bound_s for each in pooled])) if pooled else None,
        steps_s=seconds,
        bounds_s=bounds,
    )


def _of_rule(
    rule: str, steps: Floats, work: Floats, bounds: list[float], tokens: float, without_room: int
) -> RuleOutcome:
    """Means of a rule, from seconds of steps (draws,) and work of micro-batches (draws, replicas, m)."""
    mean, by_replica = float(steps.mean()), work.sum(axis=-1)
    return RuleOutcome(
        rule=rule,
        step_s=mean,
        error_s=float(steps.std(ddof=1)) / math.sqrt(len(steps)) if len(steps) > 1 else 0.0,
        tokens_per_s=tokens / mean,
        gap=mean / float(np.mean(bounds)) - 1.0,
        unlike_micro_batches=float((work.max(axis=(1, 2)) / work.mean(axis=(1, 2))).mean()),
        unlike_replicas=float((by_replica.max(axis=1) / by_replica.mean(axis=1)).mean()),
        without_room=without_room,
    )


def _unpacked(packed: Packed, steps: list[Drawn]) -> float:
    """Mean seconds of steps of the same sequences, each padded to the plan's length, (7)."""
    graph = packed.graph
    m, replicas = graph.micro_batches, graph.replicas
    full = np.ones((replicas, m, graph.slope.shape[-1]))
    each = graph.fixed + graph.slope.sum(axis=-1)
    busiest = max(float(each[:, graph.device == d][:, used].sum(axis=1).max()) for d, used in _used(packed))
    samples = packed.budget // packed.seq
    more = [math.ceil(len(drawn.tokens) / (samples * replicas)) - m for drawn in steps]
    return float(graph.steps(full) + busiest * float(np.mean(more)))


def _used(packed: Packed) -> list[tuple[int, Floats]]:
    """Devices, and which of their kinds of pass run."""
    graph = packed.graph
    runs = np.bincount(graph.kind, minlength=len(graph.device)) > 0
    return [(d, runs[graph.device == d]) for d in range(len(graph.last))]


def plot_packing(found: PackedPlan, ax: "Axes | None" = None) -> "Axes":
    """
    Draw the drawn steps of every rule over their bounds: a point a step, in rising order of the bound.

    Raises
    ------
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> taut.plot_packing(taut.pack(plan, "recipe-sft", draws=2, drop_longer=True)).get_ylabel()
    'seconds'
    """
    from taut.plots.plan import new_axes

    axes = new_axes(7.0, 4.0) if ax is None else ax
    order = np.argsort(found.bounds_s)
    place = np.arange(len(order)) + 1
    for rule, marker in zip(found.steps_s, "o^sd", strict=True):
        axes.plot(place, np.array(found.steps_s[rule])[order], marker, label=rule, markersize=4)
    axes.plot(place, np.array(found.bounds_s)[order], "k-", label="bound", linewidth=1)
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("drawn step, by its bound")
    axes.set_ylabel("seconds")
    axes.set_title(f"{found.plan}, packed from {found.lengths}", loc="left", fontsize=10)
    axes.legend(frameon=False)
    return axes
