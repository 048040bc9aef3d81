"""
What PyTorch's operators take on one GPU, beside the operator models of ``taut``.

Run ``python -m benchmarks.torch_operators --measure`` on a machine with a GPU: it times matrix products of Llama's and
GPT's layers (forward, input and weight gradient), of experts in one kernel (``grouped_mm``), and causal
attention forward and backward by PyTorch's own choice of kernel, by cuDNN and by FlashAttention-2, and writes CSV files
to ``benchmarks/measured``. Without ``--measure`` it compares what is there with ``taut.data.analytic.operator_times``
and prints two tables. A figure is the median of five rounds of some 12 ms, in bf16, with inputs that the cache may
hold.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.accuracy import as_table
from benchmarks.device_measurements import FOLDER, measure_or_print, write
from benchmarks.runs import lines_of
from taut.data.analytic.kernel_floors import CoreSizes
from taut.data.analytic.operator_times import ATTENTION_BACKWARD, OperatorModel
from taut.data.catalog.builtin import catalog_operators

ROUNDS, ROUND_S, WARM_UP = 5, 0.012, 2
BACKENDS = {"default": None, "cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION"}


class Product(NamedTuple):
    """Forward product of a layer: ``groups`` times rows x sums with sums x columns; 0 of one without groups."""

    model: str
    tp: int
    groups: int
    rows: int
    columns: int
    sums: int


class Core(NamedTuple):
    """A causal attention core."""

    model: str
    batch: int
    seq: int
    heads: int
    kv_heads: int
    head_dim: int


def products() -> Iterator[Product]:
    """Products of layers at the tensor degrees in use, of heads, squares, and of experts."""
    layers = [
        ("llama3-8b", 8192, 4096, 6144, 28672, (1, 2, 4, 8)),
        ("llama3-70b", 8192, 8192, 10240, 57344, (4, 8)),
        ("gpt3-175b", 2048, 12288, 36864, 49152, (8,)),
        ("gpt-1.3b", 2048, 2048, 6144, 8192, (1,)),
        ("gpt-1.3b", 8192, 2048, 6144, 8192, (1,)),
    ]
    for model, tokens, hidden, qkv, up, degrees in layers:
        down = up // 2 if model.startswith("llama") else up
        for tp in degrees:
            yield Product(model, tp, 0, tokens, qkv // tp, hidden)
            yield Product(model, tp, 0, tokens, hidden, hidden // tp)
            yield Product(model, tp, 0, tokens, up // tp, hidden)
            yield Product(model, tp, 0, tokens, hidden, down // tp)
    yield Product("head", 1, 0, 8192, 128256, 4096)
    yield Product("head", 1, 0, 8192, 50304, 2048)
    yield Product("square", 1, 0, 8192, 8192, 8192)
    yield Product("square", 1, 0, 4096, 4096, 4096)
    experts = [(8, 2048, 28672, 4096), (8, 2048, 4096, 14336), (8, 1024, 7168, 4096), (32, 256, 4096, 7168)]
    experts += [(32, 256, 7168, 2048), (32, 1024, 4096, 7168), (128, 512, 1536, 2048), (128, 512, 2048, 768)]
    experts += [(16, 512, 1536, 2048), (16, 4096, 1536, 2048), (64, 768, 2816, 2048), (64, 768, 2048, 1408)]
    for groups, rows, columns, sums in experts:
        yield Product("experts", 1, groups, rows, columns, sums)


def cores() -> Iterator[Core]:
    """16,384 tokens of FlashAttention-2's widths (arXiv 2307.08691) at six lengths, and cores of models."""
    for heads, width in ((16, 128), (32, 64)):
        for seq in (512, 1024, 2048, 4096, 8192, 16384):
            yield Core("2048 wide", 16384 // seq, seq, heads, heads, width)
    for batch, heads, kv_heads, width in ((1, 32, 8, 128), (4, 32, 8, 128), (1, 32, 8, 64), (1, 4, 1, 128)):
        yield Core("llama", batch, 8192, heads, kv_heads, width)
    for batch, heads, kv_heads, width in ((4, 4, 1, 128), (1, 8, 2, 128), (1, 8, 1, 128)):
        yield Core("llama", batch, 8192, heads, kv_heads, width)
    for batch, seq, heads, width in ((1, 2048, 12, 128), (4, 2048, 12, 128), (4, 2048, 32, 80), (1, 8192, 32, 80)):
        yield Core("gpt", batch, seq, heads, heads, width)
    yield Core("gpt", 1, 2048, 16, 16, 128)


def seconds_of(work: Callable[[], object], device: Any) -> float:
    """Median seconds of one call."""
    from taut.profiling.layers import time_passes

    def calls(count: int) -> Iterator[None]:
        for _ in range(count):
            work()
        yield

    once = time_passes(lambda: calls(1), device, warm_up=WARM_UP, repeats=1).seconds[0]
    count = max(1, min(400, int(ROUND_S / once)))
    rounds = [time_passes(lambda: calls(count), device, warm_up=0, repeats=1).seconds[0] for _ in range(ROUNDS)]
    return statistics.median(rounds) / count


def measured_product(product: Product, device: Any) -> dict[str, Any]:
    """Seconds of a product forward and of both of its gradients, with the transposes that a linear layer has."""
    import torch
    from torch.nn.functional import grouped_mm, linear

    groups = max(1, product.groups)
    dtype = {"dtype": torch.bfloat16, "device": device}
    x = torch.randn(groups * product.rows, product.sums, **dtype)
    dy = torch.randn(groups * product.rows, product.columns, **dtype)
    work: list[Callable[[], object]]
    if product.groups:
        w = torch.randn(groups, product.columns, product.sums, **dtype)
        ends = product.rows * torch.arange(1, groups + 1, device=device, dtype=torch.int32)
        work = [lambda: grouped_mm(x, w.mT, offs=ends), lambda: grouped_mm(dy, w, offs=ends)]
        work.append(lambda: grouped_mm(dy.t(), x, offs=ends))
    else:
        w = torch.randn(product.columns, product.sums, **dtype)
        work = [lambda: linear(x, w), lambda: dy @ w, lambda: dy.t() @ x]
    names = ("forward_s", "input_grad_s", "weight_grad_s")
    return product._asdict() | {name: seconds_of(one, device) for name, one in zip(names, work, strict=True)}


def measured_core(core: Core, backend: str, device: Any) -> dict[str, Any]:
    """Seconds of an attention core forward and backward by one of ``BACKENDS``."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    sizes = [core.heads, core.kv_heads, core.kv_heads]
    mixed: Any = torch.randn(core.batch, core.seq, sum(sizes), core.head_dim, dtype=torch.bfloat16, device=device)
    query, key, value = leaves = [part.requires_grad_() for part in mixed.transpose(1, 2).split(sizes, dim=1)]
    grouped = core.heads != core.kv_heads
    chosen = BACKENDS[backend]
    with nullcontext() if chosen is None else sdpa_kernel(getattr(SDPBackend, chosen)):

        def forward() -> torch.Tensor:
            return scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)

        out = forward()
        gradient = torch.randn_like(out)
        with torch.no_grad():
            ahead = seconds_of(forward, device)
        back = seconds_of(lambda: torch.autograd.grad(out, leaves, gradient, retain_graph=True), device)
    return {"backend": backend} | core._asdict() | {"forward_s": ahead, "backward_s": back}


def measure(folder: Path, name: str) -> None:
    """Measure everything and write it after each kind."""
    import torch

    from taut.data.catalog.devices import catalog_devices
    from taut.profiling.layers import device_name

    device = torch.device(name)
    gpu = device_name(device, catalog_devices())
    write(folder / f"products-{gpu}.csv", [measured_product(product, device) for product in products()])
    found = [measured_core(core, backend, device) for core in cores() for backend in BACKENDS]
    write(folder / f"attention-{gpu}.csv", found)


def product_errors(folder: Path = FOLDER, gpu: str = "h100-80gb") -> dict[tuple[str, str], list[float]]:
    """Relative errors of the modelled products, by ``single`` or ``grouped`` and pass."""
    model, errors = catalog_operators()[gpu], defaultdict(list)
    for line in lines_of(folder / f"products-{gpu}.csv"):
        groups, m, n, k = (int(line[name]) for name in ("groups", "rows", "columns", "sums"))
        passes = {"forward": (m, n, k), "input_grad": (m, k, n), "weight_grad": (n, k, m)}
        for phase, sizes in passes.items():
            modelled = float(model.gemm_seconds(*sizes, max(1, groups)))
            kind = "grouped" if groups else "single"
            errors[kind, phase].append(modelled / float(line[f"{phase}_s"]) - 1)
    return dict(errors)


class CoreErrors(NamedTuple):
    """Backward over forward as measured, and the relative errors of the modelled forward, backward and both."""

    ratio: float
    forward: float
    backward: float
    both: float


def core_errors(folder: Path = FOLDER, gpu: str = "h100-80gb") -> dict[tuple[str, int], list[CoreErrors]]:
    """Ratios and errors of attention cores by backend and tokens."""
    model, errors = catalog_operators()[gpu], defaultdict(list)
    for line in lines_of(folder / f"attention-{gpu}.csv"):
        modelled = _modelled(model, line)
        ahead, back = float(line["forward_s"]), float(line["backward_s"])
        both = (1 + ATTENTION_BACKWARD) * modelled / (ahead + back) - 1
        one = CoreErrors(back / ahead, modelled / ahead - 1, ATTENTION_BACKWARD * modelled / back - 1, both)
        errors[line["backend"], int(line["seq"])].append(one)
    return dict(errors)


def _modelled(model: OperatorModel, line: dict[str, str]) -> float:
    sizes = (int(line[name]) for name in ("batch", "seq", "heads", "kv_heads", "head_dim"))
    return float(model.attention_seconds(CoreSizes(*sizes)))


def tables(folder: Path = FOLDER) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Lines of the two tables: errors of products, and ratios and errors of attention."""
    of_products = [
        {
            "products": kind,
            "pass": phase.replace("_grad", " gradient"),
            "shapes": len(errors),
            "mean error": f"{100 * np.mean(errors):+.1f} %",
            "mean of sizes": f"{100 * np.mean(np.abs(errors)):.1f} %",
            "largest": f"{100 * np.max(np.abs(errors)):.0f} %",
        }
        for (kind, phase), errors in product_errors(folder).items()
    ]
    of_cores = []
    for (backend, seq), found in sorted(core_errors(folder).items(), key=lambda item: item[0]):
        mean = CoreErrors(*np.mean(found, axis=0))
        shares = {name: f"{100 * share:+.0f} %" for name, share in mean._asdict().items() if name != "ratio"}
        of_cores.append({"kernel": backend, "tokens": seq, "backward / forward": f"{mean.ratio:.2f}", **shares})
    return of_products, of_cores


if __name__ == "__main__":
    measure_or_print(__doc__, measure, lambda folder: "\n\n".join(map(as_table, tables(folder))))
