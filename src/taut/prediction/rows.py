"""
Step time and memory of given configurations, with an error band where a calibration knows one.

Rows that share a setting (``taut.prediction.settings``) are priced together (``taut.formulations.batch.step_time``). A
row that is wrong, or whose device or stack is unknown, gets an error text in its place.

The batch form prices columns. What a row leaves open is its stack's: sequence parallelism of tensor ranks as its memory
model was fitted, the overlap of gradient reductions and the kind of context ranks as the framework has them. A network
that predicts memory sees features of these columns (``taut.data.memory``).
"""

import csv
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from itertools import islice
from operator import attrgetter
from os import PathLike
from pathlib import Path
from statistics import mean, median
from types import MappingProxyType
from typing import Any

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.calibration import TERMS, Calibration
from taut.data.costs import RECOMPUTE
from taut.data.load import load_calibration, load_memory_model
from taut.data.memory import FEATURES, MemoryModel, beyond
from taut.data.read import read_text
from taut.data.samples import APART, EXPECTED, SHARED, ConfigurationRow, SampleLine, read_samples, sample_lines
from taut.data.seen import deviation_beyond
from taut.data.stack import CONTEXT_KINDS, SCHEDULES, ContextKind
from taut.data.units import KIB
from taut.errors import DataError, ExtrapolationWarning, FieldError
from taut.formulations.batch.configurations import Configurations, even_division
from taut.formulations.batch.memory import memory_bytes
from taut.formulations.batch.step_time import step_form
from taut.formulations.runs import EXPERTS
from taut.formulations.schedules.orders import ORDER_PRICED, SPLIT, chunks_of_device, is_defined
from taut.prediction.experts import division_of, priced_alone
from taut.prediction.settings import (
    Given,
    Setting,
    lacks,
    lacks_on_hosts,
    recorded_with_waits,
    setting_of,
    within_domain,
)
from taut.solver.branch_and_bound.stop import interrupt_requested
from taut.solver.signals import cut_short


def network_features(rows: Sequence[ConfigurationRow], names: Sequence[str] = FEATURES) -> Floats:
    """What a ``MemoryNetwork`` sees of configurations, (rows, names); what is not named has to be the same in all."""
    return np.array([_figures(row, names) for row in rows], dtype=np.float64).reshape(len(rows), len(names))


def _figures(row: ConfigurationRow, names: Sequence[str]) -> list[float]:
    """Features of a configuration; heads and widths that it does not state take their defaults."""
    derived: dict[str, float] = {
        "heads": row.attention_heads,
        "kv_heads": row.key_value_heads,
        "ffn_hidden": row.ffn_hidden or 4 * row.hidden,
        "mini_batch": row.global_batch // row.dp,
        "gpipe": row.schedule == "gpipe",
        "selective": row.recompute == "selective",
        "full": row.recompute == "full",
    }
    return [derived[name] if name in derived else getattr(row, name) for name in names]


DEGREES = ("tp", "pp", "dp", "cp", "vpp", "micro_batch", "num_micro_batches", "zero")
STATED = ("hidden", "layers", "seq", "vocab", "gated", *DEGREES)
"""Columns that are fields of a row as they stand."""


def columns_of(
    rows: list[ConfigurationRow],
    *,
    sequence_parallel: bool = False,
    overlap: bool = False,
    cp_comm: ContextKind = "p2p",
) -> Configurations:
    """Rows that ``refusal`` lets pass as columns; the options hold of rows that do not say."""

    def column(values: list[int]) -> Ints:
        return np.array(values, dtype=np.int64)

    several = column([row.tp for row in rows]) > 1
    return Configurations(
        **{name: column([*map(attrgetter(name), rows)]) for name in STATED},
        heads=column([row.attention_heads for row in rows]),
        kv_heads=column([row.key_value_heads for row in rows]),
        ffn_hidden=column([row.ffn_hidden or 4 * row.hidden for row in rows]),
        dropout=_said([row.dropout for row in rows], np.array([not row.gated for row in rows], dtype=bool)),
        schedule=column([SCHEDULES.index(row.run_schedule) for row in rows]),
        recompute=column([RECOMPUTE.index(row.recompute) for row in rows]),
        sequence_parallel=_said([row.sequence_parallel for row in rows], sequence_parallel) * several,
        tied=column([row.tied_embedding and row.vocab > 0 for row in rows]),
        overlap=_said([row.overlap_grad_reduce for row in rows], overlap),
        cp_comm=column([CONTEXT_KINDS.index(row.cp_comm or cp_comm) for row in rows]),
        division=_division(rows),
    )


