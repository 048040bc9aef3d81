"""
Profiles: our own CSV form of a cost table, whose columns are the fields of ``taut.data.costs.CostRow``.

Lines that begin with ``#`` say where the figures come from, and ``# optimizer_s_per_parameter DEVICE: SECONDS`` prices
the optimizer on a device. A column that is absent, and an empty cell, stand for the field's default.
"""

import csv
from io import StringIO
from pathlib import Path

from taut.data.costs import CostRow, CostTable, Key, words_of
from taut.data.read import read_text, rows_of
from taut.data.spec import name_of_file
from taut.errors import DataError

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
