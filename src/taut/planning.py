"""
The main job: from a model and a cluster to a plan with a proven gap.

The way a plan takes: specs (``taut.data``) become a ``PlanningProblem`` (``taut.formulations``), the branch and bound
(``taut.solver.search.search``) finds strategy, stages and placement with a bound on every candidate, and the
certificate (``taut.solver.certificate.write``) writes down everything that ``taut verify`` needs.
"""

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from taut.data.calibration import Calibration
from taut.data.cluster import ClusterSpec
from taut.data.costs import RECOMPUTE, CostTable
from taut.data.memory import MemoryModel, beyond
from taut.data.model import ModelSpec
from taut.errors import ExtrapolationWarning, InfeasibleError, NothingFoundError
from taut.files import write_atomically
from taut.formulations.learned_memory import candidate_features
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.request import planning_problem, wider_costs
from taut.solver.certificate.verify import Verification, verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.infeasibility.diagnosis import diagnose
from taut.solver.result import OPTIMALITY_GAP, Limits, Progress, Status
from taut.solver.search.search import search

_STOPPED = {
    "time": "the time limit came first",
    "work": "the work limit came first",
    "interrupt": "interrupted before there was one",
}


@dataclass(frozen=True)
class Plan:
    """
    A plan: strategy, placement, predictions and certificate, as the document that is written to JSON.

    The properties name what is asked for most; everything else is in ``document``.
    """

    document: dict[str, Any]

    @property
    def status(self) -> str:
        """``optimal`` or ``feasible``."""
        return str(self.document["status"])

    @property
    def strategy(self) -> dict[str, Any]:
        """Degrees, micro-batch, schedule, stages and recompute."""
        return dict(self.document["strategy"])

    @property
    def devices(self) -> list[list[list[int]]]:
        """Device of every worker: ``devices[stage][replica][tensor rank]``."""
        return cast("list[list[list[int]]]", self.document["placement"]["devices"])

    @property
    def step_time_s(self) -> float:
        """Predicted seconds of one training step."""
        return float(self.document["predicted"]["step_time_s"])

    @property
    def lower_bound_s(self) -> float | None:
        """Seconds that no plan of the space can beat; None if nothing was proven."""
        bound = self.document["certificate"]["lower_bound_s"]
        return None if bound is None else float(bound)

    @property
    def gap(self) -> float | None:
        """Relative gap between step time and bound."""
        gap = self.document["certificate"]["gap"]
        return None if gap is None else float(gap)

    def verify(self) -> Verification:
        """Check the certificate without trusting the search."""
        return verify_document(json.loads(json.dumps(self.document)))

    def write(self, path: str | Path) -> None:
        """Write the document as JSON, whole or not at all."""
        write_atomically(Path(path), json.dumps(self.document) + "\n")

    def __str__(self) -> str:
        """The plan in words."""
        from taut.reports.plan import summary

        return summary(self.document)


def plan(
    model: ModelSpec | str,
    cluster: ClusterSpec | str,
    *,
    global_batch: int,
    seq: int | None = None,
    profile: CostTable | str | None = None,
    memory_model: MemoryModel | str | None = None,
    latency_model: str = "pipette",
    calibration: Calibration | str | None = None,
    precision: str | None = None,
    fix: dict[str, int | str | bool] | None = None,
    max_tp: int | None = None,
    schedules: str | None = None,
    time_limit: float | None = None,
    work_limit: int | None = None,
    gap: float = OPTIMALITY_GAP,
    seed: int = 0,
    workers: int = 2,
    progress: Progress | None = None,
) -> Plan:
    """
    Plan the training of a model on a cluster.

    Parameters
    ----------
    model, cluster
        Specs, catalog names (``gpt3-175b``, ``dgx-a100:16``) or files.
    global_batch
        Sequences per step.
    seq
        Sequence length in tokens, if it is to differ from the model's.
    profile
        Measured layer costs, by catalog name or file; analytic costs without them.
    memory_model
        Catalog name, file or model of a device's memory; without it the one fitted for the calibration's stack, or
        the analytic one.
    latency_model
        ``pipette``, ``pipette-printed`` or ``amp``.
    calibration
        Coefficients fitted on measured runs, by catalog name or file; the stated efficiencies without it.
    precision
        ``bf16``, ``fp16`` or ``fp32``; by default the first of them in which every device computes.
    fix
        Degrees and choices that must have these values.
    max_tp
        Largest tensor degree; by default the largest node.
    schedules
        ``all``, or names of schedules separated by commas; by default ``1f1b,gpipe``, and what ``fix`` asks for.
    time_limit, work_limit, gap
        When to stop: seconds, refinements of candidates, relative gap.
    seed, workers
        Seed of the annealing, and threads it runs on; the plan does not depend on the number of threads.
    progress
        Called with elapsed seconds, incumbent, bound and what was just done.

    Raises
    ------
    DataError
        If an input is wrong or no candidate exists.
    InfeasibleError
        If no plan fits the devices' memory.
    NothingFoundError
        If a limit or an interrupt came before the first plan.
    """
    problem = planning_problem(
        model,
        cluster,
        global_batch=global_batch,
        seq=seq,
        profile=profile,
        memory_model=memory_model,
        latency_model=latency_model,
        calibration=calibration,
        precision=precision,
        fix=fix,
        max_tp=max_tp,
        schedules=schedules,
    )
    limits = Limits(time_limit=time_limit, work_limit=work_limit, gap=gap, seed=seed, workers=workers)
    result = search(problem, limits, progress)
    if result.status is Status.INFEASIBLE:
        why_not = diagnose(problem, result, pricing=lambda max_tp: wider_costs(problem, profile, max_tp))
        raise InfeasibleError(str(why_not), why_not.as_dict())
    if result.incumbent is None:
        why = _STOPPED.get(result.stopped_by or "", "every candidate left mixes devices in ways that did not fit")
        raise NothingFoundError(f"no plan found: {why}; no plan is faster than {result.lower_bound:.6g} s")
    _warn_outside(problem, result.incumbent.strategy)
    return Plan(plan_document(problem, result, limits))


def _warn_outside(problem: PlanningProblem, strategy: Strategy) -> None:
    """Warn where the memory model is asked beyond the runs it was fitted on."""
    choice, block = strategy.candidate, problem.model.blocks[0]
    if problem.memory.network is not None:
        network = problem.memory.network
        asked = candidate_features(network.names, problem.model, choice)
        used = sorted({RECOMPUTE.index(recompute) for recompute in strategy.recompute})
        if beyond_network := network.outside(asked[used]):
            words = f"asked beyond the runs it was trained on: {', '.join(beyond_network)}"
            warnings.warn(f"{network.name}: {words}", ExtrapolationWarning, stacklevel=3)
        return
    outside = problem.memory.outside(
        n_gpus=problem.cluster.num_devices,
        hidden=block.hidden,
        layers=len(problem.model.blocks),
        seq=block.seq,
        tp=choice.tp,
        pp=choice.pp,
        dp=choice.dp,
        micro_batch=choice.micro_batch,
        num_micro_batches=choice.num_micro_batches,
    )
    if outside:
        warnings.warn(f"{problem.memory.name}: {beyond(problem.memory, outside)}", ExtrapolationWarning, stacklevel=3)
