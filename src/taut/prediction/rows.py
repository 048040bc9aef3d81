"""
Step time and memory of given configurations, with an error band where a calibration knows one.

Rows that share a setting (``taut.prediction.settings``) are priced together (``taut.formulations.batch.step_time``). A
row that is wrong, or whose device or stack is unknown, gets an error text in its place.
"""

import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.calibration import TERMS
from taut.data.memory import MemoryModel, beyond
from taut.data.samples import APART, SHARED, ConfigurationRow
from taut.data.units import KIB
from taut.errors import DataError, ExtrapolationWarning
from taut.formulations.batch.configurations import Configurations
from taut.formulations.batch.memory import memory_bytes
from taut.formulations.batch.step_time import step_form
from taut.prediction.columns import columns_of, network_features, refusal
from taut.prediction.experts import division_of, priced_alone
from taut.prediction.settings import Given, Setting, lacks_on_hosts, setting_of, within_domain


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
        key = *(getattr(row, name) for name in SHARED), row.n_gpus > row.gpus_per_node, row.num_experts is None
        groups[key].append(index)
    return list(groups.values())


def _of_setting(rows: list[ConfigurationRow], given: Given) -> list[Prediction]:
    """Predictions of rows that share a setting, or what is wrong with each."""
    try:
        setting = setting_of(rows[0], given)
    except DataError as error:
        return [Prediction(error=str(error))] * len(rows)
    wrong = [refusal(row, setting.memory) for row in rows]
    right = [row for row, words in zip(rows, wrong, strict=True) if not words]
    priced = iter(_priced(usual, setting) if (usual := [row for row in right if not _stands_alone(row)]) else [])
    return [
        Prediction(error=words) if words else _alone(row, setting) if _stands_alone(row) else next(priced)
        for row, words in zip(rows, wrong, strict=True)
    ]


def _stands_alone(row: ConfigurationRow) -> bool:
    """Whether a row is priced as a plan: with experts, copies, recompute of named modules, or a share on the host."""
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
        rows,
        sequence_parallel=setting.memory.sequence_parallel,
        overlap=setting.overlap,
        cp_comm=setting.cp_comm,
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


def _beyond(row: ConfigurationRow, setting: Setting) -> int:
    """Respects in which no run of the calibration was like a row."""
    if (seen := setting.calibration.seen) is None:
        return 0
    experts = (row.num_experts is not None) != setting.calibration.experts
    return seen.respects_beyond(row, setting.memory.precision) + experts


def price(configurations: Configurations, setting: Setting) -> tuple[Floats, Ints]:
    """Seconds and bytes of configurations; the fast inner part of ``predict_rows``."""
    hidden, slowdown = setting.calibration.rings_where_hidden, setting.calibration.gather_slowdown
    form = step_form(configurations, setting.machine, setting.per_parameter, hidden, slowdown)
    seconds = form.seconds(np.array([setting.calibration[term] for term in TERMS]))
    rates, memory = setting.machine.rates, setting.memory
    return seconds, memory_bytes(configurations, rates, memory)
