"""Calibrations and memory models from measured runs: rows of a CSV file with ``measured_s`` or ``measured_bytes``."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from taut.data.analytic.device_rates import rates_of
from taut.data.arrays import Floats
from taut.data.calibration import GATHER_SLOWDOWN, PASSES, TERMS, Calibration, uncalibrated
from taut.data.catalog.builtin import catalog_memory_models, catalog_operators
from taut.data.device import DeviceSpec, Precision, usual_precision
from taut.data.layers.layer_factor import SIZES, LayerFactor
from taut.data.memory import ALL_FEATURES, MemoryModel, MemoryNetwork
from taut.data.samples import APART, SCALED, ConfigurationRow, read_samples
from taut.data.seen import Seen
from taut.data.units import GIB
from taut.errors import DataError
from taut.formulations.batch.memory import GRADIENTS, LOGITS, edge_stages, groups, memory_terms, unsummed_bytes
from taut.formulations.batch.step_time import step_form
from taut.formulations.batch.unit_seconds import layer_shape
from taut.prediction.rows import by_setting, columns_of, network_features, refusal
from taut.prediction.settings import Given, default_cluster, find_device, setting_of
from taut.solver.calibration.latency import (
    FLOORS,
    STACKS,
    LayerShapes,
    Samples,
    Stack,
    TermsAt,
    fit_calibration,
    stack_of,
)
from taut.solver.calibration.memory import fit_memory

RANGED = ("n_gpus", "hidden", "layers", "seq", "tp", "pp", "dp", "micro_batch", "num_micro_batches")
"""What a memory model remembers least and most of."""


def fit_latency(path: str | Path, *, name: str, source: str = "", cluster: str = "") -> Calibration:
    """
    Calibration from measured runs of one device and stack: rows with ``measured_s``.

    Parameters
    ----------
    path
        CSV file of configurations with their measured step times.
    name, source, cluster
        What the calibration says of itself; the catalog cluster whose links price the terms.

    Raises
    ------
    DataError
        If a row is wrong or lacks its measurement, or the rows are of several devices, stacks or node sizes.

    Examples
    --------
    >>> import taut
    >>> taut.fit_latency("nowhere.csv", name="own")
    Traceback (most recent call last):
    taut.errors.DataError: nowhere.csv: No such file or directory, expected a CSV file of configurations
    """
    rows = list[ConfigurationRow]()
    for where, row in _measured_rows(path, "measured_s", "seconds"):
        if words := refusal(row, MemoryModel()):
            raise DataError(f"{where}: {words}")
        rows.append(row)
    kinds = {(row.gpu.lower(), row.gpus_per_node, row.stack) for row in rows}
    if len(kinds) != 1:
        raise DataError(f"{path}: {len(kinds)} kinds of (gpu, gpus_per_node, stack), expected one")
    return calibrate(rows, {"name": name, "stack": rows[0].stack, "source": source, "cluster": cluster})


def calibrate(
    rows: list[ConfigurationRow],
    about: dict[str, Any],
    like: Calibration | None = None,
    towards: Mapping[str, float] = MappingProxyType({}),
) -> Calibration:
    """Calibration from runs of one device, node size and stack; its fit is pulled to ``like`` and ``towards``."""
    device = find_device(rows[0].gpu)
    many = {row.n_gpus > row.gpus_per_node for row in rows}
    precisions = {row.precision for row in rows}
    about = {
        **about,
        "cluster": about["cluster"] or default_cluster(device),
        "nodes": "any" if len(many) > 1 else "many" if many == {True} else "one",
        "precision": precisions.pop() if len(precisions) == 1 else None,
        "gather_slowdown": gather_slowdown_of(rows),
        "seen": seen_of(rows),
    }
    every = samples_by_stack(rows, device, about, like)
    return fit_calibration(every, device, about, like=like, towards=towards)


def seen_of(rows: list[ConfigurationRow]) -> Seen:
    """What runs of one kind of device have been."""
    return Seen.of(rows, usual_precision([find_device(rows[0].gpu)]))


def gather_slowdown_of(rows: list[ConfigurationRow]) -> float:
    """What kernels lose beside gathers: nothing more where runs with shards are among those of a fit."""
    return 0.0 if any(row.zero >= 2 for row in rows) else GATHER_SLOWDOWN


def samples_by_stack(
    rows: list[ConfigurationRow], device: DeviceSpec, about: Mapping[str, Any], like: Calibration | None = None
) -> dict[Stack, Samples]:
    """Runs under every stack that a fit tries: another fit's, or all of the kind of attention that is said of them."""
    fused = about.get("fused_attention")
    tried = [stack for stack in STACKS if fused in (None, stack.fused_attention)] if like is None else [stack_of(like)]
    return {stack: samples_of(rows, device, about, stack) for stack in tried}


