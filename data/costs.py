r"""
What a layer costs: a table of measured or derived seconds and bytes.

A row is keyed by (device type, layer kind, tp, micro_batch, seq, recompute, cp, ep, etp, recorded) and holds, for one
micro-batch on one device of a tensor group that has 1/cp of every sequence, without communication: forward,
input-gradient and weight-gradient seconds, and the bytes of activations that stay for the backward pass, without and
with sequence parallelism. With ep > 1 the device has 1/ep of a layer's experts, and 1/etp of the width of each; where
ep is 1, etp is 0 and all are split over tensor ranks. Passes of rows that are ``recorded`` are launched by CUDA graphs;
plans that have such graphs take them where there are some. Under recompute ``selective`` or ``full`` the input-gradient
seconds include the forward work that is done again. ``offload_bytes`` of the activations, and ``offload_bytes_sp`` with
sequence parallelism, are those that offload of named modules moves to the host
(``taut.data.analytic.offload_modules``).

A missing micro-batch between two measured ones is interpolated linearly, with an ``ExtrapolationWarning``; any other
missing key raises ``MissingProfileError``. Nothing is ever taken as zero.

A profile is a table as CSV, whose columns are the fields of ``CostRow``; an absent column and an empty cell stand for
the default. Lines that begin with ``#`` say where the figures come from, and ``# optimizer_s_per_parameter DEVICE:
SECONDS`` prices the optimizer on a device.
"""

import csv
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self, get_args

from pydantic import Field, model_validator

from taut.data.read import read_text, rows_of
from taut.data.spec import LATER, GrownSpec, NotNegative, name_of_file
from taut.data.suggest import one_of
from taut.data.units import MOST_BYTES
from taut.errors import DataError, ExtrapolationWarning, MissingProfileError

Recompute = Literal["none", "selective", "full"]
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
Module = Literal["core_attn", "mla_up_proj", "layernorm", "moe_act", "shared_experts", "mlp", "moe"]
MODULES: tuple[Module, ...] = get_args(Module)
"""Parts of a layer that selective recompute may be of (``taut.data.analytic.recompute_modules``)."""

OffloadModule = Literal[
    "attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act", "fused_group_mlp"
]
OFFLOAD_MODULES: tuple[OffloadModule, ...] = get_args(OffloadModule)
"""Parts of a layer whose inputs may go to the host (``taut.data.analytic.offload_modules``)."""


def named_modules(value: object) -> object:
    """Modules joined by plus signs, or a list of some, in the order of ``MODULES``; for pydantic."""
    return _named(value, MODULES)


def named_offload_modules(value: object) -> object:
    """The same of ``OFFLOAD_MODULES``."""
    return _named(value, OFFLOAD_MODULES)


def _named(value: object, known: tuple[str, ...]) -> list[str]:
    words = value.split("+") if isinstance(value, str) else value
    if not isinstance(words, list) or any(word not in known for word in words):
        wrong = next((word for word in words if word not in known), "") if isinstance(words, list) else words
        raise ValueError(f"is {value!r}, expected modules joined by +, {one_of(str(wrong), known)}")
    return [module for module in known if module in words]


Bytes = Annotated[int, Field(ge=0, le=MOST_BYTES)]
Degree = Annotated[int, Field(gt=0, le=10_000_000)]


class Key(NamedTuple):
    """What a cost is measured at."""

    device: str
    kind: str
    tp: int
    micro_batch: int
    seq: int
    recompute: str
    cp: int = 1
    ep: int = 1
    etp: int = 0
    recorded: bool = False

    @property
    def of_any_batch(self) -> "Key":
        """The key without its micro-batch."""
        return self._replace(micro_batch=0)


@dataclass(frozen=True, slots=True)
class LayerCost:
    """Seconds and bytes of one layer, one micro-batch, one device."""

    forward: float
    input_grad: float
    weight_grad: float
    activation_bytes: int
    activation_bytes_sp: int
    offload_bytes: int = 0
    offload_bytes_sp: int = 0

    @property
    def seconds(self) -> float:
        """Forward and backward together."""
        return self.forward + self.input_grad + self.weight_grad


