"""
Public operator tables as rows of terms and seconds: aiconfigurator's, Aceso's and AMP's.

``benchmarks.operators`` fits them and says where they lie. A row has the terms of ``taut.data.analytic.operator_times``
at coefficient 1, and what was measured.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from taut.data.analytic.kernel_floors import CoreSizes
from taut.data.analytic.operator_times import attention_terms, gemm_terms
from taut.data.arrays import Floats
from taut.data.catalog.devices import catalog_devices
from taut.data.device import Precision
from taut.data.units import MICROSECOND, MILLISECOND, TERA

SMALLEST_ROWS, SMALLEST_WIDTH, ROW_MULTIPLE = 512, 256, 128
"""GEMMs of training: tokens of at least one short micro-batch, in whole tiles, and no slivers."""
LARGEST_HEAD = 128
TABLES = {
    "a100_sxm": ("a100-80gb", "a100-40gb"),
    "h100_sxm": ("h100-80gb", "gh200-96gb", "h100-96gb", "h800-80gb"),
    "h200_sxm": ("h200-141gb",),
    "b200_sxm": ("b200-180gb",),
    "gb200": ("gb200-186gb",),
    "b300_sxm": ("b300-270gb",),
    "gb300": ("gb300-279gb",),
    "l40s": ("l40s-48gb",),
    "rtx_pro_6000_server": ("rtx-pro-6000",),
}
"""Devices that each of aiconfigurator's tables is for; it was measured on the first."""
RECIPES: dict[str, tuple[Precision, ...]] = {"fp8_block": ("fp8-blockwise", "mxfp8"), "nvfp4": ("nvfp4",)}
"""Precisions that each format of aiconfigurator's tables is for; fp8 is carried over, see ``device_rates``."""
ACESO = {"350M": 1024, "1_3B": 2048, "2_6B": 2560, "6_7B": 4096, "13B": 5120, "scale-layer": 512}
"""Hidden sizes of Aceso's models."""
ACESO_HEADS = {"350M": 16, "1_3B": 32, "2_6B": 32, "6_7B": 32, "13B": 40, "scale-layer": 8}
ACESO_SEQ = 2048
CORE = ("score", "softmax", "dropout", "context")


class Rows(NamedTuple):
    """Measured operators: terms at coefficient 1, seconds, FLOP, and the shape that is held out together."""

    terms: Floats
    seconds: Floats
    flop: Floats
    shapes: NDArray[Any]


def lines_of(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file whose comment lines begin with '#'."""
    text = path.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in text if not line.startswith("#")))


def columns(lines: list[dict[str, str]], names: Sequence[str]) -> list[Floats]:
    """Columns of numbers."""
    return [np.array([float(line[name]) for line in lines]) for name in names]


def rates_of(device: str) -> tuple[float, float]:
    """Half-precision peak rate and memory bandwidth of a catalog device."""
    known = catalog_devices()[device]
    return (known.peak_flops("bf16") or known.peak_flops("fp16") or np.nan), known.memory_bandwidth


def gemms(folder: Path, table: str) -> Rows:
    """GEMMs of one of aiconfigurator's tables that training would meet."""
    (path,) = folder.glob(f"{table}__gemm_perf__*.csv")
    return _products(lines_of(path), *rates_of(TABLES[table][0]))


def _products(lines: list[dict[str, str]], peak: float, memory_bandwidth: float) -> Rows:
    m, n, k, milliseconds = columns(lines, ("m", "n", "k", "latency"))
    kept = (m >= SMALLEST_ROWS) & (m % ROW_MULTIPLE == 0) & (n >= SMALLEST_WIDTH) & (k >= SMALLEST_WIDTH)
    m, n, k = m[kept], n[kept], k[kept]
    terms = gemm_terms(m, n, k, peak, memory_bandwidth)
    return Rows(terms, milliseconds[kept] * MILLISECOND, 2 * m * n * k, _labels(n, k))


def recipes(folder: Path, table: str, device: str) -> Iterator[tuple[str, Precision, Rows]]:
    """Products in narrower formats for which a device states a rate: format of the table, precision, rows."""
    measured, stated = catalog_devices()[TABLES[table][0]], catalog_devices()[device].peak_tflops
    for path in folder.glob(f"{table}__gemm_recipes_perf__*.csv"):
        lines = lines_of(path)
        for named, precisions in RECIPES.items():
            of_format = [line for line in lines if line["gemm_dtype"] == named]
            for precision in precisions if of_format else ():
                if precision in stated:
                    rates = stated[precision] * TERA, measured.memory_bandwidth
                    yield named, precision, _products(of_format, *rates)


def attentions(folder: Path, table: str) -> Rows:
    """Causal attention of one of aiconfigurator's tables, with heads of at most 128 channels."""
    (path,) = folder.glob(f"{table}__context_attention_perf__*.csv")
    names = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "latency")
    lines = [line for line in lines_of(path) if int(line["head_dim"]) <= LARGEST_HEAD]
    batch, seq, heads, kv_heads, head_dim, milliseconds = columns(lines, names)
    terms = attention_terms(CoreSizes(batch, seq, heads, kv_heads, head_dim), *rates_of(TABLES[table][0]))
    return Rows(terms, milliseconds * MILLISECOND, 4 * batch * heads * seq**2 * head_dim, _labels(heads, seq))