def samples_of(rows: list[ConfigurationRow], device: DeviceSpec, about: Mapping[str, Any], stack: Stack) -> Samples:
    """Runs under one stack; where the model itself hides all of them, gradient rings cost no less than stated."""
    kept = {"device": "", "cluster": about["cluster"], **{name: about[name] for name in PASSES if name in about}}
    said = uncalibrated(device).model_copy(update={**kept, **stack._asdict()})
    floors = _floors(device, {row.precision or usual_precision([device]) for row in rows})
    seconds, forms = np.array([row.measured_s for row in rows], dtype=float), []
    sizes = np.empty((len(rows), len(SIZES) + 1))
    for members in by_setting(rows):
        setting = setting_of(rows[members[0]], Given(calibration=said))
        columns = columns_of(
            [rows[index] for index in members],
            sequence_parallel=setting.memory.sequence_parallel,
            overlap=setting.overlap,
            cp_comm=setting.cp_comm,
        )
        forms.append((members, step_form(columns, setting.machine, setting.per_parameter)))
        sizes[members] = layer_shape(columns).sizes
    overlap = all(form.overlap.all() for _, form in forms)
    floors = np.where(np.array(TERMS) == "data_parallel", 1.0, floors) if overlap else floors

    def terms(coefficients: Floats) -> Floats:
        found = np.empty((len(rows), len(TERMS)))
        for members, form in forms:
            found[members] = form.terms(coefficients)
        return found

    def of_layers(coefficients: Floats) -> Floats:
        found = np.empty((len(rows), len(TERMS)))
        for members, form in forms:
            found[members] = form.layer_terms(coefficients)
        return found

    layers = _layer_shapes(sizes, of_layers)
    keys = [(row.num_micro_batches, *(str(value) for name, value in row if name not in SCALED)) for row in rows]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    return Samples(terms, seconds, floors, layers=layers, plans=np.array([places[key] for key in keys]))


def _layer_shapes(sizes: Floats, terms: TermsAt) -> LayerShapes | None:
    """Shapes of the runs' layers from their sizes, unless context ranks share some."""
    if not (sizes > 0).all():
        return None
    shapes, index = np.unique(sizes, axis=0, return_inverse=True)
    return LayerShapes(tuple(LayerFactor.of(shape) for shape in shapes.tolist()), index.reshape(-1), terms)


def _floors(device: DeviceSpec, precisions: set[Precision]) -> Floats:
    """Least coefficients on a device: products as measured (of fp8 by blocks), less the mean error of their model."""
    model = catalog_operators().get(device.name)
    recipes: tuple[Precision, ...] = tuple("fp8-blockwise" if one == "fp8" else one for one in precisions)
    fits = [(model.recipes.get(one) or model).gemm_error for one in recipes] if model is not None else []
    error = max((1.0 if fit is None else fit.mean for fit in fits), default=1.0)
    return np.where(np.array(TERMS) == "gemm", 1.0 - error, FLOORS)


def _measured_rows(path: str | Path, field: str, unit: str) -> Iterator[tuple[str, ConfigurationRow]]:
    """Where each row of a file is, and the row, which has the measured figure and nothing that no fit has."""
    for number, line in enumerate(read_samples(Path(path)), start=1):
        if line.row is None:
            raise DataError(f"{path} {line.error}")
        if getattr(line.row, field) is None:
            raise DataError(f"{path} row {number}: {field}: missing, expected {unit}")
        if words := _not_fitted(line.row):
            raise DataError(f"{path} row {number}: {words}")
        yield f"{path} row {number}", line.row


