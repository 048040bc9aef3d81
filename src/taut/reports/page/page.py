"""
A plan as one page, and two plans as one picture: over time, where their steps differ, memory against capacity.

(1) Both timelines have one axis, up to the longer step. A line marks the end of each step: reductions of gradients and
    the optimizer lie between the last pass and this line. Passes are those of the slowest replica.
(2) The seconds of a step are sums over the same parts, so the difference of the steps is the sum of the differences by
    part. Passes of meshes include tensor traffic. Beside a plan of meshes, computation and tensor traffic are one part.
(3) Memory bars of both have one scale, up to the largest capacity.
"""

from taut.errors import TautError
from taut.formulations.plainer import FASTEST
from taut.formulations.schedules.schedule import timetable
from taut.planning.plan import Plan
from taut.planning.proof import differing, proof, restriction_words, runs_words
from taut.planning.summary import MESH_PARTS, PARTS, bubble_of, parts_of, strategy_words
from taut.planning.tables import batch_words
from taut.plots.plan import HOP, RING
from taut.plots.schedule import bars_of
from taut.quoting import html_text as text
from taut.reports.page.figures import (
    BARS,
    BESIDE,
    HATCH,
    LEFT,
    MEMORY_NOTE,
    PASSES,
    PITCH,
    WIDTH,
    drawn_until,
    gap_figure,
    lanes,
    memory_bars,
    memory_figure,
    moments_of,
    parts_figure,
    placement_figure,
    time_labels,
    timeline_figure,
)
from taut.reports.page.markup import (
    assumptions,
    box,
    complete,
    document,
    drawing,
    head,
    label,
    line,
    script_json,
    section,
    stages_table,
    table,
)
from taut.reports.plan_details import candidate_name, own_entry, slowest_words
from taut.schedules.reading import planned
from taut.words import percent

HEADS = ("strategy", "state", "bound (s)", "against the plan", "bound by")
STATES = ("solved", "open", "pruned", "infeasible")


def plan_page(plan: Plan) -> str:
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
    with complete(plan.source):
        return document(f"{plan.model} on {plan.cluster}", "".join(_sections(plan)), "page.js")


def _sections(plan: Plan) -> list[str]:
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
        "What this rests on": assumptions(plan, proof(plan.sections, plan.spaces)),
    }
    return [_head(plan), *(section(title, content) for title, content in found.items())]


def _head(plan: Plan) -> str:
    """The plan in a sentence, and its first figures."""
    more = dict[str, float | None]()
    if not plan.meshes:
        figures = plan.predicted
        more = {"model FLOP utilisation": figures.mfu, "hardware FLOP utilisation of computation": figures.hfu}
        if (bubble := bubble_of(plan.sections)) is not None and plan.step_time_s:
            more["pipeline bubble, of the step"] = bubble / plan.step_time_s
    shown = {name: "unknown" if value is None else f"{value:.1%}" for name, value in more.items()}
    return head(plan, plan.cluster_spec.num_devices, strategy_words(plan.sections), shown)


def _strategy(plan: Plan) -> str:
    """Degrees, of every mesh where they differ by type of device, and the stages with all their devices."""
    devices = [[d for group in plan.devices[stage["stage"]] for d in group] for stage in plan.stages]
    return _degrees(plan) + stages_table(plan.stages, devices)


def _degrees(plan: Plan) -> str:
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


def _runs(plan: Plan) -> str:
    """In what the plan lies beyond all runs of its calibration, and what the best plan within them costs."""
    first, *more = runs_words(plan.sections)
    return "".join(f"<p>{text(words)}.</p>" for words in (f"The plan lies beyond {first}", *more))


def _plainer(plan: Plan) -> str:
    """The best plans under restrictions that make them plainer to run, with what each costs."""
    rows = []
    for tie in plan.plainer:
        over, least = (seconds / plan.step_time_s - 1 for seconds in (tie.step_time_s, tie.lower_bound_s))
        slower = f"{100 * over:.3g} %" if tie.restriction == FASTEST else percent(over, places=2)
        at_least = percent(None if tie.restriction == FASTEST else max(least, 0.0), places=2)
        words = differing(plan.typed, tie)
        rows.append((restriction_words(tie), words, f"{tie.step_time_s:.6g}", slower, at_least))
    return table(("plan", "what it has otherwise", "step time (s)", "slower by", "at least by"), rows, numbers_from=2)


def _choices_of_meshes(plan: Plan) -> str:
    """Choices of meshes that the search found plans of, those with the least bounds first."""
    rows = []
    for each in plan.document["certificate"]["examined"]:
        stated, seconds = each["strategy"], each["step_time_s"]
        words = "; ".join(f"{m['device']}: tp={m['tp']} dp={m['dp']} pp={m['pp']}" for m in stated["meshes"])
        over = percent(seconds / plan.step_time_s - 1)
        rows.append((words, stated["num_micro_batches"], f"{each['lower_bound_s']:.6g}", f"{seconds:.6g}", over))
    return table(("meshes", "micro-batches", "bound (s)", "best plan (s)", "slower by"), rows)


def _candidates(plan: Plan) -> str:
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


TITLE = 20.0
"""Height of the line above the lanes or bars of a plan."""


