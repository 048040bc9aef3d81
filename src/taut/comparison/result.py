"""
What a comparison says: the current configuration, the best plan, the bound, and the changes that gain.

Or two plans side by side: inputs, strategy, stages, time, memory, bound, and how many workers are elsewhere.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from taut.data.units import GIB
from taut.formulations.fields import Compared
from taut.formulations.latency import memory_bytes, violations
from taut.formulations.mechanisms.offload import activations_on_hosts, stated_share, states_share
from taut.formulations.space import BESIDE, COMPARED, DEFAULTS, Candidate
from taut.formulations.strategy import Strategy
from taut.planning.plan import Plan
from taut.planning.stated import Stated
from taut.planning.tables import batch_words, stage_records
from taut.words import percent, text_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A configuration with its seconds, bytes of a device of every stage, and why it does not fit."""

    strategy: dict[str, Any]
    layers: tuple[int, ...]
    step_time_s: float
    memory_bytes: tuple[int, ...]
    fits: bool
    why: str = ""

    @classmethod
    def of(cls, stated: Stated) -> "Priced":
        """Price a configuration by the evaluator."""
        problem, strategy, devices = stated
        faults = violations(problem, strategy, devices)
        return cls(
            strategy=described(strategy),
            layers=tuple(end - first for first, end in strategy.layer_stages),
            step_time_s=stated.seconds,
            memory_bytes=tuple(memory_bytes(problem, strategy)),
            fits=not faults,
            why=str(faults[0]) if faults else "",
        )

    def __str__(self) -> str:
        """Degrees and choices."""
        return " ".join(f"{name}={str(value).lower()}" for name, value in self.strategy.items())


def described(strategy: Strategy) -> dict[str, Any]:
    """Degrees and choices of a strategy, one recompute where all stages have it."""
    kinds = sorted(set(strategy.recompute))
    fields = stated_fields(strategy.candidate, lambda each: each.shown)
    return fields | {"recompute": kinds[0] if len(kinds) == 1 else "mixed"}


