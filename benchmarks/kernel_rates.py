r"""
Best measured rates of kernels by size, of which ``data/catalog/floors.yaml`` holds those of public tables.

Run ``python -m benchmarks.kernel_rates DATA``. DATA is a folder with ``aiconfigurator``'s tables (products, causal
attention and NCCL's collectives in milliseconds), which is no part of the project; without it (``-``) the script
prints the rates that this project measured on one H100 (``benchmarks/measured``). A rate at a size is the best of all
kernels between the sizes before and after it, so that rates interpolated between sizes are above all measured ones.

(1) products by FLOP of the kernel, :math:`2 m n k`; (2) grouped products by the least side, as measured at powers of 2;
(3) attention cores by tokens, of half the square's :math:`2 b a s^2 d` FLOP, and backward of 5/2 of that;
(4) collectives by bytes of the whole message, as NCCL's bus bandwidth.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.device_measurements import FOLDER
from benchmarks.operator_tables import TABLES, columns
from benchmarks.runs import lines_of
from taut.data.arrays import Floats
from taut.data.units import GIGABYTE, MEGABYTE, MILLISECOND, TERA

WORK: Floats = np.logspace(8, 14, 13)
TOKENS: Floats = 2.0 ** np.arange(9.0, 15.0)
MESSAGES: Floats = 2.0 ** np.array([20, 24, 28, 31])
GRADIENTS = 2.5
BUS = {"all_gather": 1.0, "reduce_scatter": 1.0, "all_reduce": 2.0, "alltoall": 1.0}


def best_near(sizes: Floats, rates: Floats, knots: Floats) -> list[float]:
    """The best rate between the knots before and after each, 0 where there is none."""
    around = np.concatenate([[0.0], knots, [np.inf]])
    near = [(sizes > around[i]) & (sizes < around[i + 2]) for i in range(len(knots))]
    return [float(rates[one].max()) if one.any() else 0.0 for one in near]


def measured() -> Iterator[tuple[str, dict[int, float]]]:
    """Best rates of this project's kernels on H100, TFLOP/s by size."""
    grouped, forward, backward = (defaultdict[tuple[int, int], float](float) for _ in range(3))
    for line in lines_of(FOLDER / "grouped-h100-80gb.csv"):
        groups, m, n, k = (int(line[name]) for name in ("groups", "tokens", "columns", "sums"))
        least = min(float(line[name]) for name in ("forward_s", "input_grad_s", "weight_grad_s"))
        key, rate = (0, min(m, n, k)), 2.0 * groups * m * n * k / least / TERA
        grouped[key] = max(grouped[key], rate)
    for line in lines_of(FOLDER / "attention-h100-80gb.csv"):
        batch, seq, heads, channels = (int(line[name]) for name in ("batch", "seq", "heads", "head_dim"))
        flop, key = 2.0 * batch * heads * seq**2 * channels / TERA, (channels, seq)
        forward[key] = max(forward[key], flop / float(line["forward_s"]))
        backward[key] = max(backward[key], GRADIENTS * flop / float(line["backward_s"]))
    for name, found in (("grouped", grouped), ("attention", forward), ("attention_backward", backward)):
        for channels in sorted({key[0] for key in found}):
            sizes = {size: rate for (mine, size), rate in sorted(found.items()) if mine == channels}
            yield f"{name} {channels or ''}".strip(), sizes


def of_tables(folder: Path) -> Iterator[tuple[str, list[float]]]:
    """Best rates of aiconfigurator's tables at the sizes of (1), (3) and (4)."""
    for table, devices in TABLES.items():
        for path in folder.glob(f"{table}__gemm_perf__*.csv"):
            m, n, k, seconds = columns(lines_of(path), ("m", "n", "k", "latency"))
            flop = 2 * m * n * k
            yield f"{devices[0]} product", best_near(flop, flop / seconds / MILLISECOND / TERA, WORK)
        for path in folder.glob(f"{table}__context_attention_perf__*.csv"):
            names = ("batch_size", "isl", "num_heads", "head_dim", "latency")
            batch, seq, heads, channels, seconds = columns(lines_of(path), names)
            rates = 2 * batch * heads * seq**2 * channels / seconds / MILLISECOND / TERA
            for width in np.unique(channels):
                mine = channels == width
                yield f"{devices[0]} attention {width:.0f}", best_near(seq[mine], rates[mine], TOKENS)
        for path in folder.glob(f"{table}__nccl_perf__*.csv"):
            lines = [line for line in lines_of(path) if line["nccl_dtype"] == "half"]
            ranks, numbers, seconds = columns(lines, ("num_gpus", "message_size", "latency"))
            which, most = np.array([line["op_name"] for line in lines]), ranks.max()
            for kind, times in BUS.items():
                mine = (which == kind) & (ranks == most)
                rates = times * (1 - 1 / most) * 2 * numbers[mine] / seconds[mine] / MILLISECOND / GIGABYTE
                yield f"{devices[0]} {kind} of {most:.0f}", best_near(2 * numbers[mine], rates, MESSAGES)


def main() -> None:
    """Print what was measured, and what tables hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    options = parser.parse_args()
    for name, sizes in measured():
        print(name, {size: round(rate) for size, rate in sizes.items()})
    print(f"at {[float(f'{size:.3g}') for size in WORK / 1e9]} GFLOP, {TOKENS} tokens, {MESSAGES / MEGABYTE} MB")
    for name, rates in of_tables(options.data / "aiconfigurator"):
        print(name, [int(np.ceil(rate)) for rate in rates])


if __name__ == "__main__":
    main()
