r"""
What the runs of a calibration have been, field by field.

Of a number a record holds the least and the most of all runs, of a kind every one that a run had. Fields are told one
by one: a plan may have the micro-batch of one run and the recompute of another. Names are those of a candidate
(``taut.formulations.space``), and of facts of the job: GPUs, tokens of a sequence, number format, and how layers mix
tokens (``taut.data.layers.mixer.Mixing``).

What says nothing in a run is not counted: ZeRO of a single holder of the weights, tensor ranks of experts without ranks
of their own, and copies of what nobody shards.

Beyond all runs, the logarithm of a step has errors of its own. Fields of one kind err together and count once. GPUs and
micro-batches are sizes: each doubling beyond the runs brings kernels and rings of other sizes, whose errors add up.
Fewer GPUs than the runs had bring none: runs on more have the same kernels, and longer rings.

(1) :math:`s^2 = \sum_{k \in K(F)} s_k^2 \max_{f \in F \cap k} d_f` for fields F, with their kinds K, the deviation
    :math:`s_k` of a kind, and the distance :math:`d_f` of a field: doublings of a size, 0 of fewer GPUs, and 1 of any
    other field.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Self, get_origin

from pydantic import BeforeValidator, Field, model_validator

from taut.data.costs import RECOMPUTE, Recompute
from taut.data.device import Precision
from taut.data.layers.mixer import Mixing
from taut.data.spec import LATER, GrownSpec, NotNegative, Whole, as_tuple

if TYPE_CHECKING:
    from taut.data.samples import ConfigurationRow

Range = Annotated[tuple[Whole, Whole], BeforeValidator(as_tuple)]
Shares = Annotated[tuple[NotNegative, NotNegative], BeforeValidator(as_tuple)]
COUNTS = "n_gpus", "seq", "micro_batch", "tp", "cp", "ep", "pp", "vpp"
SHARES = "optimizer_offload", "activation_offload"
_bounds = attrgetter(*COUNTS, *SHARES)
_numbers = attrgetter(*COUNTS, *(f"{name}_fraction" for name in SHARES))
PIPELINE, ANY = "pipeline", "any other"
KINDS = {"n_gpus": "scale", "micro_batch": "micro-batch", "recompute": "recompute"}
KINDS |= dict.fromkeys(("pp", "vpp", "schedule"), PIPELINE)
"""Kinds of fields with regions of their own; any other field is a kind by itself."""
SIZES = "n_gpus", "micro_batch"
"""Fields whose distance is told in doublings."""
DEVIATIONS = {"scale": 0.012, "micro-batch": 0.058, "recompute": 0.07, PIPELINE: 0.031, ANY: 0.086}
"""
Deviations of (1). Fits of eleven campaigns left out regions of their runs, and errors there exceed those on other
unseen runs by as much (``benchmarks/regions.py``). ``ANY`` is that of each field without a kind, such as ``mixing``:
published layouts of three models with other layers than attention give no figure of their own
(docs/results/mixed_layers.md).
"""

DEVICE_DEVIATION = 0.11
"""
Deviation of the logarithm of a step on a device without runs, at the losses of another one: the root mean square of the
mean errors of fourteen groups of runs, each of a device and number format (``benchmarks/regions.py --devices``).
"""


class Seen(GrownSpec):
    """
    Least and most of every number, and all kinds, that a calibration's runs had.

    ``copies`` says whether there were several copies of sharded weights, ``uneven_batch`` whether replicas ran
    different numbers of micro-batches; shares are of what was in the host's memory. Rows have attention alone,
    and state no ``mixing``: ``taut.plan`` fills it in for models with other layers. A plan's document that does not
    state it, such as an older one, tells nothing of mixing.
    """

    n_gpus: Range
    seq: Range
    precision: list[Precision]
    micro_batch: Range
    recompute: list[Recompute]
    zero: list[Annotated[int, Field(ge=0, le=3)]]
    copies: Annotated[list[bool], LATER] = [False]
    tp: Range = (1, 1)
    cp: Annotated[Range, LATER] = (1, 1)
    ep: Annotated[Range, LATER] = (1, 1)
    etp: Annotated[Range, LATER] = (1, 1)
    pp: Range = (1, 1)
    vpp: Range = (1, 1)
    schedule: list[str]
    uneven_batch: Annotated[list[bool], LATER] = [False]
    optimizer_offload: Annotated[Shares, LATER] = (0.0, 0.0)
    activation_offload: Annotated[Shares, LATER] = (0.0, 0.0)
    mixing: Annotated[list[Mixing] | None, LATER] = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, tuple) and value[0] > value[1]:
                raise ValueError(f"{name}: is {list(value)}, expected the least and the most")
        return self

    @classmethod
    def of(cls, rows: Iterable["ConfigurationRow"], precision: Precision) -> Self:
        """What some runs have been, at least one of them; those that state no number format have the given one."""
        every = list(rows)

        recompute = {row.recompute for row in every}
        return cls(
            **{name: _span(getattr(row, name) for row in every) for name in COUNTS},
            **{name: _span(getattr(row, f"{name}_fraction") for row in every) for name in SHARES},
            etp=_span([row.expert_tp for row in every if row.ep > 1] or [1]),
            precision=sorted({row.precision or precision for row in every}),
            recompute=[kind for kind in RECOMPUTE if kind in recompute],
            zero=sorted({row.zero for row in every if row.dp * row.cp > 1}),
            copies=sorted({row.zero > 0 and row.dp_shard not in (None, row.dp) for row in every}),
            schedule=sorted({row.run_schedule for row in every}),
        )

    def fields_beyond(self, row: "ConfigurationRow", precision: Precision) -> dict[str, float]:
        """The fields of a run that no run has had, by distance; ``precision``: its number format if it states none."""
        numbers = zip((*COUNTS, *SHARES), _bounds(self), _numbers(row), strict=True)
        found = {name: distance_of(name, x, span) for name, span, x in numbers if not span[0] <= x <= span[1]}
        kinds = (
            ("precision", (row.precision or precision) in self.precision),
            ("recompute", row.recompute in self.recompute),
            ("zero", row.zero in self.zero or row.dp * row.cp == 1),
            ("copies", (row.zero > 0 and row.dp_shard not in (None, row.dp)) in self.copies),
            ("schedule", row.run_schedule in self.schedule),
            ("mixing", self.mixing is None or "attention" in self.mixing),
            ("etp", self.etp[0] <= (row.expert_tp if row.ep > 1 else 1) <= self.etp[1]),
        )
        return found | {name: 1.0 for name, holds in kinds if not holds}


NUMBERS = {name for name, field in Seen.model_fields.items() if get_origin(field.annotation) is tuple}
"""Fields of which a record holds the least and the most."""


def distance_of(name: str, value: Any, seen: Sequence[Any]) -> float:
    """How far a field's value lies beyond what runs had, (1)."""
    if name not in SIZES:
        return 1.0
    return 0.0 if name == "n_gpus" and value < seen[0] else math.log2(max(value / seen[1], seen[0] / value))


def distances_by_kind(fields: Mapping[str, float]) -> dict[str, float]:
    """Distances of fields beyond all runs by kind, (1); a field without a kind is one by itself."""
    found: dict[str, float] = {}
    for name, distance in fields.items():
        kind = KINDS.get(name, name)
        found[kind] = max(distance, found.get(kind, 0.0))
    return found


def deviation_beyond(fields: Mapping[str, float]) -> float:
    """
    Standard deviation of the logarithm of a step for its fields beyond all runs, by their distances, (1).

    Examples
    --------
    >>> deviation_beyond({}), deviation_beyond({"pp": 1, "vpp": 1}), deviation_beyond({"micro_batch": 4.0})
    (0.0, 0.041, 0.102)
    """
    kinds = distances_by_kind(fields).items()
    return math.sqrt(sum(DEVIATIONS.get(kind, DEVIATIONS[ANY]) ** 2 * distance for kind, distance in kinds))


def usual_of(name: str) -> list[Any] | None:
    """What a field is where nothing of it was seen, None where every run has something."""
    field = Seen.model_fields[name]
    return None if field.is_required() else [*field.default]


def _span(values: Iterable[float]) -> Any:
    """The least and the most."""
    found = [*values]
    return min(found), max(found)
