r"""
Operators that were measured in training on Blackwell, fitted beside those of inference.

Run ``python -m benchmarks.training_operators DATA [--write FILE]``. DATA is a folder with
``simumax/system/b200_bf16_ceperm.json`` (MooreThreads/SimuMax, Apache-2.0; no part of the project): efficiencies of
Transformer Engine's kernels on one B200, of dense products in the three layouts of a layer's passes, gradients of
weights added up in fp32, of the experts' grouped products in these layouts, gradients added up in fp32 or bf16, and of
causal attention forward and backward. FLOP of attention there are of the full square, backward 5/2 of forward. The
script fits (1) to (3) of ``taut.data.analytic.operator_times`` to them and with ``--write`` puts the coefficients into
the catalog's YAML:

(1) B200 has the coefficients :math:`c^T` of these kernels;
(2) other Blackwell devices, of which no table of training is public, have :math:`\max(0, c + c^T - c^B)`, with c their
    own and :math:`c^B` B200's of inference: what training adds, in units of peak and bandwidth. Their attention
    stays that of inference, whose terms differ from device to device.

Products of training take 1.4 times what inference takes on B200, as they run at the power limit with other layouts and
sums. On H100, whose products this project measured in training (``benchmarks/torch_operators.py``), it is 1.1 to 1.3.
Grouped products take 1.5 times what inference and the addition of H100 say (``benchmarks/grouped_operators.py`` (4)).
"""

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks import grouped_operators
from benchmarks.operator_tables import Rows, rates_of
from benchmarks.operators import _named, _Plain, fit, fit_error, unseen_errors
from taut.data.analytic.kernel_floors import CoreSizes
from taut.data.analytic.operator_times import (
    ATTENTION_BACKWARD,
    ATTENTION_TERMS,
    GEMM_TERMS,
    attention_terms,
    gemm_terms,
)
from taut.data.units import TERA

FILE = "simumax/system/b200_bf16_ceperm.json"
MEASURED, OTHERS = "b200-180gb", ("gb200-186gb", "b300-270gb", "gb300-279gb")
SOURCE = (
    "MooreThreads/SimuMax (Apache-2.0), b200_bf16_ceperm: products, grouped products and attention of Transformer"
    " Engine in training"
)
CARRIED = "products of inference and what training adds to them on b200-180gb"
KINDS = {"gemm": GEMM_TERMS, "attention": ATTENTION_TERMS, "attention_backward": ATTENTION_TERMS}
ADDED = "gemm", "grouped"
"""The kinds of products that training adds to on other devices, (2)."""


def products(efficiencies: Mapping[str, float], peak: float) -> Rows:
    """Dense products of all three passes; gradients of weights that are added up in half precision are left out."""
    found = []
    for key, share in efficiencies.items():
        sizes = _sizes(key)
        if "accumulate=True" in key and "out_dtype=fp32" not in key:
            continue
        m, k, n = (int(sizes[name]) for name in "mkn")
        flop = 2.0 * m * n * k
        terms = gemm_terms(m, n, k, *rates_of(MEASURED))
        found.append((terms, flop / peak / share, flop, "x".join(map(str, sorted((m, k, n))))))
    return _rows(found)


def experts(efficiencies: Mapping[str, float], peak: float) -> Rows:
    """Grouped products of all three passes, of ``ng`` experts with M rows each."""
    found = []
    for key, share in efficiencies.items():
        sizes = _sizes(key)
        groups, m, n, k = (int(sizes[name]) for name in ("ng", "M", "N", "K"))
        passes = {"fwd": (m, n, k), "bwd_grad_act": (m, k, n), "bwd_grad_w": (n, k, m)}
        terms = gemm_terms(*passes[sizes["stage"]], *rates_of(MEASURED), groups)
        flop = 2.0 * groups * m * n * k
        found.append((terms, flop / peak / share, flop, f"{groups}x{m}x{n}x{k}"))
    return _rows(found)


def cores(efficiencies: Mapping[str, float], peak: float, times: float) -> Rows:
    """Causal attention cores of so many times the FLOP of a forward pass, a head as wide as its two products need."""
    found = []
    for key, share in efficiencies.items():
        sizes = _sizes(key)
        names = ("batch", "seq_len", "head_num", "kv_head_num", "qk_head_dim", "v_head_dim")
        batch, seq, heads, kv_heads, wide, value = (int(sizes[name]) for name in names)
        channels = (wide + value) / 2
        flop = 4.0 * batch * heads * seq**2 * channels
        terms = attention_terms(CoreSizes(batch, seq, heads, kv_heads, channels), *rates_of(MEASURED))
        found.append((terms, times * flop / peak / share, flop, f"{heads} {seq} {channels}"))
    return _rows(found)


def _sizes(key: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\w+)", key))


def _rows(found: list[tuple[Any, ...]]) -> Rows:
    terms, seconds, flop, shapes = zip(*found, strict=True)
    return Rows(np.array(terms), np.array(seconds), np.array(flop), np.array(shapes))


def measured(path: Path) -> dict[str, Any]:
    """Entry of the device whose kernels were measured, (1)."""
    table = json.loads(path.read_text(encoding="utf-8"))["accelerator"]["op"]
    each = {
        "gemm": products(*_table(table["matmul"])),
        "attention": cores(*_table(table["sdp_fwd"]), 1.0),
        "attention_backward": cores(*_table(table["sdp_bwd"]), ATTENTION_BACKWARD),
    }
    entry: dict[str, Any] = {name: _named(KINDS[name], fit(rows.terms, rows.seconds)) for name, rows in each.items()}
    entry |= {f"{name}_error": fit_error(rows, unseen_errors(rows)) for name, rows in each.items()}
    grouped = experts(*_table(table["group_matmul"]))
    none = np.zeros(len(grouped.seconds))
    entry["grouped"] = _named(GEMM_TERMS, grouped_operators.fitted(grouped, none))
    entry["grouped_error"] = fit_error(grouped, grouped_operators.unseen_errors(grouped, none))
    return entry | {"source": SOURCE}


def _table(kind: Mapping[str, Any]) -> tuple[Mapping[str, float], float]:
    """Efficiencies by shape, and the rate that they are shares of."""
    return kind["accurate_efficient_factor"], kind["tflops"] * TERA


def carried(own: Mapping[str, Any], inference: Mapping[str, Any], training: Mapping[str, Any]) -> dict[str, Any]:
    """Entry of another device, (2), from coefficients of products."""
    each = {
        kind: {term: max(0.0, own[kind][term] + training[kind][term] - inference[kind][term]) for term in GEMM_TERMS}
        for kind in ADDED
    }
    named = {kind: {term: float(f"{value:.4g}") for term, value in found.items()} for kind, found in each.items()}
    return named | {"assumed": CARRIED}


def main() -> None:
    """Fit, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    entry = measured(options.data / FILE)
    print(yaml.dump(entry, Dumper=_Plain, sort_keys=False, default_flow_style=None, width=120))
    if options.write:
        text = options.write.read_text(encoding="utf-8")
        known = yaml.safe_load(text)
        known[MEASURED]["training"] = entry
        for device in OTHERS:
            known[device]["training"] = carried(known[device], known[MEASURED], entry)
        head = text[: text.index("\n") + 1]
        body = yaml.dump(known, Dumper=_Plain, sort_keys=False, default_flow_style=None, width=120)
        options.write.write_text(head + body, encoding="utf-8")


if __name__ == "__main__":
    main()