def _said(values: list[bool | None], otherwise: bool | Flags) -> Ints:
    """What rows say, or what holds otherwise of all or of each, as 0 and 1."""
    given = zip(values, np.broadcast_to(otherwise, len(values)), strict=True)
    return np.array([other if value is None else value for value, other in given], dtype=np.int64)


def _division(rows: list[ConfigurationRow]) -> Ints:
    """Layers of every chunk, (rows, most chunks): as stated, or even."""
    layers, chunks = np.array([(row.layers, row.pp * row.vpp) for row in rows], dtype=np.int64).reshape(-1, 2).T
    found = even_division(layers, chunks, np.array([row.vpp > 1 for row in rows], dtype=bool))
    for index, row in enumerate(rows):
        if row.stages is not None:
            found[index, : len(row.stages)] = row.stages
    return found


def refusal(row: ConfigurationRow, memory: MemoryModel) -> str:
    """Why a row cannot be priced with a memory model, in one line; empty where it can."""
    kind, chunks = row.run_schedule, chunks_of_device(row.run_schedule, max(row.vpp, 2))
    if kind in ORDER_PRICED and row.pp == 1:
        return f"schedule is {kind}, expected 1f1b where pp is 1"
    if kind in ORDER_PRICED and row.vpp not in chunks:
        return f"vpp is {row.vpp}, expected {chunks[0]} under {kind}"
    if kind == "gpipe" and row.vpp > 1:
        return f"vpp is {row.vpp}, expected 1 under {kind}"
    if kind in ORDER_PRICED and not is_defined(kind, row.pp, row.num_micro_batches):
        return f"schedule is {kind}, expected another for {row.num_micro_batches} micro-batches and pp = {row.pp}"
    if kind in SPLIT and row.recompute == "full":
        return f"recompute is full, expected none or selective under {kind}"
    if not memory.is_sum_of_terms and (kind in ORDER_PRICED or row.stages is not None or row.layers % row.pp):
        return f"schedule is {kind}, expected 1f1b or gpipe in even stages, as {memory.name} knows no others"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One row's figures, or why there are none; no band without a calibration, a wider one beyond its runs."""

    step_time_s: float | None = None
    band: tuple[float, float] | None = None
    memory_bytes: int | None = None
    fits: bool | None = None
    error: str = ""


def predict_rows(rows: list[ConfigurationRow], given: Given | None = None) -> list[Prediction]:
    """Predict configurations; without ``given`` each row's stack and device choose from the catalog."""
    rows = [within_domain(row) for row in rows]
    results: list[Prediction] = [Prediction()] * len(rows)
    for indices in by_setting(rows):
        priced = _of_setting([rows[index] for index in indices], given or Given())
        for index, prediction in zip(indices, priced, strict=True):
            results[index] = prediction
    return results


