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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.optimize import nnls

from benchmarks.operator_tables import TABLES, Rows, aceso, amp_heads, attentions, gemms, recipes
from taut.data.analytic.operator_times import ATTENTION_TERMS, GEMM_TERMS
from taut.data.arrays import Floats

FOLDS, ROUNDS, SMALLEST_RESIDUAL = 10, 8, 0.02
LARGE_FLOP = 20e9
"""Work from which on launches and tails of a kernel matter little."""

ASSUMED = {
    "a100-80gb": "attention was measured at head_dim 128 alone, so the work on the scores is part of the products",
    "a100-40gb": "measured on the 80 GB card; attention at head_dim 128 alone",
    "gh200-96gb": "measured on the H100 of 80 GB, whose chip it shares",
    "h100-96gb": "measured on the H100 of 80 GB, whose chip it shares",
    "h800-80gb": "measured on the H100 of 80 GB, whose chip it shares",
}
ASSUMED_RECIPE = {"mxfp8": "measured with scales of 128 inputs, which Blackwell multiplies as mxfp8"}


def recipe_entries(folder: Path, table: str, device: str) -> dict[str, Any]:
    """Entries of products in narrower formats, by precision; none where nothing was measured."""
    entries: dict[str, Any] = {}
    for named, precision, products in recipes(folder, table, device):
        entry: dict[str, Any] = {
            "gemm": _named(GEMM_TERMS, fit(products.terms, products.seconds)),
            "gemm_error": fit_error(products, unseen_errors(products)),
            "source": f"ai-dynamo/aiconfigurator (Apache-2.0), {table}: {named} GEMM of TensorRT-LLM",
        }
        assumed = ASSUMED_RECIPE.get(precision)
        entries[precision] = entry | ({"assumed": assumed} if assumed else {})
    return entries


def fit(terms: Floats, seconds: Floats, target: Floats | float = 1.0) -> Floats:
    """
    Non-negative coefficients of least relative error, reweighted from squares towards absolute values.

    ``target`` is the share of the seconds that the terms have to explain.
    """
    relative = terms / seconds[:, None]
    scale = np.maximum(np.abs(relative).mean(axis=0), np.finfo(np.float64).tiny)
    weights = np.ones(len(seconds))
    for _ in range(ROUNDS):
        coefficients, _ = nnls(relative / scale * weights[:, None], weights * target)
        residuals = np.abs(relative / scale @ coefficients - target)
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
    """Catalog entries, by name, of every device that there is a table for."""
    entries = {}
    for table, devices in TABLES.items():
        if not any((data / "aiconfigurator").glob(f"{table}__gemm_perf__*.csv")):
            continue
        products, cores = gemms(data / "aiconfigurator", table), attentions(data / "aiconfigurator", table)
        for device in devices:
            source = f"ai-dynamo/aiconfigurator (Apache-2.0), {table}: bf16 GEMM and causal attention of TensorRT-LLM"
            entries[device] = fitted_entry(products, cores, source, ASSUMED.get(device, ""))
            narrow = recipe_entries(data / "aiconfigurator", table, device)
            entries[device] |= {"recipes": narrow} if narrow else {}
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
