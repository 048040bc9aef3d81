"""A published plan with its measured step, and the lines of a table of such plans."""

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPlan:
    """A plan, on DGX H100 unless stated: who ran it, the job, its measured step and the degrees that it fixes."""

    who: str
    model: str
    seq: int
    gpus: int
    global_batch: int
    precision: str
    measured_s: float
    fixed: dict[str, Any] = field(default_factory=dict)
    cluster: str = ""


def lines_of(path: Path) -> list[dict[str, str]]:
    """Lines of a table by column, comments left out."""
    text = path.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in text if not line.startswith("#")))
