"""A plan as one page (``taut.reports.page.markup``)."""

from typing import TYPE_CHECKING

from taut.planning.proof import differing, proof, restriction_words, runs_words
from taut.planning.summary import parts_of, strategy_words
from taut.planning.tables import batch_words
from taut.reports.page.figures import (
    gap_figure,
    memory_figure,
    moments_of,
    parts_figure,
    placement_figure,
    timeline_figure,
)
from taut.reports.page.markup import assumptions, framed, head, script_json, section, stages_table, table, text
from taut.reports.plan_details import candidate_name, own_entry
from taut.words import percent

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
    """The parts of the page, pictures first; plans of meshes have no placement over links and no history of a gap."""
    found = {
        "Where the step's time goes": parts_figure(plan.step_time_s, parts_of(plan.sections), plan.lower_bound_s),
        "Timeline of the schedule": timeline_figure(plan),
        "Memory of every device": memory_figure(plan.stages),
        "Strategy": _strategy(plan),
        **({"Beyond all runs": _runs(plan)} if runs_words(plan.sections) else {}),
        **({"Plainer plans": _plainer(plan)} if plan.plainer else {}),
        **({} if plan.meshes else {"How the gap closed": gap_figure(moments_of(plan))}),
        **({} if plan.meshes else {"Placement on the cluster": placement_figure(plan)}),
        "Candidates": _choices_of_meshes(plan) if plan.meshes else _candidates(plan),
        "What this rests on": _assumptions(plan),
    }
    return [_head(plan), *(section(title, content) for title, content in found.items())]


def _head(plan: "Plan") -> str:
    """The plan in a sentence, and its first figures."""
    more = dict[str, float | None]()
    if not plan.meshes:
        figures = plan.predicted
        more = {"model FLOP utilisation": figures.mfu, "hardware FLOP utilisation of computation": figures.hfu}
    shown = {name: "unknown" if value is None else f"{value:.1%}" for name, value in more.items()}
    return head(plan, plan.cluster_spec.num_devices, strategy_words(plan.sections), shown)


def _strategy(plan: "Plan") -> str:
    """Degrees, of every mesh where they differ by type of device, and the stages with all their devices."""
    devices = [[d for group in plan.devices[stage["stage"]] for d in group] for stage in plan.stages]
    return _degrees(plan) + stages_table(plan.stages, devices)


def _degrees(plan: "Plan") -> str:
    """A row of degrees, one a mesh where they differ by type of device."""
    if plan.meshes:
        shared = plan.sections.strategy
        heads = ("device", "pipeline", "tensor", "data", "micro-batch", "micro-batches", "schedule", "ZeRO")
        rows = [
            (m.device, m.pp, m.tp, m.dp, m.micro_batch, shared.num_micro_batches, "1f1b", shared.zero)
            for m in plan.meshes
        ]
        return table(heads, rows, numbers_from=99)
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
    return table(named, [list(named.values())], numbers_from=99)


def _runs(plan: "Plan") -> str:
    """In what the plan lies beyond all runs of its calibration, and what the best plan within them costs."""
    first, *more = runs_words(plan.sections)
    return "".join(f"<p>{text(words)}.</p>" for words in (f"The plan lies beyond {first}", *more))


def _plainer(plan: "Plan") -> str:
    """The best plans under restrictions that make them plainer to run, with what each costs."""
    rows = []
    for tie in plan.plainer:
        slower, least = (
            percent(max(seconds / plan.step_time_s - 1, 0.0), places=2)
            for seconds in (tie.step_time_s, tie.lower_bound_s)
        )
        words = differing(plan.typed, tie)
        rows.append((f"the best {restriction_words(tie)}", words, f"{tie.step_time_s:.6g}", slower, least))
    return table(("plan", "what it has otherwise", "step time (s)", "slower by", "at least by"), rows, numbers_from=2)


def _choices_of_meshes(plan: "Plan") -> str:
    """Choices of meshes that the search found plans of, those with the least bounds first."""
    rows = []
    for each in plan.document["certificate"]["examined"]:
        stated, seconds = each["strategy"], each["step_time_s"]
        words = "; ".join(f"{m['device']}: tp={m['tp']} dp={m['dp']} pp={m['pp']}" for m in stated["meshes"])
        over = percent(seconds / plan.step_time_s - 1)
        rows.append((words, stated["num_micro_batches"], f"{each['lower_bound_s']:.6g}", f"{seconds:.6g}", over))
    return table(("meshes", "micro-batches", "bound (s)", "best plan (s)", "slower by"), rows)


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
    return assumptions(plan, proof(plan.sections, plan.spaces))
