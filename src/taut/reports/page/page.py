"""
A plan as one page: a document that opens without a network and runs nothing but its own small script.

The page's policy (``Content-Security-Policy``) lets a browser load nothing at all: styles and the script stand in the
page, and every figure is SVG in it. What a plan's file says comes in as text (``taut.reports.page.markup``).
"""

from importlib.resources import files
from typing import TYPE_CHECKING

from taut.data.calibration import Calibration
from taut.errors import DataError
from taut.planning.batch_words import batch_words
from taut.planning.tables import device_ranges
from taut.reports.alternatives import candidate_name, own_entry
from taut.reports.page.figures import gap_figure, memory_figure, parts_figure
from taut.reports.page.markup import script_json, table, text
from taut.reports.page.pipeline import timeline_figure
from taut.reports.page.placement import placement_figure
from taut.reports.plan import strategy_words
from taut.reports.proof import percent, proof

if TYPE_CHECKING:
    from taut.planning.plan import Plan

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
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
    try:
        body = "".join(_sections(plan))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"{plan.source}: lacks or contradicts a figure ({error!r}), expected a plan written by taut"
        ) from None
    folder = files("taut.reports.page")
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(plan.model)} on {text(plan.cluster)}</title><style>{style}</style></head>\n"
        f"<body>{body}<script>{script}</script></body></html>\n"
    )


def _sections(plan: "Plan") -> "list[str]":
    """The parts of the page in order."""
    return [
        _head(plan),
        _section("Where the step's time goes", parts_figure(plan)),
        _section("Strategy", _strategy(plan)),
        _section("How the gap closed", gap_figure(plan)),
        _section("Memory of every device", memory_figure(plan)),
        _section("Timeline of the schedule", timeline_figure(plan)),
        _section("Placement on the cluster", placement_figure(plan)),
        _section("Candidates", _candidates(plan)),
        _section("What this rests on", _assumptions(plan)),
    ]


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>\n"


def _head(plan: "Plan") -> str:
    """The plan in a sentence, and its first figures."""
    predicted, strategy = plan.predicted, plan.strategy
    count = strategy.pp * strategy.tp * strategy.cp * strategy.dp
    proven = (
        "nothing is proven of how good it is"
        if plan.gap is None
        else f"no plan of its space takes more than {percent(plan.gap)} less"
        if plan.status != "optimal"
        else "no plan of its space is faster"
    )
    sentence = (
        f"Train {plan.model} on the {count} devices of {plan.cluster} as "
        f"{strategy_words(strategy, plan.certificate.space)}: "
        f"{plan.step_time_s:.4g} s a step, and {proven}, at the prices below."
    )
    fullest = max(
        used / there if there else 0.0
        for used, there in zip(predicted.memory_bytes, predicted.capacity_bytes, strict=True)
    )
    cards = {
        "seconds a step": f"{plan.step_time_s:.4g}",
        "lower bound (s)": "unknown" if plan.lower_bound_s is None else f"{plan.lower_bound_s:.4g}",
        "gap": percent(plan.gap),
        "tokens a second": "unknown" if predicted.tokens_per_s is None else f"{predicted.tokens_per_s:,.0f}",
        "model FLOP utilisation": "unknown" if predicted.mfu is None else f"{predicted.mfu:.1%}",
        "memory of the fullest device": f"{fullest:.0%}",
    }
    shown = "".join(f"<div><b>{text(value)}</b><span>{text(name)}</span></div>" for name, value in cards.items())
    title = f"<h1>{text(plan.model)} on {text(plan.cluster)}</h1>"
    return f'{title}<p class="lead">{text(sentence)}</p><div class="cards">{shown}</div>\n'


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
    rows = [
        (
            stage["stage"], f"{stage['layers']} ({stage['num_layers']})", stage["recompute"], stage["device"],
            device_ranges(d for group in plan.devices[stage["stage"]] for d in group),
        )
        for stage in plan.stages
    ]  # fmt: skip
    stages = table(("stage", "layers", "recompute", "kind of device", "devices"), rows, numbers_from=9)
    return table(named, [list(named.values())], numbers_from=99) + "<h3>Stages</h3>" + stages


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
    lines = "".join(f"<li>{text(' '.join(line.split()))}</li>" for line in proof(plan.typed) if line.strip())
    stated = f"<ul><li>latency model {text(plan.certificate.latency_model)}</li>{lines}</ul>"
    given = plan.typed.inputs.get("calibration")
    if given is None:
        return f"{stated}<p>No calibration was used: how far a run is from these prices is not known.</p>"
    found = Calibration.parse(given.spec, "inputs.calibration")
    off = "" if found.mape is None else f", {found.mape:.2%} off on average on unseen ones"
    words = f"Calibration {found.name}: {found.samples} runs{off}. Quantiles of prediction / measurement - 1:"
    if not found.residuals:
        words = f"Calibration {found.name}: {found.samples} runs{off}; the spread of its errors is not known."
    heads = [f"{100 * float(level):g} %" for level in found.residuals]
    errors = [f"{error:+.2%}" for error in found.residuals.values()]
    shown = table(heads, [errors], numbers_from=0) if errors else ""
    return f"{stated}<h3>Calibration error</h3><p>{text(words)}</p>{shown}"
