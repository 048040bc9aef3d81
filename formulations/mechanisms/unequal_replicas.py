"""
Uneven batches: replicas on different types of device run different numbers of micro-batches.

(16) With ``uneven_batch`` a candidate has a variant whose replicas divide the g / micro_batch micro-batches of a step
    unevenly. Every replica is on one type of device and runs at least one micro-batch, m in the mean. The variant
    exists under these conditions:

    - the cluster has several types of device, and each type makes whole pipelines: pp tp cp divides its devices;
    - the schedule is 1F1B with m >= pp and m > 1, so a stage holds as many micro-batches in flight as with m;
    - ZeRO is 0 or 1, and ep = 1: otherwise replicas would exchange something with every micro-batch;
    - the latency model is ``step``, and memory is a sum of terms.

    Gradients are averaged over samples, so a replica counts by its micro-batches.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from taut.errors import FieldError
from taut.formulations.fields import Field, Fix, Runs, Variants, Words, true_or_false

if TYPE_CHECKING:
    from taut.formulations.problem import PlanningProblem
    from taut.formulations.space import Candidate, Workload


def with_unequal_replicas(workload: "Workload", candidate: "Candidate") -> Iterator["Candidate"]:
    """The candidate, and the one with an uneven batch, (16)."""
    yield candidate
    if not workload.space.uneven_batch or candidate.copies > 1 or candidate.ep > 1 or candidate.zero > 1:
        return
    pipeline, counts = candidate.pp * candidate.tp * candidate.cp, workload.device_counts
    whole = len(counts) > 1 and all(count % pipeline == 0 for count in counts)
    if whole and candidate.schedule == "1f1b" and candidate.num_micro_batches >= max(candidate.pp, 2):
        yield replace(candidate, uneven_batch=True)


UNEVEN_BATCH = Field(
    variants=Variants(5, with_unequal_replicas),
    searched=lambda model, cluster: len(cluster.devices) > 1,
    launched=True,
    meaning="Whether replicas run different numbers of micro-batches, ``num_micro_batches`` in the mean.",
    seldom=True,
    grouped=True,
    fix=Fix(15, bool, true_or_false),
    words=Words(14, lambda candidate: "uneven batch" if candidate.uneven_batch else ""),
    runs=Runs("uneven_batch", 11, lambda value: "uneven batch" if value else "even batch"),
)


def of_even_batches(problem: "PlanningProblem", method: str) -> "PlanningProblem":
    """The problem of a method that knows no uneven batches; ``FieldError`` if one is asked for."""
    space = problem.space
    if space.fixed.get("uneven_batch"):
        raise FieldError("method", method, "divides every batch evenly, expected no method with uneven_batch=true")
    return replace(problem, space=space.model_copy(update={"uneven_batch": False})) if space.uneven_batch else problem