def pair_page(one: Plan, other: Plan, names: tuple[str, str], rows: list[tuple[str, str, str]]) -> str:
    """HTML of two plans by name, with the ``rows`` of their figures; ``DataError`` if a figure lacks or contradicts."""
    plans = one, other
    with complete(f"{one.source} and {other.source}"):
        sections = {
            "What the devices do": _timelines(plans, names),
            "Where the time differs": _difference(plans, names),
            "Memory of every device": _memory(plans, names),
            "Both plans": table(("", *names), rows, numbers_from=9),
        }
    body = "".join(section(title, content) for title, content in sections.items())
    title = " and ".join(names)
    return document(title, f'<h1>{text(title)}</h1><p class="lead">{text(_sentence(plans, names))}</p>{body}', "")


def _sentence(plans: tuple[Plan, Plan], names: tuple[str, str]) -> str:
    timed = zip(names, (plan.step_time_s for plan in plans), strict=True)
    (fast, quick), (slow, long) = sorted(timed, key=lambda named: named[1])
    if quick == long:
        return f"Both take {quick:.4g} s a step."
    return f"{fast} takes {quick:.4g} s a step, {slow} {long:.4g} s: {(long / quick - 1):.1%} more."


def _moved(shapes: list[str], y: float) -> str:
    return f'<g transform="translate(0 {y:.6g})">{"".join(shapes)}</g>'


def _timelines(plans: tuple[Plan, Plan], names: tuple[str, str]) -> str:
    """The lanes of both, (1), or why they cannot be drawn."""
    try:
        found = [planned(plan.document, plan.source) for plan in plans]
    except TautError as error:
        return f"<p>The schedules cannot be drawn: {text(error)}.</p>"
    drawn = [
        (placed.problem, bars_of(placed.problem, schedule, times), times)
        for placed, schedule, _ in found
        for times in [timetable(placed.problem, schedule)]
    ]
    cut = [until for _, bars, times in drawn if (until := drawn_until(bars, times)) < times.makespan]
    end = min(cut) if cut else max(plan.step_time_s for plan in plans)
    scale, y, shapes = (WIDTH - LEFT - BESIDE) / end, 0.0, list[str]()
    for plan, name, (_, schedule, replica), (problem, bars, times) in zip(plans, names, found, drawn, strict=True):
        height = PITCH * problem.num_devices
        words = f"{name}: {plan.step_time_s:.4g} s, {schedule.kind}, {slowest_words(plan, replica)}"
        shapes.append(label(LEFT, y + 14, words, 'class="on"'))
        shapes.append(_moved(lanes(problem, bars, times, end), y + TITLE))
        if plan.step_time_s <= end:
            x = LEFT + plan.step_time_s * scale
            shapes.append(line(x, y + TITLE - 4, x, y + TITLE + height - 2, 'class="bound"'))
        y += TITLE + height + 8
    note = f"The first {end:.4g} s are drawn. " if cut else ""
    note += (
        "Dashed: the end of the step. Reductions of gradients and the optimizer lie before it. At the right the most "
    )
    note += "bytes of activations that a device holds."
    shapes += time_labels(end, y)
    return f'{drawing(WIDTH, y + 18, shapes, "timelines of both plans")}{PASSES}<p class="note">{text(note)}</p>'


def differences(one: Plan, other: Plan) -> dict[str, float]:
    """Seconds of a step by part in words that the second plan takes more, (2)."""
    meshed = bool(one.meshes or other.meshes)
    named = MESH_PARTS if meshed else PARTS
    sides = []
    for plan in (one, other):
        parts = dict(plan.sections.predicted.breakdown_s)
        if meshed and not plan.meshes:
            parts["passes"] = parts["compute"] + parts["tensor_parallel"]
        sides.append(parts)
    return {words: sides[1][part] - sides[0][part] for part, words in named.items()}


def _difference(plans: tuple[Plan, Plan], names: tuple[str, str]) -> str:
    """A bar a part, to the right where the second plan takes longer."""
    found = differences(*plans)
    found["the step"] = plans[1].step_time_s - plans[0].step_time_s
    most, middle, pitch = max(abs(value) for value in found.values()) or 1.0, 430.0, 24.0
    scale, shapes = (BARS - middle - 70) / most, list[str]()
    for row, (words, seconds) in enumerate(found.items()):
        y, wide, whole = pitch * row, abs(seconds) * scale, ' class="on"' if words == "the step" else ""
        beside, anchor = (middle + wide + 6, "start") if seconds >= 0 else (middle - wide - 6, "end")
        shade = HOP if seconds >= 0 else RING
        shapes += [
            label(205, y + 14, words, f'text-anchor="end"{whole}'),
            box(middle if seconds >= 0 else middle - wide, y, wide, 18, shade, f"{words}: {seconds:+.4g} s"),
            label(beside, y + 14, f"{seconds:+.3g} s", f'text-anchor="{anchor}"{whole}'),
        ]
    height = pitch * len(found)
    shapes.append(line(middle, 0, middle, height))
    note = f"Seconds of a step that {names[1]} takes more (right) or less (left) than {names[0]}."
    return f'{drawing(BARS, height, shapes, "difference by part")}<p class="note">{text(note)}</p>'


def _memory(plans: tuple[Plan, Plan], names: tuple[str, str]) -> str:
    """The bars of both, (3)."""
    most = max(stage["capacity_bytes"] for plan in plans for stage in plan.stages)
    y, shapes = 0.0, [HATCH]
    for plan, name in zip(plans, names, strict=True):
        shapes += [label(LEFT, y + 14, name, 'class="on"'), _moved(memory_bars(plan.stages, most), y + TITLE)]
        y += TITLE + 24.0 * len(plan.stages) + 8
    return drawing(BARS, y, shapes, "memory of both plans' devices") + MEMORY_NOTE