def fit_memory_samples(
    path: str | Path,
    *,
    name: str,
    source: str = "",
    level: float = 0.05,
    sequence_parallel: bool = False,
    fused_attention: bool = True,
) -> MemoryModel:
    """
    Memory model from measured runs of one stack and precision: rows with ``measured_bytes``.

    Parameters
    ----------
    path
        CSV file of configurations with the peak bytes of a device of the row's ``stage``, or of any stage.
    name, source
        What the model says of itself.
    sequence_parallel, fused_attention
        Whether the stack's tensor ranks use sequence parallelism, and whether its attention scores stay out of memory.
    level
        Chance that a run exceeds prediction and margin.

    Raises
    ------
    DataError
        If a row is wrong or lacks its measurement, or the rows are of several devices, stacks or precisions.

    Examples
    --------
    >>> import taut
    >>> taut.fit_memory_samples("nowhere.csv", name="own")
    Traceback (most recent call last):
    taut.errors.DataError: nowhere.csv: No such file or directory, expected a CSV file of configurations
    """
    rows = [row for _, row in _measured_rows(path, "measured_bytes", "bytes")]
    kinds = {(row.gpu.lower(), row.precision, row.stack) for row in rows}
    if len(kinds) != 1:
        raise DataError(f"{path}: {len(kinds)} kinds of (gpu, precision, stack), expected one")
    about = {"name": name, "stack": rows[0].stack, "source": source}
    kind = {"sequence_parallel": sequence_parallel, "fused_attention": fused_attention}
    return memory_model(rows, {**about, **kind}, level=level)


def fit_network_samples(
    path: str | Path, *, name: str, source: str = "", level: float = 0.05, seed: int = 0
) -> MemoryNetwork:
    """Memory network from measured runs of one stack and precision, of even partitions, as ``fit_memory_samples``."""
    from taut.solver.calibration.memory_network import fit_network

    placed = [*_measured_rows(path, "measured_bytes", "bytes")]
    rows = [row for _, row in placed]
    for where, row in placed:
        if row.stage is not None or row.layers % row.pp:
            raise DataError(f"{where}: expected no stage and layers that pp divides, as a network sees neither")
    features = network_features(rows, ALL_FEATURES)
    about = {"name": name, "stack": rows[0].stack, "source": source, "precision": rows[0].precision}
    measured = np.array([row.measured_bytes for row in rows], dtype=float)
    return fit_network(features, measured, about=about, names=ALL_FEATURES, level=level, seed=seed)


def memory_model(
    rows: list[ConfigurationRow], about: dict[str, Any], *, level: float = 0.05, others: Sequence[Floats] | None = None
) -> MemoryModel:
    """Memory model from runs of one device, stack and precision; its margin is pooled with other stacks' excesses."""
    if others is None:
        known = [one for one in catalog_memory_models().values() if one.stack != about.get("stack")]
        others = [np.array(one.excesses_gib) for one in known if one.excesses_gib]
    device = find_device(rows[0].gpu)
    precision = rows[0].precision or usual_precision([device])
    said = {**about, "device": device.name, "precision": precision, "ranges": ranges_of(rows)}
    return fit_memory(
        stage_terms(rows, MemoryModel.model_validate(said)),
        np.array([row.measured_bytes for row in rows], dtype=float),
        said,
        level=level,
        others=others,
    )


def stage_terms(rows: list[ConfigurationRow], model: MemoryModel) -> Floats:
    """Memory terms of the stages that may be fullest, (rows, 2, terms + 1), the last GiB of groups of ranks."""
    columns, precision = columns_of(rows, sequence_parallel=model.sequence_parallel), model.precision
    rates = rates_of(find_device(model.device), precision, None, layer_factors=(), **model.kept)
    named = np.array([-1 if row.stage is None else row.stage for row in rows])
    stages = [np.where(named < 0, stage, named) for stage in edge_stages(columns)]
    each = model.held_parameter_bytes
    found = np.stack([memory_terms(columns, stage, rates, each, model=model) for stage in stages], axis=1)
    unsummed = np.stack([unsummed_bytes(columns, stage, each) for stage in stages], axis=1)
    found[..., GRADIENTS] += np.maximum(unsummed - found[..., LOGITS], 0)
    held = np.broadcast_to(GIB * groups(columns)[:, None, None], (*found.shape[:2], 1))
    return np.concatenate([found, held], axis=2)


def ranges_of(rows: list[ConfigurationRow]) -> dict[str, tuple[float, float]]:
    """Least and most of what a memory model should not be asked beyond."""
    values = {name: [float(getattr(row, name)) for row in rows] for name in RANGED}
    return {name: (min(found), max(found)) for name, found in values.items()}


def _not_fitted(row: ConfigurationRow) -> str:
    """Why a row with experts, copies, or a share on the host is fitted by nothing; empty for others."""
    stated = ((name, usual, getattr(row, name)) for name, usual in APART.items() if usual)
    return next((f"{name} is {value:g}, expected {usual} to fit by" for name, usual, value in stated if value), "")