def by_setting(rows: list[ConfigurationRow]) -> list[list[int]]:
    """Places of the rows that share a setting."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        kinds = row.n_gpus > row.gpus_per_node, row.num_experts is None, recorded_with_waits(row)
        groups[*(getattr(row, name) for name in SHARED), *kinds].append(index)
    return list(groups.values())


def _of_setting(rows: list[ConfigurationRow], given: Given) -> list[Prediction]:
    """Predictions of rows that share a setting, or what is wrong with each."""
    try:
        setting = setting_of(rows[0], given)
    except DataError as error:
        return [Prediction(error=str(error))] * len(rows)
    wrong = [refusal(row, setting.memory) or lacks(row, setting.stack) for row in rows]
    right = [row for row, words in zip(rows, wrong, strict=True) if not words]
    priced = iter(_priced(usual, setting) if (usual := [row for row in right if not _stands_alone(row)]) else [])
    return [
        Prediction(error=words) if words else _alone(row, setting) if _stands_alone(row) else next(priced)
        for row, words in zip(rows, wrong, strict=True)
    ]


def _stands_alone(row: ConfigurationRow) -> bool:
    """Whether a row is priced as a plan: with experts, copies, recompute of modules or of some layers, or on hosts."""
    return any(getattr(row, name) for name in APART)


def _alone(row: ConfigurationRow, setting: Setting) -> Prediction:
    """A row priced alone, or what is wrong with it."""
    if words := lacks_on_hosts(row, setting.stack):
        return Prediction(error=words)
    try:
        seconds, needed, shares = priced_alone(row, setting, division_of(row))
    except DataError as error:
        return Prediction(error=str(error))
    return _prediction(seconds, needed, setting, row, shares)


def _warn_outside(rows: list[ConfigurationRow], memory: MemoryModel) -> None:
    """Warn where the memory model is asked beyond the runs it was fitted on."""
    outside = [memory.outside(**{name: getattr(row, name) for name in memory.ranges}) for row in rows]
    count, names = sum(map(bool, outside)), sorted({name for found in outside for name in found})
    if count:
        words = f"{memory.name}: {count} of {len(rows)} rows {beyond(memory, names)}"
        warnings.warn(words, ExtrapolationWarning, stacklevel=5)


def _priced(rows: list[ConfigurationRow], setting: Setting) -> list[Prediction]:
    _warn_outside(rows, setting.memory)
    columns = columns_of(
        rows, sequence_parallel=setting.memory.sequence_parallel, overlap=setting.overlap, cp_comm=setting.cp_comm
    )
    seconds, needed = price(columns, setting)
    if (network := setting.memory.network) is not None:
        needed = np.ceil(network.predict(network_features(rows, network.names))).astype(np.int64)
    figures = zip(seconds.tolist(), needed.tolist(), rows, strict=True)
    return [_prediction(step_s, most_bytes, setting, row) for step_s, most_bytes, row in figures]


def _prediction(
    seconds: float,
    needed: int,
    setting: Setting,
    row: ConfigurationRow,
    shares: Mapping[str, float] = MappingProxyType({}),
) -> Prediction:
    capacity, calibration = setting.device.capacity_kib, setting.calibration
    return Prediction(
        step_time_s=seconds,
        band=calibration.band(seconds, shares, _beyond(row, setting)) if calibration.has_band else None,
        memory_bytes=needed,
        fits=needed <= (capacity - setting.memory.margin_kib(capacity)) * KIB,
    )


def _beyond(row: ConfigurationRow, setting: Setting) -> float:
    """Deviation of what of a row lies beyond all runs of the calibration."""
    if (seen := setting.calibration.seen) is None:
        return 0.0
    experts = {EXPERTS: 1.0} if (row.num_experts is not None) != setting.calibration.experts else {}
    return deviation_beyond(seen.fields_beyond(row, setting.memory.precision) | experts)


def price(configurations: Configurations, setting: Setting) -> tuple[Floats, Ints]:
    """Seconds and bytes of configurations; the fast inner part of ``predict_rows``."""
    hidden, slowdown = setting.calibration.rings_where_hidden, setting.calibration.gather_slowdown
    form = step_form(configurations, setting.machine, setting.per_parameter, hidden, slowdown)
    seconds = form.seconds(np.array([setting.calibration[term] for term in TERMS]))
    rates, memory = setting.machine.rates, setting.memory
    return seconds, memory_bytes(configurations, rates, memory)


BLOCK = 20_000
"""Rows that are predicted at a time; those of one setting share its tables."""
RESULTS = ("step_time_s", "step_time_low_s", "step_time_high_s", "memory_bytes", "fits", "error")


def predict(
    rows: Iterable[Mapping[str, Any]] | str | PathLike[str],
    calibration: Calibration | str | None = None,
    memory_model: MemoryModel | str | None = None,
) -> list[dict[str, Any]]:
    """
    Predict step time and memory of given configurations.

    Parameters
    ----------
    rows
        Dictionaries, one a configuration, or the path of a CSV file. Names are the columns of ``taut predict``:
        ``gpu``, ``n_gpus``, ``hidden``, ``layers`` and ``global_batch`` must be there, others have defaults.
    calibration
        Coefficients for all rows, by catalog name, file or spec; without it each row's stack and device choose one of
        the catalog.
    memory_model
        Memory model for all rows, likewise.

    Returns
    -------
    list of dict
        What was given, with ``step_time_s``, its 80 % band ``step_time_low_s`` to ``step_time_high_s`` (None without
        a calibration), ``memory_bytes`` of the fullest device, whether it ``fits``, and ``error``, empty unless the
        row is wrong.

    Raises
    ------
    DataError
        If the file cannot be read or its header is wrong, or there is no such calibration.

    Examples
    --------
    >>> import taut
    >>> row = {"gpu": "A100", "n_gpus": 8, "hidden": 2048, "layers": 24, "dp": 8, "global_batch": 64}
    >>> right, wrong = taut.predict([row, row | {"dp": 3}])
    >>> right["fits"], 0.4 < right["step_time_s"] < 4
    (True, True)
    >>> wrong["error"]
    'row 2: n_gpus is 8, expected tp*pp*dp*cp = 3'
    """
    if isinstance(rows, str | PathLike):
        lines = read_samples(Path(rows))
        given: list[Mapping[str, Any]] = [line.cells for line in lines]
    elif isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise FieldError("rows", repr(rows)[:60], "expected several dictionaries, or a CSV file")
    else:
        given = list(rows)
        lines = [_line(row, number) for number, row in enumerate(given, start=1)]
    found = _predicted(lines, _given(calibration, memory_model))
    return [dict(row) | _record(prediction) for row, prediction in zip(given, found, strict=True)]


def _line(row: object, number: int) -> SampleLine:
    """A dictionary as a line of a file would be; None stands for an empty cell."""
    if not isinstance(row, Mapping):
        raise FieldError("rows", repr(row)[:60], "expected a dictionary for each configuration, or a CSV file")
    try:
        values = {name: value for name, value in row.items() if value is not None and value != ""}
        return SampleLine({}, ConfigurationRow.parse(values, f"row {number}"), "")
    except DataError as error:
        return SampleLine({}, None, str(error))


def _given(calibration: Calibration | str | None, memory_model: MemoryModel | str | None) -> Given:
    """What is given for all rows, names and files read."""
    known = load_calibration(calibration) if isinstance(calibration, str) else calibration
    memory = load_memory_model(memory_model) if isinstance(memory_model, str) else memory_model
    return Given(calibration=known, memory_model=memory)


def _predicted(lines: list[SampleLine], given: Given, first: int = 1) -> list[Prediction]:
    """A prediction for every line, numbered from ``first`` on, with the line's own error where it has one."""
    found = iter(predict_rows([line.row for line in lines if line.row is not None], given))
    return [
        _numbered(next(found), number) if line.row is not None else Prediction(error=line.error)
        for number, line in enumerate(lines, start=first)
    ]


