"""
Closed-form operator times against public operator tables, device by device.

Run ``python -m benchmarks.operators DATA [--write FILE]``. DATA is a folder with ``aiconfigurator`` (GEMM and causal
attention on nine devices, and where there are any ``*__gemm_recipes_perf__*.csv`` with products in narrower formats,
milliseconds), ``aceso_v100`` (operators of GPT layers, microseconds) and ``amp`` (seconds of GPT-2 layers); none of
them is part of the project. The script fits the coefficients of
``taut.data.analytic.operator_times`` by non-negative least squares on relative error, reweighted towards absolute
errors, prints the errors on shapes that the fit had not seen (ten folds over the shapes, not over the rows), and writes
the coefficients as the catalog's YAML.
"""

import argparse
import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.optimize import nnls

from taut.data.analytic.operator_times import ATTENTION_TERMS, GEMM_TERMS, attention_terms, gemm_terms
from taut.data.arrays import Floats
from taut.data.catalog.devices import catalog_devices
from taut.data.device import Precision
from taut.data.units import MICROSECOND, MILLISECOND, TERA

FOLDS, ROUNDS, SMALLEST_RESIDUAL = 10, 8, 0.02
SMALLEST_ROWS, SMALLEST_WIDTH, ROW_MULTIPLE = 512, 256, 128
"""GEMMs of training: tokens of at least one short micro-batch, in whole tiles, and no slivers."""
LARGEST_HEAD = 128
LARGE_FLOP = 20e9

TABLES = {
    "a100_sxm": ("a100-80gb", "a100-40gb"),
    "h100_sxm": ("h100-80gb", "gh200-96gb"),
    "h200_sxm": ("h200-141gb",),
    "b200_sxm": ("b200-180gb",),
    "gb200": ("gb200-186gb",),
    "b300_sxm": ("b300-270gb",),
    "gb300": ("gb300-279gb",),
    "l40s": ("l40s-48gb",),
    "rtx_pro_6000_server": ("rtx-pro-6000",),
}
"""Devices that each of aiconfigurator's tables is for; it was measured on the first."""
ASSUMED = {
    "a100-80gb": "attention was measured at head_dim 128 alone, so the work on the scores is part of the products",
    "a100-40gb": "measured on the 80 GB card; attention at head_dim 128 alone",
    "gh200-96gb": "measured on the H100 of 80 GB, whose chip it shares",
}
RECIPES: dict[str, tuple[Precision, ...]] = {"fp8_block": ("fp8-blockwise", "mxfp8"), "nvfp4": ("nvfp4",)}
"""Precisions that each format of aiconfigurator's tables is for; fp8 is carried over, see ``device_rates``."""
ASSUMED_RECIPE = {"mxfp8": "measured with scales of 128 inputs, which Blackwell multiplies as mxfp8"}
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


def recipes_of(folder: Path, table: str, device: str) -> dict[str, Any]:
    """Entries of products in narrower formats for which the device states a rate; none where nothing was measured."""
    entries: dict[str, Any] = {}
    measured, stated = catalog_devices()[TABLES[table][0]], catalog_devices()[device].peak_tflops
    for path in folder.glob(f"{table}__gemm_recipes_perf__*.csv"):
        lines = lines_of(path)
        for named, precisions in RECIPES.items():
            of_format = [line for line in lines if line["gemm_dtype"] == named]
            for precision in precisions:
                if precision not in stated or not of_format:
                    continue
                products = _products(of_format, stated[precision] * TERA, measured.memory_bandwidth)
                entry: dict[str, Any] = {
                    "gemm": _named(GEMM_TERMS, fit(products.terms, products.seconds)),
                    "gemm_error": fit_error(products, unseen_errors(products)),
                    "source": f"ai-dynamo/aiconfigurator (Apache-2.0), {table}: {named} GEMM of TensorRT-LLM",
                }
                assumed = ASSUMED_RECIPE.get(precision)
                entries[precision] = entry | ({"assumed": assumed} if assumed else {})
    return entries


def attentions(folder: Path, table: str) -> Rows:
    """Causal attention of one of aiconfigurator's tables, with heads of at most 128 channels."""
    (path,) = folder.glob(f"{table}__context_attention_perf__*.csv")
    names = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "latency")
    lines = [line for line in lines_of(path) if int(line["head_dim"]) <= LARGEST_HEAD]
    batch, seq, heads, kv_heads, head_dim, milliseconds = columns(lines, names)
    terms = attention_terms(batch, seq, heads, kv_heads, head_dim, seq, *rates_of(TABLES[table][0]))
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
            products += _aceso_products(operators, size, batch, tp)
            cores.append(_aceso_core(operators, size, batch, tp))
    return _rows(products), _rows(cores)


def _aceso_products(operators: dict[str, dict[str, str]], size: str, batch: int, tp: int) -> list[tuple[Any, ...]]:
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
    terms = attention_terms(batch, ACESO_SEQ, heads, heads, head_dim, ACESO_SEQ, *rates_of("v100-32gb"))
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


def fit(terms: Floats, seconds: Floats) -> Floats:
    """Non-negative coefficients of least relative error, reweighted from squares towards absolute values."""
    relative = terms / seconds[:, None]
    scale = np.maximum(np.abs(relative).mean(axis=0), np.finfo(np.float64).tiny)
    weights = np.ones(len(seconds))
    for _ in range(ROUNDS):
        coefficients, _ = nnls(relative / scale * weights[:, None], weights)
        residuals = np.abs(relative / scale @ coefficients - 1)
        weights = 1 / np.sqrt(np.maximum(residuals, SMALLEST_RESIDUAL))
    return np.asarray(coefficients / scale)


