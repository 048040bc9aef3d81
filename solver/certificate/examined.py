r"""
The plan of a document, as the reference evaluator prices it.

What ``predicted`` states is computed again here from the inputs alone. Where several replicas or stages are the slowest
up to rounding, the breakdown may be that of any of them.

Some schedules are priced by the order of their passes. The reference derives interleaved 1F1B, ZB-H1, ZB-H2 and given
orders itself. For the published schedules on the V this module, and this module alone, takes the order from
``taut.formulations.schedules`` as data. Whatever its source, every order is checked to run each pass once on the device
of its chunk; running it shows that no device waits for ever.

Two figures are the same but for rounding if

.. math:: |x - x'| \le 10^{-9} \max(|x|, |x'|). \tag{1}
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from taut.data.analytic.hardware_flop import executed_flop
from taut.data.arrays import Ints
from taut.data.units import KIB
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import order_of as formula
from taut.solver.certificate.document import StrategySection, prices_of
from taut.solver.certificate.reference.figures import Figures
from taut.solver.certificate.reference.layers import RECOMPUTE, rows_of_layers, with_further
from taut.solver.certificate.reference.memory import capacity_kib, margin_kib, memory_bytes, violations
from taut.solver.certificate.reference.prices import Price, check, order_of, price
from taut.solver.certificate.reference.space import CLOSED_FORM, Case, Choice, Order, Stages, constant_seconds, of_parts


def order_for(case: Case, choice: Choice) -> Order | None:
    """Order of a candidate's passes, None where its time is a closed form; it is kept with the case."""
    if choice.schedule in CLOSED_FORM:
        return None
    key = "order", choice.schedule, choice.pp, choice.vpp, choice.num_micro_batches, choice.order
    if key not in case.kept:
        order = order_of(choice) or _published(choice)
        check(choice, order)
        case.kept[key] = order
    found: Order = case.kept[key]
    return found


def _published(choice: Choice) -> Order:
    """A published schedule on the V, as data."""
    passes, first, _ = formula(choice.schedule, choice.pp, choice.vpp, choice.num_micro_batches)
    rows = [("FIWB"[kind], chunk, i) for kind, chunk, i in passes.tolist()]
    return [rows[start:end] for start, end in zip(first[:-1].tolist(), first[1:].tolist(), strict=True)]


PARTS = ("compute", "tensor_parallel", "pipeline_transfers")


def case_of(problem: PlanningProblem) -> Case:
    """The problem as the reference evaluator takes it: the same inputs, and the space as plain values."""
    return Case(
        model=problem.model,
        cluster=problem.cluster,
        costs=problem.costs,
        memory=problem.memory,
        space=problem.space.model_dump(mode="json"),
        calibration=problem.calibration,
        **prices_of(problem),
    )