def aceso(folder: Path) -> tuple[Rows, Rows]:
    """
    GEMMs and unfused attention of GPT layers on V100, from Aceso's operator profiles.

    The profiles split the first matrix of a block by columns and the second by rows, and one direction of each
    includes an all-reduce; only the other is taken. The query-key-value operator also splits its output and is left
    out. A backward pass is the sum of its two products.
    """
    products, cores = [], []
    for path in sorted(folder.glob("gpt_*_algo0.csv")):
        found = re.fullmatch(r"gpt_(.+)_mbs(\d+)_tp(\d+)_algo0\.csv", path.name)
        if found:
            operators = {line["op_name"]: line for line in lines_of(path)}
            size, batch, tp = found[1], int(found[2]), int(found[3])
            products += _acesoproducts(operators, size, batch, tp)
            cores.append(_aceso_core(operators, size, batch, tp))
    return _rows(products), _rows(cores)


def _acesoproducts(operators: dict[str, dict[str, str]], size: str, batch: int, tp: int) -> list[tuple[Any, ...]]:
    hidden, m, rates = ACESO[size], batch * ACESO_SEQ, rates_of("v100-32gb")
    shapes = {
        "enc-attention-dense": (hidden, hidden // tp),
        "enc-MLP-GEMM-1": (4 * hidden // tp, hidden),
        "enc-MLP-GEMM-2": (hidden, 4 * hidden // tp),
    }
    rows: list[tuple[Any, ...]] = []
    for name, (n, k) in shapes.items():
        by_columns = name == "enc-MLP-GEMM-1"
        if tp == 1 or by_columns:
            seconds = float(operators[name]["forward-compute"]) * MICROSECOND
            rows.append((gemm_terms(m, n, k, *rates), seconds, 2 * m * n * k, f"{size} {tp}"))
        if tp == 1 or not by_columns:
            seconds = float(operators[name]["backward-compute"]) * MICROSECOND
            both = gemm_terms(m, k, n, *rates) + gemm_terms(n, k, m, *rates)
            rows.append((both, seconds, 4 * m * n * k, f"{size} {tp}"))
    return rows


def _aceso_core(operators: dict[str, dict[str, str]], size: str, batch: int, tp: int) -> tuple[Any, ...]:
    heads, head_dim = ACESO_HEADS[size] / tp, ACESO[size] // ACESO_HEADS[size]
    terms = attention_terms(CoreSizes(batch, ACESO_SEQ, heads, heads, head_dim), *rates_of("v100-32gb"))
    seconds = sum(float(operators[f"enc-attention-{part}"]["forward-compute"]) for part in CORE) * MICROSECOND
    return terms, seconds, 4 * batch * heads * ACESO_SEQ**2 * head_dim, f"{size} {tp}"


def amp_heads(path: Path, machine: str) -> Rows:
    """AMP's head layer of GPT-2 on 1, 2 and 4 devices: 1,024 tokens, 1,024 wide, the vocabulary padded and split."""
    rows = []
    for tp in (1, 2, 4):
        seconds = [
            float(line["seconds"])
            for line in lines_of(path)
            if line["file"] == f"gpt2_{machine}_{tp}" and line["layer"] == "28"
        ]
        n = -(-50257 // (128 * tp)) * 128
        rows.append((gemm_terms(1024, n, 1024, *rates_of("t4-16gb")), seconds[0], 2 * 1024 * n * 1024, f"tp {tp}"))
    return _rows(rows)


def _rows(rows: list[tuple[Any, ...]]) -> Rows:
    terms, seconds, flop, shapes = zip(*rows, strict=True)
    return Rows(np.stack(terms), np.array(seconds), np.array(flop, dtype=np.float64), np.array(shapes))


def _labels(first: Floats, second: Floats) -> NDArray[Any]:
    return np.array([f"{a:.0f} {b:.0f}" for a, b in zip(first, second, strict=True)])