def unseen_errors(rows: Rows) -> Floats:
    """Relative errors of every row, predicted by a fit that has not seen its shape."""
    shapes = np.random.default_rng(0).permutation(np.unique(rows.shapes))
    errors = np.empty(len(rows.seconds))
    for fold in range(FOLDS):
        unseen = np.isin(rows.shapes, shapes[fold::FOLDS])
        fitted = fit(rows.terms[~unseen], rows.seconds[~unseen])
        errors[unseen] = rows.terms[unseen] @ fitted / rows.seconds[unseen] - 1
    return errors


def fit_error(rows: Rows, errors: Floats) -> dict[str, Any]:
    """Errors as the catalog states them."""
    size, large = np.abs(errors), rows.flop > LARGE_FLOP
    values = {
        "samples": len(size),
        "mean": size.mean(),
        "median": np.median(size),
        "p90": np.quantile(size, 0.9),
        "large_samples": int(large.sum()),
    }
    if large.any():
        values |= {"large_mean": size[large].mean(), "large_median": np.median(size[large])}
    return {name: value if isinstance(value, int) else round(float(value), 4) for name, value in values.items()}


def fitted_entry(products: Rows, cores: Rows, source: str, assumed: str = "") -> dict[str, Any]:
    """Catalog entry of a device whose products and attention cores were both measured."""
    entry: dict[str, Any] = {
        "gemm": _named(GEMM_TERMS, fit(products.terms, products.seconds)),
        "attention": _named(ATTENTION_TERMS, fit(cores.terms, cores.seconds)),
        "gemm_error": fit_error(products, unseen_errors(products)),
        "attention_error": fit_error(cores, unseen_errors(cores)),
        "source": source,
    }
    return entry | ({"assumed": assumed} if assumed else {})


def t4_entry(rows: Rows, v100: dict[str, Any]) -> dict[str, Any]:
    """A T4's entry: the rate of products fitted to three head layers, all else a V100's."""
    others = np.array([v100["gemm"][term] for term in GEMM_TERMS])
    others[0] = 0.0
    rest = rows.terms @ others / rows.seconds
    share = rows.terms[:, 0] / rows.seconds
    coefficients = others.copy()
    coefficients[0] = max(float(share @ (1 - rest) / (share @ share)), 0.0)
    errors = rows.terms @ coefficients / rows.seconds - 1
    return {
        "gemm": _named(GEMM_TERMS, coefficients),
        "attention": v100["attention"],
        "gemm_error": fit_error(rows, errors),
        "source": "AMP (arXiv 2210.07297) known_cost, G4: three head layers of GPT-2, the errors are those of the fit",
        "assumed": "all but the rate of products are a V100's coefficients; AMP's other layers wait for launches",
    }


def _named(terms: Sequence[str], coefficients: Floats) -> dict[str, float]:
    return {term: float(f"{value:.4g}") for term, value in zip(terms, coefficients, strict=True)}


def entries_of(data: Path) -> dict[str, dict[str, Any]]:
    """Catalog entries of every device, by name."""
    entries = {}
    for table, devices in TABLES.items():
        products, cores = gemms(data / "aiconfigurator", table), attentions(data / "aiconfigurator", table)
        for device in devices:
            source = f"ai-dynamo/aiconfigurator (Apache-2.0), {table}: bf16 GEMM and causal attention of TensorRT-LLM"
            entries[device] = fitted_entry(products, cores, source, ASSUMED.get(device, ""))
            recipes = recipes_of(data / "aiconfigurator", table, device)
            entries[device] |= {"recipes": recipes} if recipes else {}
    (folder,) = (data / "aceso_v100").glob("*eurosys")
    source = "Aceso (microsoft/SuperScaler, MIT), V100 32 GB: operators of GPT layers in PyTorch, fp16"
    unfused = "attention is unfused, with softmax and dropout of its own"
    for device in ("v100-32gb", "v100-16gb"):
        entries[device] = fitted_entry(*aceso(folder), source, unfused)
    entries["t4-16gb"] = t4_entry(amp_heads(data / "amp" / "known_cost.csv", "G4"), entries["v100-16gb"])
    return entries


def as_table(entries: dict[str, dict[str, Any]]) -> str:
    """Errors and coefficients as a Markdown table."""
    head = ["device", "operator", "samples", "mean %", "median %", "p90 %", "> 20 GFLOP", "mean %", "coefficients"]
    lines = [head, ["---"] * len(head)]
    for device, entry in entries.items():
        for operator in ("gemm", "attention"):
            error = entry.get(f"{operator}_error")
            figures = ["-"] * 6
            if error:
                shares = [f"{100 * error[name]:.1f}" for name in ("mean", "median", "p90")]
                large = f"{100 * error['large_mean']:.1f}" if "large_mean" in error else "-"
                figures = [str(error["samples"]), *shares, str(error["large_samples"]), large]
            named = ", ".join(f"{term} {value:.3g}" for term, value in entry[operator].items())
            lines.append([device, operator, *figures, named])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Fit, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    entries = entries_of(options.data)
    print(as_table(entries))
    if options.write:
        text = yaml.dump(entries, Dumper=_Plain, sort_keys=False, default_flow_style=None, width=120)
        head = "# Fitted by benchmarks/operators.py to public operator tables; coefficients only, no measurements.\n"
        options.write.write_text(head + text, encoding="utf-8")


class _Plain(yaml.SafeDumper):
    """Writes equal mappings twice: the reader refuses aliases."""

    def ignore_aliases(self, data: object) -> bool:
        """Never an alias."""
        return True


if __name__ == "__main__":
    main()
