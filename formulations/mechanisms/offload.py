"""
Offload: shares of optimizer states and of activations in the memory of hosts.

(15) With ``optimizer_offload`` every candidate exists with each share of its optimizer states in the host's memory that
    goes with its ZeRO stage, or with any share where one device holds the weights.
(17) With ``activation_offload`` candidates exist with each share of their activations, or of the inputs of
    ``offload_modules``, in the host's memory. Shares above 0 need a schedule that does not split the backward pass,
    whose gradients by the weights keep what came back, and the recompute and pipelines that the space lists with the
    share. They are priced by the latency model ``step`` alone, where memory is a sum of terms.

Seconds and bytes are those of ``taut.formulations.tables.optimizer_offload`` and ``activation_offload``.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import pydantic

from taut.data.costs import OFFLOAD_MODULES, Recompute
from taut.data.memory import OffloadFraction
from taut.data.spec import Spec
from taut.data.stack import ZeroStage
from taut.formulations.fields import Columns, Field, Fix, Words, some_of_names
from taut.formulations.mechanisms.recompute import recompute_of, suits
from taut.formulations.schedules.plan_orders import SPLIT

if TYPE_CHECKING:
    from taut.formulations.space import Candidate, StrategySpace, Workload


class OptimizerOffload(Spec):
    """A share of the optimizer states that may be in the host's memory, and the ZeRO stages beside it, (15)."""

    fraction: OffloadFraction
    zero: Annotated[list[ZeroStage], pydantic.Field(min_length=1)]


class ActivationOffload(Spec):
    """A share of the activations that may be in the host's memory, with the recompute beside it, (17)."""

    fraction: OffloadFraction
    recompute: Annotated[list[Recompute], pydantic.Field(min_length=1)]
    pipelines: bool = True


STATES_ON_HOSTS = Field(
    meaning="Share of the optimizer states in the host's memory, where the space has several shares.",
    seldom=True,
    words=Words(15, lambda each: f"offload={each.optimizer_offload:g}" if each.optimizer_offload else "", short=9),
    columns=Columns(pareto=True),
)
ACTIVATIONS_ON_HOSTS = Field(
    meaning="Share of the activations in the host's memory.",
    seldom=True,
    grouped=True,
    words=Words(
        16, lambda each: f"activation_offload={each.activation_offload:g}" if each.activation_offload else "", short=10
    ),
    columns=Columns(pareto=True),
)
OF_ALL_STAGES = {"offload_modules": Fix(18, str, some_of_names(OFFLOAD_MODULES))}
"""What may be fixed of the offload: the modules whose inputs go to the host."""


def with_states_on_hosts(workload: "Workload", candidate: "Candidate") -> Iterator["Candidate"]:
    """The candidate with each share of its optimizer states in the host's memory, (15)."""
    if not workload.space.optimizer_offload:
        yield candidate
    for each in workload.space.optimizer_offload:
        if candidate.dp_cp == 1 or candidate.zero in each.zero:
            yield replace(candidate, optimizer_offload=each.fraction) if each.fraction else candidate


def with_activations_on_hosts(workload: "Workload", candidate: "Candidate") -> Iterator["Candidate"]:
    """The candidate with each share of its activations in the host's memory, (17)."""
    space = workload.space
    if not space.activation_offload:
        yield candidate
    for each in space.activation_offload:
        if not each.fraction:
            yield candidate
        elif candidate.schedule not in SPLIT and (each.pipelines or candidate.pp == 1):
            moved = replace(candidate, activation_offload=each.fraction)
            if suits(candidate, recompute_beside_hosts(space, moved, recompute_of(space, candidate.schedule))):
                yield moved


def recompute_beside_hosts(
    space: "StrategySpace", candidate: "Candidate", every: tuple[Recompute, ...]
) -> tuple[Recompute, ...]:
    """Recompute that goes with a candidate's share of activations on hosts, (17)."""
    share = candidate.activation_offload
    listed = [each.recompute for each in space.activation_offload if each.fraction == share]
    return tuple(name for name in every if name in listed[0]) if share and listed else every
