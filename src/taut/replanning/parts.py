r"""
Parts of a replanning: sets of nodes with degrees, each with a bound on its seconds a sequence.

With :math:`t_l` the least seconds of layer l (embedding, head) at a tensor degree, a context degree and a micro-batch,
over recompute, expert ranks and the types of device, a plan of pp stages and m micro-batches takes

(1) :math:`T \ge m \sum_l t_l / pp` under every schedule, as some stage computes at least :math:`\sum_l t_l / pp`;
(2) :math:`T \ge \sum_x t_x + (m - 1) \max_x t_x \ge (m + pp - 1) \sum_l t_l / pp` under 1F1B and GPipe, which have no
    chunks. It holds for a part where no other schedule is defined at m.

At given degrees of a pipeline a part has as many replicas as whole nodes hold, and the next smaller sets of nodes where
these allow further expert degrees. It has the largest batch that its replicas
and micro-batches divide (``taut.replanning``).
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from taut.data.layers.layer import EMBEDDING, HEAD
from taut.formulations.degrees import divisors
from taut.formulations.mechanisms.empty_ends import ENDS
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.plan_orders import is_defined
from taut.formulations.space import Candidate
from taut.replanning.left import Site
from taut.solver.result import CandidateBound

CLOSED = {"1f1b", "gpipe"}
"""Schedules without chunks."""
Degrees = tuple[int, int, int]
"""Tensor and context degree, and micro-batch."""


@dataclass(slots=True)
class Part:
    """A set of nodes with degrees, which may hold a plan; ``rate`` bounds its seconds a sequence."""

    sites: tuple[Site, ...]
    fixed: dict[str, int | str | bool]
    batch: int
    rate: float
    guess: float = math.inf
    is_open: bool = True
    problem: PlanningProblem | None = None
    known: dict[Candidate, CandidateBound] = field(default_factory=dict)


def site_sets(sites: Sequence[Site]) -> Iterator[tuple[Site, ...]]:
    """Sets of nodes, the largest first: without slow nodes or with all of them, and some others idle."""
    size = Counter(site.place for site in sites)
    others = [site for site in sites if not site.slow]
    # Those that stay idle first are the last ones of the smallest class.
    turn = sorted(range(len(others)), key=lambda k: (size[others[k].place], others[k].place, -k), reverse=True)
    for slow in sorted({False, len(others) < len(sites)}):
        for count in range(len(others), -1, -1):
            kept = {id(others[k]) for k in turn[:count]}
            found = tuple(site for site in sites if id(site) in kept or (site.slow and slow))
            if found:
                yield found


def parts_of(problem: PlanningProblem, sites: Sequence[Site], least_batch: int, rate: float) -> Iterator[Part]:
    """
    All parts that may hold a plan of fewer seconds a sequence.

    ``problem``: the one of the plan that ran, whose batch is the largest, with costs of all types of device;
    ``least_batch``: sequences a step at least.
    """
    least, known = LeastSeconds(problem), set[tuple[bool, int, int, int, int]]()
    for chosen in site_sets(sites):
        devices = sum(site.spec.gpus_per_node for site in chosen)
        if least.of_any / devices >= rate:
            continue
        slow, seconds = any(site.slow for site in chosen), least.of({site.spec.device.name for site in chosen})
        for tp, cp in sorted({(tp, cp) for tp, cp, _ in seconds}):
            for pp in divisors(devices // (tp * cp)) if devices % (tp * cp) == 0 else ():
                more = {(slow, pp, tp, cp, ep) for ep in _expert_degrees(problem, devices // pp)} - known
                if not more:
                    continue
                known |= more
                for part in _parts_at(problem, chosen, (pp, tp, cp, devices // (pp * tp * cp)), seconds):
                    if part.batch >= least_batch and part.rate < rate:
                        yield part


def _expert_degrees(problem: PlanningProblem, devices: int) -> list[int]:
    """Expert degrees that so many devices of a stage may have; 1 without experts."""
    if not problem.model.has_experts:
        return [1]
    fixed = problem.space.fixed.get("ep")
    return [ep for ep in divisors(devices) if ep <= problem.space.max_ep and fixed in (None, ep)]


def _parts_at(
    problem: PlanningProblem,
    sites: tuple[Site, ...],
    degrees: tuple[int, int, int, int],
    seconds: Mapping[Degrees, float],
) -> Iterator[Part]:
    """The parts of some nodes at pipeline, tensor, context and data degree, with bounds (1) and (2)."""
    (pp, tp, cp, dp), space = degrees, problem.space
    if pp > len(problem.model.blocks) + ENDS:
        return
    chunked = [name for name in space.schedules if not is_defined(name, 2, 3)]
    name, of_closed = space.fixed.get("schedule"), set(space.schedules) <= CLOSED | {*chunked}
    for micro_batch in [each for t, c, each in seconds if (t, c) == (tp, cp)]:
        fixed: dict[str, int | str | bool] = {"pp": pp, "tp": tp, "dp": dp, "cp": cp, "micro_batch": micro_batch}
        if any(space.fixed.get(field, value) != value for field, value in fixed.items()):
            continue
        most = space.global_batch // (dp * micro_batch)
        if pp > 1 and isinstance(name, str):
            most = largest_count(name, pp, most)
        defined = [each for each in chunked if is_defined(each, pp, most)]
        ways = [(most, fixed, pp - 1 if of_closed and not defined else 0)]
        if pp > 1 and name is None:
            rest = [each for each in chunked if each not in defined]
            ways += [(largest_count(each, pp, most), {**fixed, "schedule": each}, 0) for each in rest]
        for count, held, filling in ways:
            if count > 0:
                batch = dp * micro_batch * count
                rate = seconds[tp, cp, micro_batch] * (count + filling) / pp / batch
                yield Part(sites, held, batch, rate)


def largest_count(schedule: str, pp: int, most: int) -> int:
    """The largest number of micro-batches up to a number under a schedule, 0 where there is none."""
    return next((m for m in range(most, 0, -1) if is_defined(schedule, pp, m)), 0)


class LeastSeconds:
    """The least seconds of a micro-batch's layers by degrees, the sum in (1), from the cost table of a problem."""

    def __init__(self, problem: PlanningProblem) -> None:
        self._problem = problem
        kinds = {row.kind for row in problem.costs.rows}
        model = problem.model
        self._wanted = Counter(layer.kind for layer in model.blocks)
        self._wanted.update(kind for kind in (EMBEDDING, HEAD) if model.vocab and kind in kinds)
        self._known: dict[frozenset[str], dict[tuple[int, int, int], float]] = {}

    def of(self, types: Iterable[str]) -> dict[tuple[int, int, int], float]:
        """Seconds by tensor and context degree and micro-batch, on the fastest of some types of device."""
        names = frozenset(types)
        if names not in self._known:
            least: dict[tuple[int, int, int], dict[str, float]] = {}
            for key, cost in self._problem.costs.by_key.items():
                if key.device in names and key.kind in self._wanted:
                    at = least.setdefault((key.tp, key.cp, key.micro_batch), {})
                    at[key.kind] = min(at.get(key.kind, math.inf), cost.seconds)
            self._known[names] = {
                degrees: sum(count * at[kind] for kind, count in self._wanted.items())
                for degrees, at in least.items()
                if at.keys() >= self._wanted.keys()
            }
        return self._known[names]

    @property
    def degrees(self) -> list[tuple[int, int, int]]:
        """Degrees and micro-batches that the table has."""
        return sorted(self.of(self._problem.cluster.devices))

    @cached_property
    def of_any(self) -> float:
        """Seconds of one device for a sequence, at the best degrees."""
        return min((s * tp * cp / b for (tp, cp, b), s in self.of(self._problem.cluster.devices).items()), default=0.0)