class CostRow(GrownSpec):
    """
    One row of a cost table; the field names are the columns of a profile file.

    ``peak_bytes`` is the most memory that the layer took while it was measured, and ``spread`` the relative distance
    between the quartiles of the repeats, the largest of the three passes; both only inform.
    """

    device: str
    kind: str
    tp: Degree
    micro_batch: Degree
    seq: Degree
    recompute: Recompute = "none"
    cp: Degree = 1
    ep: Annotated[Degree, LATER] = 1
    etp: Annotated[int, Field(ge=0, le=10_000_000), LATER] = 0
    recorded: Annotated[bool, LATER] = False
    forward_s: NotNegative
    input_grad_s: NotNegative
    weight_grad_s: NotNegative
    activation_bytes: Bytes
    activation_bytes_sp: Bytes | None = None
    offload_bytes: Annotated[Bytes, LATER] = 0
    offload_bytes_sp: Annotated[Bytes, LATER] = 0
    peak_bytes: Bytes | None = None
    spread: NotNegative | None = None

    @model_validator(mode="after")
    def _no_more_offloaded_than_kept(self) -> Self:
        """Refuse more bytes on the host than a layer keeps."""
        cost = self.cost
        if cost.offload_bytes > cost.activation_bytes or cost.offload_bytes_sp > cost.activation_bytes_sp:
            shown = f"offload_bytes: is {self.offload_bytes}, with sequence parallelism {self.offload_bytes_sp}"
            raise ValueError(f"{shown}, expected at most activation_bytes, {self.activation_bytes}, and those with it")
        return self

    @property
    def key(self) -> Key:
        """What the row was measured at."""
        where = self.tp, self.micro_batch, self.seq, self.recompute, self.cp
        return Key(self.device, self.kind, *where, self.ep, self.etp, self.recorded)

    @property
    def cost(self) -> LayerCost:
        """The row's figures; without a figure of its own, sequence parallelism is credited with nothing."""
        with_sp = self.activation_bytes if self.activation_bytes_sp is None else self.activation_bytes_sp
        seconds = self.forward_s, self.input_grad_s, self.weight_grad_s
        return LayerCost(*seconds, self.activation_bytes, with_sp, self.offload_bytes, self.offload_bytes_sp)


class CostTable(GrownSpec):
    """
    Layer costs with their origin.

    ``optimizer_s_per_parameter`` gives, by device type, the optimizer's seconds for one parameter of a device. If a
    type is missing, its optimizer has no price, and the plan says so. ``basis`` says in words where the figures come
    from. ``recompute_modules`` names the modules of its selective recompute, ``offload_modules`` the modules of its
    bytes on hosts, if stated.
    """

    name: str
    basis: str
    rows: list[CostRow]
    optimizer_s_per_parameter: dict[str, NotNegative] = {}
    recompute_modules: Annotated[list[Module], LATER] = []
    offload_modules: Annotated[list[OffloadModule], LATER] = []

    @cached_property
    def by_key(self) -> dict[Key, LayerCost]:
        """The rows by key; of two rows with one key the first is refused by ``check``."""
        return {row.key: row.cost for row in self.rows}

    @cached_property
    def micro_batches(self) -> dict[Key, list[int]]:
        """Measured micro-batches, ascending, by the key without its own."""
        found: dict[Key, list[int]] = {}
        for key in self.by_key:
            found.setdefault(key.of_any_batch, []).append(key.micro_batch)
        return {other: sorted(batches) for other, batches in found.items()}

    @cached_property
    def records(self) -> bool:
        """Whether some rows are of passes that CUDA graphs launch."""
        return any(key.recorded for key in self.by_key)

    def as_recorded(self, key: Key) -> Key:
        """The key of the same passes launched by CUDA graphs, or the key itself where none has a price."""
        recorded = key._replace(recorded=True)
        return recorded if self.prices(recorded) else key

    def prices(self, key: Key) -> bool:
        """Whether the key is in the table or between two measured micro-batches, so that ``at`` has an answer."""
        batches = self.micro_batches.get(key.of_any_batch, [])
        return bool(batches) and batches[0] <= key.micro_batch <= batches[-1]

    def at(self, key: Key) -> LayerCost:
        """Cost at a key, interpolated between neighbouring micro-batches; ``MissingProfileError`` without both."""
        if key in self.by_key:
            return self.by_key[key]
        if not self.prices(key):
            raise MissingProfileError(f"{self.name}: no cost for {words_of(key)}, and no neighbours to interpolate")
        batches = self.micro_batches[key.of_any_batch]
        below = max(batch for batch in batches if batch < key.micro_batch)
        above = min(batch for batch in batches if batch > key.micro_batch)
        warnings.warn(
            f"{self.name}: {words_of(key)} interpolated between micro_batch {below} and {above}",
            ExtrapolationWarning,
            stacklevel=2,
        )
        share = (key.micro_batch - below) / (above - below)
        low, high = (self.by_key[key._replace(micro_batch=batch)] for batch in (below, above))
        return _between(low, high, share)


