r"""
Restrictions: what makes a plan plainer to run, or more like what has run, at the price of a few tenths of a per cent.

A restriction keeps some candidates of a space, and some divisions of their layers. With v chunks a device and c context
ranks in the plan,

(1) ``even-stages``: every chunk has the same number of layers, or would have if embedding, loss or both were a layer
    (``taut.formulations.divisions`` (1) and (2)), where the space has a form that states such divisions;
(2) ``no-context-ranks``: c = 1; for sequences below ``LONG`` tokens;
(3) ``at-most-N-chunks``: v' <= N with :math:`N = \lfloor v / 2 \rfloor \ge 2`;
(4) ``no-interleaving``: v' = 1;
(5) ``seen``: fields and recompute are within the runs of the calibration (``taut.formulations.runs``);
(6) ``fastest``: none, of the fastest plan found where a plainer one has taken its place
    (``taut.solver.search.plainer``).

(2) to (5) keep candidates of the space as they are; where each stage chooses its recompute (5) is the space with the
kinds that were seen. (1) is the space with these forms alone, which have no empty ends
(``taut.formulations.mechanisms.empty_ends``). All plans of a candidate of either are plans of one candidate of the
whole space: itself, or the one that is like it but for empty ends, (7). They cost the same there, or less where passes
gather weights, as embedding and head are then gathered apart from the layer beside them (``taut.formulations.sharding``
(2)). So

(8) a lower bound on the candidate of the whole space is one on the candidate of the restriction.

A plan is plainer than another that misses more of these restrictions; of two that miss as many, the one of fewer
chunks, (9).
"""

import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace

import numpy as np

from taut.data.calibration import Calibration
from taut.data.costs import Recompute
from taut.data.stack import ANY_DIVISION, Form
from taut.formulations.divisions import families, is_stated
from taut.formulations.problem import PlanningProblem
from taut.formulations.runs import is_within
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy, stages_of_parts

LONG = 16_384
"""Tokens of a sequence from which on context ranks are what people run."""
EVEN, NO_CONTEXTS, NO_INTERLEAVING, SEEN = "even-stages", "no-context-ranks", "no-interleaving", "seen"
FASTEST = "fastest"
LIKE_RUNS = "like a run that was measured"
EVEN_FORMS: tuple[Form, ...] = ("even", "with-ends")
_AT_MOST = re.compile(r"at-most-([1-9][0-9]{0,3})-chunks")


@dataclass(frozen=True, slots=True)
class Restriction:
    """A restriction: its words, the candidates that it keeps, even stages, and kinds of recompute, None for all."""

    name: str
    words: str
    keeps: Callable[[Candidate], bool]
    is_even: bool = False
    recompute: tuple[Recompute, ...] | None = None


def restriction_of(name: str, calibration: Calibration | None = None) -> Restriction | None:
    """
    The restriction with a name, (1) to (6), of the ``calibration``'s runs in (5); None if there is none.

    Examples
    --------
    >>> restriction_of("at-most-5-chunks").words
    'with at most 5 chunks a device'
    """
    if name == EVEN:
        return Restriction(name, "with even stages", lambda candidate: True, is_even=True)
    if name == FASTEST:
        return Restriction(name, "of all that were found", lambda candidate: True)
    if name == NO_CONTEXTS:
        return Restriction(name, "without context ranks", lambda candidate: candidate.cp == 1)
    if name == NO_INTERLEAVING:
        return Restriction(name, "without interleaving", lambda candidate: candidate.vpp == 1)
    if name == SEEN and calibration is not None and (seen := calibration.seen) is not None:
        return Restriction(name, LIKE_RUNS, lambda each: is_within(seen, each), recompute=tuple(seen.recompute))
    if (found := _AT_MOST.fullmatch(name)) is None:
        return None
    most = int(found[1])
    return Restriction(name, f"with at most {most} chunks a device", lambda candidate: candidate.vpp <= most)


def restrictions_on(problem: PlanningProblem, strategy: Strategy) -> Iterator[Restriction]:
    """The restrictions that a plan does not meet, those that keep fewest candidates first."""
    candidate = strategy.candidate
    names = [SEEN]
    if candidate.schedule == "interleaved-1f1b":
        names += [NO_INTERLEAVING] + ([f"at-most-{candidate.vpp // 2}-chunks"] if candidate.vpp >= 4 else [])
    if candidate.cp > 1 and max(layer.seq for layer in problem.model.blocks) < LONG:
        names.append(NO_CONTEXTS)
    for name in (*names, EVEN):
        restriction = restriction_of(name, problem.calibration)
        if restriction is not None and not meets(problem, restriction, strategy):
            yield restriction


def plainness(problem: PlanningProblem, strategy: Strategy) -> tuple[int, int]:
    """What a plainer plan has less of, (9): restrictions that it does not meet, then chunks a device."""
    return len(missed(problem, strategy)), strategy.candidate.vpp


def missed(problem: PlanningProblem, strategy: Strategy) -> set[str]:
    """The kinds of restriction that a plan does not meet, all (3) of one kind."""
    return {_AT_MOST.sub("at-most", each.name) for each in restrictions_on(problem, strategy)}


def meets(problem: PlanningProblem, restriction: Restriction, strategy: Strategy) -> bool:
    """Whether a plan has what a restriction asks for."""
    if not restriction.keeps(strategy.candidate):
        return False
    if restriction.recompute is not None and not {*strategy.recompute} <= {*restriction.recompute}:
        return False
    return not restriction.is_even or _is_even(problem, strategy)


def _is_even(problem: PlanningProblem, strategy: Strategy) -> bool:
    """Whether the layers are divided by (1)."""
    candidate = strategy.candidate
    sizes = np.array([end - first for first, end in strategy.layer_stages])
    shape = len(problem.model.blocks), candidate.schedule, candidate.pp, candidate.vpp
    return is_stated(sizes, families(EVEN_FORMS, *shape))


def restricted(problem: PlanningProblem, restriction: Restriction) -> PlanningProblem:
    """The problem with the divisions or recompute of a restriction; itself where it restricts candidates alone."""
    space = problem.space
    if restriction.recompute is not None and space.recompute_by_stage:
        left = [kind for kind in space.recompute if kind in restriction.recompute]
        return problem if left == space.recompute else _with_space(problem, recompute=left)
    if not restriction.is_even:
        return problem
    forms = [form for form in EVEN_FORMS if form == "even" or {form, ANY_DIVISION} & {*space.divisions}]
    return _with_space(problem, divisions=forms)


def _with_space(problem: PlanningProblem, **changed: object) -> PlanningProblem:
    return replace(problem, space=problem.space.model_copy(update=changed))


def wider(candidate: Candidate, whole: Container[Candidate]) -> Candidate:
    """The candidate of the whole space that has all plans of a candidate of a restriction, (7)."""
    return candidate if candidate in whole else candidate.changed(empty_ends=True)


def widened(strategy: Strategy, whole: Container[Candidate]) -> Strategy:
    """A plan of a restriction as the plan of the whole space that it is, (7)."""
    candidate = wider(strategy.candidate, whole)
    stages = stages_of_parts(candidate, strategy.layer_stages)
    return replace(strategy, candidate=candidate, division=Division(stages, strategy.recompute))