@dataclass(frozen=True)
class Examined:
    """A plan: candidate, parts and recompute of stages, devices (pp, dp, tp), micro-batches of replicas that differ."""

    case: Case
    choice: Choice
    stages: Stages
    recompute: tuple[str, ...]
    devices: Ints
    micro_batches: tuple[int, ...] = ()

    @classmethod
    def of_section(cls, case: Case, section: StrategySection, devices: Ints) -> "Examined":
        """The plan that a strategy section and its devices state."""
        stages = tuple((first, end) for first, end in section.stages)
        choice = Choice(**{each.name: getattr(section, each.name) for each in fields(Choice)})
        parts, micro_batches = of_parts(choice, stages), tuple(section.micro_batches)
        return cls(case, choice, parts, tuple(section.recompute), devices, micro_batches)

    @property
    def violations(self) -> list[str]:
        """What is wrong with the plan, one line each."""
        plan = self.choice, self.stages, self.recompute, self.devices, self._order, self.micro_batches
        return list(violations(self.case, *plan))

    @property
    def seconds(self) -> float:
        """Step time."""
        return float(self.price.total[0])

    @cached_property
    def price(self) -> Price:
        """The plan's price; it breaks no rule."""
        plan = self.choice, self.stages, self.recompute, self.devices[None], self._order, self.micro_batches
        return price(self.case, *plan)

    @cached_property
    def _order(self) -> Order | None:
        return order_for(self.case, self.choice)

    def breakdown(self, stated: dict[str, float]) -> dict[str, float]:
        """Parts of the step time, of the slowest replica and stage that come nearest to the stated parts."""
        wanted = np.array([stated.get(part, math.inf) for part in PARTS])
        *parts, waiting = self.price.parts.T
        nearest = np.abs(np.array(parts).T - wanted).sum(axis=1).argmin()
        return {
            **{name: float(part[nearest]) for name, part in zip(PARTS, parts, strict=True)},
            "data_parallel": float(self.price.data_parallel[0] + waiting[nearest]),
            "optimizer": float(self.price.optimizer[0]),
            "constant": constant_seconds(self.case, self.choice),
        }

    def predicted(self, stated: dict[str, float]) -> dict[str, Any]:
        """The ``predicted`` section, given the stated breakdown."""
        capacity = self._capacity()
        case, batch, seconds = self.case, self.case.space["global_batch"], self.seconds
        return {
            "step_time_s": seconds,
            "breakdown_s": self.breakdown(stated),
            "memory_bytes": memory_bytes(case, self.choice, self.stages, self.recompute, self._order),
            "margin_bytes": [margin_kib(case, kib) * KIB for kib in capacity],
            "capacity_bytes": [kib * KIB for kib in capacity],
            "tokens_per_s": _per_second(batch * case.model.tokens, seconds),
            "mfu": utilisation(case, seconds),
            **self._computing(),
        }

    def _computing(self) -> dict[str, float | None]:
        """Executed FLOP over what the peaks of all devices allow while they compute; seconds of a mean device."""
        case, choice = self.case, self.choice
        plan = Figures(case, choice, self.stages, self.recompute, self.devices[None])
        rows = rows_of_layers(choice, with_further(case, self.stages), self.recompute)[int(choice.empty_ends) :]
        layers = [RECOMPUTE[row] for row in rows[: len(case.model.blocks) + len(case.model.further)]]
        kept = case.calibration or case.memory
        flop = executed_flop(case.model, layers, case.space.get("recompute_modules", ()), kept.kept)
        peaks = np.array([d.peak_flops(case.memory.precision) or math.inf for d in case.cluster.devices.values()])
        counts = np.array(self.micro_batches or [choice.num_micro_batches] * choice.blocks)
        offered = busy = 0.0
        for chunk, rank in enumerate(choice.chunk_device):
            kinds = plan.kinds[0, rank]
            alone = plan.passes.sum(axis=0)[kinds, chunk]
            offered += float((peaks[kinds] * alone).sum(axis=-1) @ counts)
            busy += float(alone.sum(axis=-1) @ counts)
        return {
            "hfu": flop * case.space["global_batch"] / offered if 0.0 < offered < math.inf else None,
            "busy_s": busy / self.devices.size,
        }

    def _capacity(self) -> Sequence[int]:
        """KiB of the smallest device of every pipeline rank."""
        of_device = np.array(capacity_kib(self.case))[self.case.type_of_device]
        least: list[int] = of_device[self.devices].min(axis=(1, 2)).tolist()
        return least


def utilisation(case: Case, seconds: float) -> float | None:
    """Model FLOP utilisation of a step: what all devices' peaks leave unused is waiting, or work that repeats."""
    nodes = case.cluster.node_list
    peak = sum(n.gpus_per_node * (n.device.peak_flops(case.memory.precision) or math.inf) for n in nodes)
    return _per_second(case.space["global_batch"] * case.model.training_flops(), seconds * peak)


def _per_second(amount: float, seconds: float) -> float | None:
    return amount / seconds if seconds > 0 else None


TOLERANCE = 1e-9


def is_close(a: float, b: float) -> bool:
    """Whether figures are the same by (1)."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a == b
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b))


def is_close_or_small(wanted: float | None, stated: float | None, scale: float) -> bool:
    """Close, or both unknown, or a difference that is rounding on the scale of the objective."""
    wanted = None if wanted is not None and not math.isfinite(wanted) else wanted
    if wanted is None or stated is None:
        return wanted is stated
    return is_close(wanted, stated) or abs(wanted - stated) <= TOLERANCE * max(1.0, min(scale, 1.0))


def differences(path: str, wanted: Any, stated: Any) -> Iterator[str]:
    """Where two nested values differ beyond rounding."""
    if isinstance(wanted, dict):
        if not isinstance(stated, dict) or wanted.keys() != stated.keys():
            yield f"{path} does not hold {sorted(wanted)}"
            return
        for name, value in wanted.items():
            yield from differences(f"{path}.{name}", value, stated[name])
    elif isinstance(wanted, list):
        if not isinstance(stated, list) or len(wanted) != len(stated):
            yield f"{path} does not hold {len(wanted)} entries"
            return
        for index, value in enumerate(wanted):
            yield from differences(f"{path}.{index}", value, stated[index])
    elif wanted is None or stated is None:
        if wanted is not stated:
            yield f"{path} is {stated}, recomputed {wanted}"
    elif not (is_close(wanted, stated) or abs(wanted - stated) <= 1e-15):
        yield f"{path} is {stated}, recomputed {wanted}"
