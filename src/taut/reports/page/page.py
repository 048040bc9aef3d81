"""A plan of one degree for all stages as one page (``taut.reports.page.frame``)."""

from typing import TYPE_CHECKING

from taut.planning.batch_words import batch_words
from taut.reports.alternatives import candidate_name, own_entry
from taut.reports.page.figures import gap_figure, memory_figure, parts_figure
from taut.reports.page.frame import assumptions, framed, head, section, stages_table
from taut.reports.page.markup import script_json, table
from taut.reports.page.pipeline import timeline_figure
from taut.reports.page.placement import placement_figure
from taut.reports.plan import PARTS, strategy_words
from taut.reports.proof import proof

if TYPE_CHECKING:
    from taut.planning.plan import Plan

HEADS = ("strategy", "state", "bound (s)", "against the plan", "bound by")
STATES = ("solved", "open", "pruned", "infeasible")


def plan_page(plan: "Plan") -> str:
    """
    HTML of a plan: strategy, gap over time, memory, timeline, placement, candidates, costs, assumptions, calibration.

    Parameters
    ----------
    plan
        What was found, or read.

    Returns
    -------
    str
        One document without references to others.

    Raises
    ------
    DataError
        If the plan lacks or contradicts a figure.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> taut.plan_page(plan).startswith("<!doctype html>")
    True
    """
    return framed(plan, _sections)


def _sections(plan: "Plan") -> "list[str]":
    """The parts of the page in order."""
    parts = {words: plan.predicted.breakdown_s[part] for part, words in PARTS.items()}
    return [
        _head(plan),
        section("Where the step's time goes", parts_figure(plan.step_time_s, parts, plan.lower_bound_s)),
        section("Strategy", _strategy(plan)),
        section("How the gap closed", gap_figure(plan)),
        section("Memory of every device", memory_figure(plan.stages)),
        section("Timeline of the schedule", timeline_figure(plan)),
        section("Placement on the cluster", placement_figure(plan)),
        section("Candidates", _candidates(plan)),
        section("What this rests on", _assumptions(plan)),
    ]


def _head(plan: "Plan") -> str:
    """The plan in a sentence, and its first figures."""
    strategy, mfu = plan.strategy, plan.predicted.mfu
    count = strategy.pp * strategy.tp * strategy.cp * strategy.dp
    more = {"model FLOP utilisation": "unknown" if mfu is None else f"{mfu:.1%}"}
    return head(plan, count, strategy_words(strategy, plan.certificate.space), more)


def _strategy(plan: "Plan") -> str:
    """Degrees, and the stages with all their devices."""
    strategy = plan.strategy
    named = {
        "pipeline": strategy.pp,
        "tensor": strategy.tp,
        "context": strategy.cp,
        **({"context ranks": strategy.cp_comm} if strategy.cp > 1 else {}),
        "data": strategy.dp,
        **({"experts": strategy.ep, "experts' tensor": strategy.etp} if strategy.ep > 1 else {}),
        "chunks a device": strategy.vpp,
        "micro-batch": strategy.micro_batch,
        "micro-batches": batch_words(strategy) if strategy.micro_batches else strategy.num_micro_batches,
        "schedule": strategy.schedule,
        "ZeRO": strategy.zero,
        "sequence parallel": "yes" if strategy.sequence_parallel else "no",
    }
    devices = [[d for group in plan.devices[stage["stage"]] for d in group] for stage in plan.stages]
    return table(named, [list(named.values())], numbers_from=99) + stages_table(plan.stages, devices)


def _candidates(plan: "Plan") -> str:
    """The table of all candidates, filled by the script."""
    own = own_entry(plan.typed)
    entries = plan.candidates
    rows = [[candidate_name(entry), entry.state, entry.lower_bound_s, entry.source] for entry in entries]
    data = {"rows": rows, "objective": plan.certificate.objective_s, "own": own and candidate_name(own)}
    # The share of the plan's time sorts as the bound does.
    columns = (0, 1, 2, 2, 3)
    heads = "".join(
        f'<th data-column="{column}"{" class=n" if k in (2, 3) else ""}><button>{head}</button></th>'
        for k, (head, column) in enumerate(zip(HEADS, columns, strict=True))
    )
    options = "".join(f"<option>{state}</option>" for state in STATES)
    return (
        "<p>A candidate fixes degrees, micro-batch and schedule; nothing in it is faster than its bound. The plan's "
        'own is coloured.</p><div class="tools"><label>Filter <input id="words" type="search" '
        'placeholder="pp=4 zero=1"></label><label>State <select id="state"><option value="">any</option>'
        f'{options}</select></label><span id="count"></span></div><noscript>The table needs the script of this page.'
        f'</noscript><div class="wide"><table id="table"><thead><tr>{heads}</tr></thead>'
        '<tbody id="rows"></tbody></table></div><div class="tools"><button id="more" hidden>more</button></div>'
        f'<script type="application/json" id="candidates">{script_json(data)}</script>'
    )


def _assumptions(plan: "Plan") -> str:
    """What the proof and the prices say of themselves, and the calibration's errors."""
    return assumptions(plan, proof(plan.typed, plan.spaces))
