"""
Whether every public run with a known outcome is called fit, or refused where it ended out of memory.

Run ``python -m benchmarks.memory_outcomes DATA [--rows]``. DATA is a folder with the campaigns' CSV files; none of them
is part of the project (``benchmarks/memory_sources.py``). The script prints a row for every source: how many of the
runs that ran have a predicted need of no more than their device's memory, how many stay below it by the margin as well,
as ``taut plan`` and the column ``fits`` of ``taut predict`` ask for, how many of those that ended out of memory are
refused, and the margin in the mean. Where a source states what its runs took, the row has the mean error, the lowest,
and the share of runs that took no more than prediction and margin. With ``--rows`` it prints every run that is called
otherwise than it went.

Where a source leaves something open, a run is called fit if it is with one choice, and refused if it is with all.
"""

import argparse
import math
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.accuracy import as_table
from benchmarks.expert_memory import described
from benchmarks.memory_sources import Rows, Source, sources
from taut.data.calibration import uncalibrated
from taut.data.catalog.builtin import with_pooled_margin
from taut.data.memory import MemoryModel
from taut.data.samples import ConfigurationRow
from taut.data.units import GIB, KIB
from taut.errors import ExtrapolationWarning
from taut.prediction.fitting import stage_terms
from taut.prediction.rows import predict_rows
from taut.prediction.settings import Given, find_device
from taut.solver.calibration.memory import predicted, weights_of


class Call(NamedTuple):
    """What is said of a run: the least bytes of its choices, those that stay free, and whether they fit its device."""

    row: ConfigurationRow
    needed: float
    margin: float
    fits: bool
    with_margin: bool

    @property
    def error(self) -> float:
        """Prediction / measurement - 1; not a number where nothing was measured."""
        return self.needed / (self.row.measured_bytes or math.nan) - 1


def main() -> None:
    """Call every run, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rows", action="store_true")
    options = parser.parse_args()
    print(as_table(counted(sources(options.data), show=options.rows)))


def counted(every: Iterable[Source], *, show: bool = False) -> list[dict[str, Any]]:
    """A row of counts and errors for every name of a source, and one for all."""
    found: dict[tuple[str, str], tuple[list[Call], list[Call]]] = {}
    for source in every:
        ran, out = calls(source, source.ran), calls(source, source.out)
        wrong = [call for call in ran if not call.with_margin] + [call for call in out if call.fits]
        for call in wrong if show else []:
            print(f"{source.name}: {in_words(call)}, {'ran' if call in ran else 'out of memory'}")
        before = found.setdefault((source.name, source.open), ([], []))
        before[0].extend(ran)
        before[1].extend(out)
    together = [[call for pair in found.values() for call in pair[kind]] for kind in (0, 1)]
    return [_row(name, left, *pair) for (name, left), pair in found.items()] + [_row("together", "", *together)]


def _row(name: str, left: str, ran: list[Call], out: list[Call]) -> dict[str, Any]:
    stated = [call for call in ran if call.row.measured_bytes]
    errors = 100 * np.array([call.error for call in stated])
    inside = [call.row.measured_bytes <= call.needed + call.margin for call in stated if call.row.measured_bytes]
    return {
        "runs": name,
        "left open": left or "-",
        "ran": len(ran),
        "called fit": sum(call.fits for call in ran),
        "with margin": sum(call.with_margin for call in ran),
        "margin GiB": float(np.mean([call.margin for call in ran])) / GIB if ran else "-",
        "out of memory": len(out),
        "refused": sum(not call.fits for call in out) if out else "-",
        "refused with margin": sum(not call.with_margin for call in out) if out else "-",
        "memory stated": len(stated),
        "mean error %": float(np.abs(errors).mean()) if stated else "-",
        "lowest %": float(errors.min()) if stated else "-",
        "within margin %": 100 * float(np.mean(inside)) if stated else "-",
    }


def calls(source: Source, rows: Rows) -> list[Call]:
    """What the source's memory model says of runs."""
    if not rows:
        return []
    needs = [needed([row.model_copy(update=choice) for row in rows], source.model) for choice in source.choices]
    return [_call(row, min(each), source.model) for row, each in zip(rows, zip(*needs, strict=True), strict=True)]


def _call(row: ConfigurationRow, bytes_: float, model: MemoryModel) -> Call:
    device = find_device(row.gpu)
    capacity, margin = device.capacity_kib, with_pooled_margin(model, [device]).margin_kib(device.capacity_kib)
    return Call(row, bytes_, margin * KIB, bytes_ <= capacity * KIB, bytes_ <= (capacity - margin) * KIB)


def needed(rows: Rows, model: MemoryModel) -> list[float]:
    """Bytes of the fullest device of every row, or of the stage that it names."""
    if rows[0].stage is not None:
        return [float(bytes_) for bytes_ in predicted(stage_terms(rows, model), weights_of(model))]
    found: list[float] = [0.0] * len(rows)
    # The loss is the memory model's, whatever the stack that rows without one are read as of.
    rows = [row.model_copy(update={"fused_loss": model.fused_loss}) for row in rows]
    for gpu in {row.gpu for row in rows}:
        places = [place for place, row in enumerate(rows) if row.gpu == gpu]
        calibration = uncalibrated(find_device(gpu)).model_copy(update=model.kept)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)
            priced = predict_rows([rows[place] for place in places], Given(memory_model=model, calibration=calibration))
        for place, one in zip(places, priced, strict=True):
            # No plan has some choices of what a source leaves open, such as full recompute beside overlap.
            found[place] = math.inf if one.memory_bytes is None else one.memory_bytes
    return found


def in_words(call: Call) -> str:
    """A run and what is said of it."""
    row = call.row
    held = find_device(row.gpu).capacity_kib * KIB / GIB
    shape = (
        f"{row.layers} layers of {row.hidden}, cp {row.cp} vpp {row.vpp} seq {row.seq} ZeRO-{row.zero} {row.precision}"
    )
    return f"{row.gpu} {described(row)}, {shape}: {call.needed / GIB:.1f} of {held:.1f} GiB"


if __name__ == "__main__":
    main()