def words_of(key: Key) -> str:
    """A key in words, for messages."""
    usual = {"cp": 1, "ep": 1, "etp": 0, "recorded": False}
    return ", ".join(f"{field}={value}" for field, value in key._asdict().items() if usual.get(field) != value)


def _between(low: LayerCost, high: LayerCost, share: float) -> LayerCost:
    def mix(a: float, b: float) -> float:
        return a + share * (b - a)

    return LayerCost(
        mix(low.forward, high.forward),
        mix(low.input_grad, high.input_grad),
        mix(low.weight_grad, high.weight_grad),
        round(mix(low.activation_bytes, high.activation_bytes)),
        round(mix(low.activation_bytes_sp, high.activation_bytes_sp)),
        round(mix(low.offload_bytes, high.offload_bytes)),
        round(mix(low.offload_bytes_sp, high.offload_bytes_sp)),
    )


def check_kinds(table: CostTable, kinds: Iterable[str], model: str) -> None:
    """Refuse a table with a layer kind that a model of these kinds does not have, which would be left unused."""
    known = list(kinds)
    for number, row in enumerate(table.rows, start=1):
        if row.kind not in known:
            expected = one_of(row.kind, known)
            raise DataError(f"{table.name} row {number}: kind {row.kind!r} is no layer of {model}, expected {expected}")


OPTIMIZER_REMARK = "optimizer_s_per_parameter"


def read_costs(path: Path) -> CostTable:
    """Rows of a profile in file order, named after the file; ``DataError`` for a wrong value or a key twice."""
    text = read_text(path, "a cost table")
    columns, lines = rows_of(text, path, "a cost table")
    rows: dict[Key, CostRow] = {}
    for number, line in enumerate(lines, start=1):
        row = _read_row(line, columns, f"{path} row {number}")
        if rows.setdefault(row.key, row) is not row:
            raise DataError(f"{path} row {number}: {words_of(row.key)} stands twice, expected once")
    if not rows:
        raise DataError(f"{path}: has no rows, expected columns {', '.join(CostRow.model_fields)}")
    remarks = [line.lstrip("# ").strip() for line in text.splitlines() if line.startswith("#")]
    said = " ".join(remark for remark in remarks if remark and not remark.startswith(OPTIMIZER_REMARK))
    basis = f"profile {path.name}" + (f": {said}" if said else "")
    optimizer = dict(_optimizer(remark, path) for remark in remarks if remark.startswith(OPTIMIZER_REMARK))
    values = {
        "name": name_of_file(path.stem),
        "basis": basis,
        "rows": list(rows.values()),
        "optimizer_s_per_parameter": optimizer,
    }
    return CostTable.parse(values, str(path))


def _optimizer(remark: str, path: Path) -> tuple[str, float]:
    device, _, seconds = remark.removeprefix(OPTIMIZER_REMARK).partition(":")
    try:
        return device.strip(), float(seconds)
    except ValueError:
        raise DataError(f"{path}: {remark!r}: expected {OPTIMIZER_REMARK} DEVICE: SECONDS") from None


def costs_csv(table: CostTable) -> str:
    """A table as the text of a profile that ``read_costs`` reads back; figures have six digits."""
    out = StringIO()
    out.write("".join(f"# {line}\n" for line in table.basis.splitlines()))
    for device, seconds in table.optimizer_s_per_parameter.items():
        out.write(f"# {OPTIMIZER_REMARK} {device}: {seconds:.6g}\n")
    used = [name for name, field in CostRow.model_fields.items() if _says(table, name, field.default)]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(used)
    for row in table.rows:
        writer.writerow(_cell(getattr(row, name)) for name in used)
    return out.getvalue()


def _says(table: CostTable, name: str, default: object) -> bool:
    """Whether a column is needed: it stands for itself, or some row has another value than the default."""
    return name == "recompute" or any(getattr(row, name) != default for row in table.rows)


def _cell(value: str | float | None) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _read_row(line: dict[str, str], columns: list[str], where: str) -> CostRow:
    if list(line) != columns:
        raise DataError(f"{where}: has another number of cells than the header, expected {len(columns)}")
    return CostRow.parse_cells({column: text for column, text in line.items() if text != ""}, where)
