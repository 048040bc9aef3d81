"""
Plans that Aceso's search found, from a table with one plan a line.

Columns: ``gpu``, ``system``, ``size``, ``n_gpus``, ``num_layers``, ``hidden``, ``heads``, ``seq``, ``gbs``, ``mbs``;
by stage and separated by blanks ``ops_per_stage``, ``recomputed_ops_by_stage``, ``predicted_stage_ms`` and
``predicted_memory_mb`` (MiB), by stage and separated by ``|`` ``tp_by_stage`` and ``dp_by_stage`` in the form ``2x131``
(degree 2 of 131 operators); ``predicted_step_ms``, ``search_cost_s`` and ``measured_step_ms``, empty where the plan was
not run. Other columns, and lines of other systems, are left out. The runs are those of Mist's artifact (EuroSys 2025).
"""

from dataclasses import dataclass
from pathlib import Path

from taut.data.read import read_text, rows_of
from taut.data.spec import Positive, Spec
from taut.data.units import MIB, MILLISECOND
from taut.errors import DataError


@dataclass(frozen=True, slots=True)
class OperatorStage:
    """A stage: its operators, of which ``recomputed`` are recomputed, and its degrees."""

    operators: int
    tp: int
    dp: int
    recomputed: int
    predicted_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPlan:
    """A plan with the seconds that Aceso predicts, and those of the run if there was one."""

    gpu: str
    size: str
    gpus: int
    layers: int
    hidden: int
    heads: int
    seq: int
    global_batch: int
    micro_batch: int
    stages: tuple[OperatorStage, ...]
    predicted_s: float
    search_s: float
    measured_s: float | None


class _Line(Spec):
    """The columns that are read, as they stand in the table."""

    gpu: str
    size: str
    n_gpus: int
    num_layers: int
    hidden: int
    heads: int
    seq: int
    gbs: int
    mbs: int
    ops_per_stage: str
    tp_by_stage: str
    dp_by_stage: str
    recomputed_ops_by_stage: str
    predicted_memory_mb: str
    predicted_step_ms: Positive
    search_cost_s: Positive
    measured_step_ms: Positive | None = None


def read_operator_plans(path: Path) -> list[OperatorPlan]:
    """
    Read the plans of a table.

    Returns plans of Aceso's search in the order of the file. Raises ``DataError`` if a line is wrong.
    """
    expected = "a table of Aceso's plans"
    _, rows = rows_of(read_text(path, expected), path, expected)
    numbered = [(f"{path} row {number}", row) for number, row in enumerate(rows, start=1)]
    return [_plan(row, where) for where, row in numbered if row.get("system", "aceso") == "aceso"]


def _plan(row: dict[str, str], where: str) -> OperatorPlan:
    cells = {name: text for name, text in row.items() if name in _Line.model_fields and text != ""}
    line = _Line.parse_cells(cells, where)
    return OperatorPlan(
        gpu=line.gpu,
        size=line.size,
        gpus=line.n_gpus,
        layers=line.num_layers,
        hidden=line.hidden,
        heads=line.heads,
        seq=line.seq,
        global_batch=line.gbs,
        micro_batch=line.mbs,
        stages=_stages(line, where),
        predicted_s=line.predicted_step_ms * MILLISECOND,
        search_s=line.search_cost_s,
        measured_s=None if line.measured_step_ms is None else line.measured_step_ms * MILLISECOND,
    )


def _stages(line: _Line, where: str) -> tuple[OperatorStage, ...]:
    try:
        lists = (
            [int(word) for word in line.ops_per_stage.split()],
            [_degree(word) for word in line.tp_by_stage.split("|")],
            [_degree(word) for word in line.dp_by_stage.split("|")],
            [int(word) for word in line.recomputed_ops_by_stage.split()],
            [float(word) * MIB for word in line.predicted_memory_mb.split()],
        )
        return tuple(OperatorStage(*values) for values in zip(*lists, strict=True))
    except ValueError:
        message = "lists by stage do not agree, expected operators, tp, dp, recomputed operators and MiB of every stage"
        raise DataError(f"{where}: {message}") from None


def _degree(word: str) -> int:
    """The degree in ``2x131``; a stage whose operators have different ones is refused by the blanks between them."""
    degree, _, operators = word.strip().partition("x")
    int(operators)
    return int(degree)