def stated_fields(candidate: Candidate, always: Callable[[Compared], bool]) -> dict[str, Any]:
    """Fields of a candidate that differ from their defaults, and those that are stated always, of degrees above 1."""
    values = {name: getattr(candidate, name) for name in COMPARED}
    return {
        name: value
        for name, value in values.items()
        if (name not in BESIDE or getattr(candidate, BESIDE[name]) > 1)
        and (always(COMPARED[name]) or value != DEFAULTS[name])
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing done otherwise: what, from what to what, and the seconds of the whole configuration then."""

    what: str
    before: str
    after: str
    step_time_s: float
    memory_bytes: int
    fits: bool

    def gain(self, current_s: float) -> float:
        """Share of the current step time that it saves."""
        return 1 - self.step_time_s / current_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """
    A configuration beside the best plan of its model and cluster.

    Parameters
    ----------
    current
        What runs today, priced as it is.
    best
        The plan, whose bound holds for every configuration of its space.
    changes
        Single changes that gain, the largest gain first.
    features
        What the runs behind the prices had on, as far as the current configuration can have it.
    """

    current: Priced
    best: Plan
    changes: tuple[Change, ...]
    features: tuple[str, ...] = ()

    @property
    def lower_bound_s(self) -> float | None:
        """Seconds that no configuration of the space beats."""
        return self.best.lower_bound_s

    @property
    def distance(self) -> float | None:
        """How far the current configuration is above the bound, as a share of it; None without a bound."""
        bound = self.lower_bound_s
        return None if not bound else self.current.step_time_s / bound - 1

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        current, best = self.current, self.best
        return {
            "current": asdict(current) | {name: list(getattr(current, name)) for name in ("layers", "memory_bytes")},
            "best": {
                "strategy": best.document["strategy"],
                "step_time_s": best.step_time_s,
                "memory_bytes": list(best.predicted.memory_bytes),
                "gap": best.gap,
            },
            "lower_bound_s": self.lower_bound_s,
            "distance": self.distance,
            "features": list(self.features),
            "changes": [
                {
                    "what": each.what,
                    "from": each.before,
                    "to": each.after,
                    "step_time_s": each.step_time_s,
                    "memory_bytes": each.memory_bytes,
                    "fits": each.fits,
                    "gain": each.gain(current.step_time_s),
                }
                for each in self.changes
            ],
        }

    def __str__(self) -> str:
        """The two in a table, the distance in a sentence, the changes in a table."""
        current, best = self.current, self.best
        lines = [
            ("", "current", "best"),
            ("step time", f"{current.step_time_s:.4g} s", f"{best.step_time_s:.4g} s"),
            ("fullest device", _gib(max(current.memory_bytes)), _gib(max(best.predicted.memory_bytes))),
            ("fits", "yes" if current.fits else "no", "yes"),
        ]
        ratio, above = current.step_time_s / best.step_time_s, percent(self.distance, places=2)
        said = f"The current step takes {ratio:.3f} times the best plan's, and is {above} above the bound"
        parts = [f"current  {current}", f"best     {best!r}", text_table(lines), f"{said}."]
        if current.why:
            parts.append(f"The current configuration does not fit: {current.why}.")
        parts.append(_changes(self.changes, current.step_time_s))
        return "\n\n".join(parts)


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


def _changes(changes: tuple[Change, ...], current_s: float) -> str:
    if not changes:
        return "No single change gains anything."
    lines = [("single change", "from", "to", "step time", "gain", "fullest device")]
    lines += [
        (
            each.what,
            each.before,
            each.after,
            f"{each.step_time_s:.4g} s",
            percent(each.gain(current_s), places=2),
            _gib(each.memory_bytes),
        )
        for each in changes
    ]
    return text_table(lines)


Row = tuple[str, str, str]


NONE = "-"
SELDOM = "context ranks", "expert ranks", "optimizer states on hosts", "activations on hosts"
"""Rows that are left out where neither plan has them."""
ALIKE = "stack", "global batch", "sequence length", "precision"
"""Rows that are left out where both plans have the same."""


def compare_plans(one: Plan | str | Path, other: Plan | str | Path) -> list[tuple[str, str, str]]:
    """
    Two plans side by side, of one degree for all stages or of meshes, whose degrees are stated in stage order.

    Parameters
    ----------
    one, other
        Plans, or their files.

    Returns
    -------
    list
        What, and its value in either plan, as text.

    Raises
    ------
    DataError
        If a file is no plan.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 1, "tp": 1, "micro_batch": 4})
    >>> taut.compare_plans(plan, plan)[0]
    ('model', 'gpt2-345m', 'gpt2-345m')
    """
    plans = [each if isinstance(each, Plan) else Plan.read(each) for each in (one, other)]
    columns = [_figures(each) for each in plans]
    rows = [(name, columns[0][name], columns[1][name]) for name in columns[0]]
    rows = [row for row in rows if row[0] not in SELDOM or set(row[1:]) != {NONE}]
    rows = [row for row in rows if row[0] not in ALIKE or row[1] != row[2]]
    return [*rows, ("workers on another device", *_moved(*plans))]


def _figures(plan: Plan) -> dict[str, str]:
    chosen, predicted, work = plan.sections.strategy, plan.sections.predicted, plan.sections.workload
    return {
        "model": plan.model,
        "cluster": plan.cluster,
        "stack": plan.sections.certificate.space.get("stack") or NONE,
        "global batch": str(work.global_batch) if work else NONE,
        "sequence length": str(work.sequence_length) if work else NONE,
        "precision": plan.sections.inputs["memory_model"].spec["precision"],
        "latency model": plan.sections.certificate.latency_model,
        **(_of_meshes(plan) if plan.meshes else _of_degrees(plan)),
        "recompute": ", ".join(sorted({each["recompute"] for each in stage_records(plan.sections)})),
        "layers": "|".join(str(end - first) for first, end in chosen.stages),
        "step time": f"{plan.step_time_s:.6g} s",
        "lower bound": NONE if plan.lower_bound_s is None else f"{plan.lower_bound_s:.6g} s",
        "gap": percent(plan.gap, places=2),
        "fullest device": f"{max(predicted.memory_bytes) / GIB:.2f} GiB",
        "communication": _communication(plan),
    }


def _of_degrees(plan: Plan) -> dict[str, str]:
    """The strategy of a plan of one degree for all stages."""
    chosen, kept = plan.strategy, plan.sections.inputs["memory_model"].spec
    share = states_share(chosen, kept)
    return {
        "pp, tp, cp, dp": ", ".join(str(each) for each in (chosen.pp, chosen.tp, chosen.cp, chosen.dp)),
        "context ranks": chosen.cp_comm if chosen.cp > 1 else NONE,
        "expert ranks": (f"{chosen.ep} of {chosen.etp} tensor ranks" if chosen.etp > 1 else f"{chosen.ep}")
        if chosen.ep > 1
        else NONE,
        "micro-batch": f"{chosen.micro_batch}, {batch_words(chosen, 'a pipeline')}"
        if chosen.micro_batches
        else f"{chosen.micro_batch}, {chosen.num_micro_batches} of them",
        "schedule": chosen.schedule + (f", {chosen.vpp} chunks" if chosen.vpp > 1 else ""),
        "ZeRO": str(chosen.zero),
        "optimizer states on hosts": f"{100 * share:.3g} %" if share else NONE,
        "activations on hosts": activations_on_hosts(chosen, plan.certificate.space) or NONE,
    }


def _of_meshes(plan: Plan) -> dict[str, str]:
    """The strategy of a plan of meshes, which divide neither contexts nor chunks and keep all on devices."""
    chosen, kept = plan.meshed.strategy, plan.sections.inputs["memory_model"].spec
    share, each = stated_share(kept), plan.meshes
    sizes = "/".join(str(mesh.micro_batch) for mesh in each)
    return {
        "pp, tp, cp, dp": "; ".join(f"{mesh.device} {mesh.pp}, {mesh.tp}, 1, {mesh.dp}" for mesh in each),
        "context ranks": NONE,
        "expert ranks": NONE,
        "micro-batch": f"{sizes}, {chosen.num_micro_batches} of them",
        "schedule": "1f1b",
        "ZeRO": str(chosen.zero),
        "optimizer states on hosts": f"{100 * share:.3g} %" if share else NONE,
        "activations on hosts": NONE,
    }


def _communication(plan: Plan) -> str:
    """Seconds of the step beside computation, which passes of meshes do not tell apart from their tensor traffic."""
    if plan.meshes:
        return NONE
    return f"{plan.step_time_s - plan.predicted.breakdown_s['compute']:.4g} s"


def _moved(one: Plan, other: Plan) -> tuple[str, str]:
    """How many workers of the second plan are not where the first has them; a dash where degrees differ."""
    ours, theirs = one.devices, other.devices
    if _shape(ours) != _shape(theirs):
        return NONE, NONE
    return NONE, str(sum(a != b for a, b in zip(_flat(ours), _flat(theirs), strict=True)))


def _shape(devices: list[list[list[int]]]) -> list[list[int]]:
    """Tensor ranks of every replica of every stage."""
    return [[len(replica) for replica in stage] for stage in devices]


def _flat(devices: list[list[list[int]]]) -> list[int]:
    return [device for stage in devices for replica in stage for device in replica]
