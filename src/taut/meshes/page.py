"""A plan of meshes as one page (``taut.reports.page.frame``)."""

from taut.meshes.plan import MeshedPlan
from taut.meshes.report import HEADS, mesh_rows, proof_lines
from taut.meshes.simulation import simulate_meshes
from taut.reports.page.figures import memory_figure, parts_figure
from taut.reports.page.frame import assumptions, framed, head, section, stages_table
from taut.reports.page.markup import table
from taut.reports.page.pipeline import schedule_figure
from taut.words import percent

PARTS = {
    "passes": "passes with tensor traffic",
    "pipeline_transfers": "pipeline transfers",
    "data_parallel": "gradients",
    "optimizer": "optimizer",
    "constant": "constant of the calibration",
}


def mesh_page(plan: MeshedPlan) -> str:
    """
    HTML of a plan of meshes: where time and memory go, meshes, stages, timeline, other choices, what it rests on.

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
    >>> plan = taut.plan_meshes("gpt2-345m", "amp-heterogeneous", global_batch=24, gap=0.2)
    >>> taut.mesh_page(plan)[:15]
    '<!doctype html>'
    """
    return framed(plan, _sections)


def _sections(plan: MeshedPlan) -> list[str]:
    """The parts of the page in order."""
    strategy, stages, timeline = plan.typed.strategy, plan.stages, simulate_meshes(plan).timeline
    degrees = "; ".join(f"{m.pp} stages on {m.device}, tensor {m.tp}, data {m.dp}" for m in strategy.meshes)
    parts = {words: plan.typed.predicted.breakdown_s[part] for part, words in PARTS.items()}
    slowest = timeline.slowest
    passes = schedule_figure(
        timeline.pipelines[slowest], timeline.schedule, timeline.times[slowest], "the slowest replicas of every stage"
    )
    meshes = table(HEADS, mesh_rows(plan.typed), numbers_from=99)
    devices = [each["devices"] for each in stages]
    return [
        head(plan, sum(len(each["devices"]) for each in stages), degrees, {}),
        section("Where the step's time goes", parts_figure(plan.step_time_s, parts, plan.lower_bound_s)),
        section("Meshes", meshes + stages_table(stages, devices)),
        section("Memory of every device", memory_figure(stages)),
        section("Timeline of the schedule", passes),
        section("Choices of meshes with the least bounds", _examined(plan)),
        section("What this rests on", assumptions(plan, proof_lines(plan.typed, plan.spaces))),
    ]


def _examined(plan: MeshedPlan) -> str:
    """Choices that the search found plans of."""
    rows = []
    for each in plan.typed.certificate.examined:
        words = "; ".join(f"{m['device']}: tp={m['tp']} dp={m['dp']} pp={m['pp']}" for m in each.strategy["meshes"])
        over = percent(each.step_time_s / plan.step_time_s - 1)
        rows.append(
            (words, each.strategy["num_micro_batches"], f"{each.lower_bound_s:.6g}", f"{each.step_time_s:.6g}", over)
        )
    return table(("meshes", "micro-batches", "bound (s)", "best plan (s)", "slower by"), rows)
