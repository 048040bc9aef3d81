r"""
What of a plan lies beyond all runs of its calibration.

A calibration may say what its runs have been, field by field (``taut.data.seen``). The value of a field is within them

(1) if it is a number from the least to the most of all runs, or a kind that some run had.

At a quantile Q of the step time a candidate with fields F beyond the runs takes

(2) :math:`b\, s(F)` seconds more, with s the deviation of what lies beyond all runs ((1) of ``taut.data.seen``) and b
    the seconds for each unit of it (``Calibration.beyond_s``). Recompute counts where the candidate states it.

A space with ``seen`` keeps the candidates all of whose fields are within, (18) of ``taut.formulations.space``. Beside
the fields of a plan stand facts of its job, which no plan can choose: GPUs, tokens of a sequence, number format,
whether the model has experts, and how its layers mix tokens.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from taut.data.costs import RECOMPUTE
from taut.data.seen import NUMBERS, Seen, deviation_beyond, distance_of, usual_of
from taut.formulations.fields import Runs
from taut.formulations.space import RUNS, Candidate
from taut.formulations.strategy import Strategy

if TYPE_CHECKING:
    from taut.formulations.problem import PlanningProblem

EXPERTS = "experts"
MIXING = {
    "sparse-attention": "attention to chosen or compressed tokens",
    "linear-attention": "layers of Mamba-2 or linear attention",
    "delta-rule": "layers of linear attention with the delta rule",
    "scan": "layers of a scanned state space",
    "convolution": "short convolutions",
}
FACTS = (
    Runs("n_gpus", 0, lambda value: f"{value} GPUs"),
    Runs("seq", 1, lambda value: f"sequence length {value}"),
    Runs("precision", 2, str),
    Runs(EXPERTS, 3, lambda value: "layers with experts" if value else "a model without experts"),
    Runs("mixing", 4, lambda value: MIXING.get(value, value)),
)
"""Facts of a job, in the order in which they are told."""
NAMED = {runs.name: runs.words for runs in (*RUNS, *FACTS)}


class Beyond(NamedTuple):
    """A field that lies beyond all runs: its name and value, and what runs had, as plain values."""

    field: str
    value: Any
    seen: list[Any]


def is_within(seen: Seen, candidate: Candidate) -> bool:
    """Whether every field of a candidate is within runs, (1)."""
    return all((value := runs.of(candidate)) is None or _holds(seen, runs.name, value) for runs in RUNS)


def beyond_seconds(seen: Seen, each: float, candidate: Candidate) -> float:
    """Seconds that a quantile adds for fields of a candidate beyond all runs, (2); ``each``: for a deviation of 1."""
    values = ((runs.name, runs.of(candidate)) for runs in RUNS)
    outside = ((name, value) for name, value in values if not (value is None or _holds(seen, name, value)))
    return each * deviation_beyond({name: distance_of(name, value, getattr(seen, name)) for name, value in outside})


def _holds(seen: Seen, name: str, value: Any) -> bool:
    known = getattr(seen, name)
    return bool(known[0] <= value <= known[1]) if isinstance(known, tuple) else value in known


def beyond(problem: "PlanningProblem", strategy: Strategy) -> list[Beyond]:
    """What of a plan and its job lies beyond all runs; nothing where the calibration does not say what these were."""
    calibration = problem.calibration
    if calibration is None or (seen := calibration.seen) is None:
        return []
    found = [
        Beyond(runs.name, value, [*getattr(seen, runs.name)])
        for runs, value in _values(strategy)
        if value is not None and not _holds(seen, runs.name, value)
    ]
    lengths = sorted({layer.seq for layer in problem.model.blocks})
    mixing = [] if seen.mixing is None else sorted(problem.model.mixing)
    facts = ("n_gpus", problem.cluster.num_devices), ("seq", lengths[-1]), ("precision", problem.memory.precision)
    job: list[tuple[str, Any]] = [*facts, *(("mixing", kind) for kind in mixing)]
    found += [Beyond(name, value, [*getattr(seen, name)]) for name, value in job if not _holds(seen, name, value)]
    if problem.model.has_experts != calibration.experts:
        found.append(Beyond(EXPERTS, problem.model.has_experts, [calibration.experts]))
    return found


def _values(strategy: Strategy) -> Iterator[tuple[Runs, Any]]:
    """Every field with its value, the recompute once for each kind that a stage has."""
    for runs in RUNS:
        if runs.name == "recompute":
            yield from ((runs, kind) for kind in RECOMPUTE if kind in strategy.recompute)
        else:
            yield runs, runs.of(strategy.candidate)


def beyond_words(given: Sequence[Beyond], *, experts: bool) -> str:
    """
    Fields beyond all runs in words, the job's last; ``experts``: whether the runs were of models with experts.

    Examples
    --------
    >>> beyond_words([Beyond("micro_batch", 8, [1, 2]), Beyond("zero", 3, [0, 1])], experts=True)
    'micro-batch 8 (seen 1 to 2), ZeRO-3 with experts (never)'
    """
    return ", ".join(_said(each, experts) for each in given if each.field in NAMED)


def _said(given: Beyond, experts: bool) -> str:
    """One field with what runs had of it; what no run had beside the usual was never seen."""
    words, job = NAMED[given.field](given.value), {runs.name for runs in FACTS}
    if given.field in NUMBERS and given.seen != usual_of(given.field):
        least, most = given.seen
        return f"{words} (seen {least:g}{f' to {most:g}' if most > least else ''})"
    if given.field == "precision":
        return f"{words} (seen {', '.join(given.seen)})"
    return f"{words}{' with experts' if experts and given.field not in job else ''} (never)"