def _numbered(found: Prediction, number: int) -> Prediction:
    """A prediction whose error names the row, as errors of single cells do."""
    return replace(found, error=f"row {number}: {found.error}") if found.error else found


def _record(found: Prediction) -> dict[str, Any]:
    low, high = found.band or (None, None)
    values = (found.step_time_s, low, high, found.memory_bytes, found.fits, found.error)
    return dict(zip(RESULTS, values, strict=True))


@dataclass
class Tally:
    """Rows, how many are wrong, the first error, seconds of steps, how many fit, and whether a signal left some out."""

    rows: int = 0
    wrong: int = 0
    fit: int = 0
    first: str = ""
    was_cut: bool = False
    steps: list[float] = field(default_factory=list)

    def add(self, found: Prediction) -> None:
        """Count a row."""
        self.rows += 1
        self.wrong += bool(found.error)
        self.fit += bool(found.fits)
        self.first = self.first or found.error
        if found.step_time_s is not None:
            self.steps.append(found.step_time_s)

    def __str__(self) -> str:
        """The counts, with mean and median seconds of a step, in one line."""
        words = [f"{self.rows} rows", f"{self.wrong} wrong: first {self.first}" if self.wrong else "all predicted"]
        if self.steps:
            words.append(f"step {mean(self.steps):.4g} s in the mean, median {median(self.steps):.4g} s")
            words.append(f"{self.fit} fit")
        return ", ".join(words)


def predict_file(
    path: Path,
    calibration: Calibration | str | None = None,
    memory_model: MemoryModel | str | None = None,
    told: Callable[[int], None] | None = None,
) -> tuple[str, Tally]:
    """
    The file's rows in blocks with the predicted columns as CSV text, and their tally; ``told`` hears of blocks.

    A signal ends it with the rows of the blocks that are done; ``KeyboardInterrupt`` before there are any.
    """
    columns, lines = sample_lines(read_text(path, EXPECTED), path)
    given, out, tally = _given(calibration, memory_model), StringIO(), Tally()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*columns, *RESULTS])
    with interrupt_requested() as asked:
        while block := list(islice(lines, BLOCK)):
            each: list[Prediction] = []
            with cut_short():
                each = _predicted(block, given, tally.rows + 1)
            for line, found in zip(block, each, strict=bool(each)):
                writer.writerow([*(line.cells.get(column, "") for column in columns), *_cells(found)])
                tally.add(found)
            if asked():
                tally.was_cut = not each or next(lines, None) is not None
                break
            if told is not None and len(block) == BLOCK:
                told(tally.rows)
    if tally.was_cut and not tally.rows:
        raise KeyboardInterrupt
    return out.getvalue(), tally


def _cells(found: Prediction) -> list[str]:
    if found.error or found.step_time_s is None:
        return ["", "", "", "", "", found.error]
    low, high = ("", "") if found.band is None else (f"{end:.6g}" for end in found.band)
    return [f"{found.step_time_s:.6g}", low, high, str(found.memory_bytes), str(found.fits).lower(), ""]
