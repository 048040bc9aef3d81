"""
What PyTorch's kernels that move bytes take on one GPU, as a share of its peak bandwidth.

Run ``python -m benchmarks.torch_kernels --measure`` on a machine with a GPU: it times norms, activations, sums, copies,
losses and the optimizer, and writes a CSV file to ``benchmarks/measured``. Without ``--measure`` it prints a table. The
bytes of a kernel are the least that it must move: every input read once and every output written once, in bf16 but for
the loss, whose logits are also copied to fp32, and the optimizer, which has fp32 weights, gradients and two states.
A figure is the median of five rounds of some 12 ms, as in ``benchmarks.torch_operators``.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import as_table
from benchmarks.device_measurements import FOLDER, measure_or_print, write
from benchmarks.runs import lines_of
from benchmarks.torch_operators import seconds_of
from taut.data.catalog.devices import catalog_devices

SIZES = ((8192, 4096, 14336), (8192, 8192, 3584), (2048, 12288, 6144), (8192, 2048, 8192), (32768, 4096, 14336))
"""Tokens, hidden size and feed-forward width on one tensor rank."""
LOGITS = ((8192, 128256), (8192, 50304))
ELEMENTS = 2**28
WEIGHTS = ((16, 2**25), (200, 2**21), (12, 2**22))
"""Tensors of an optimizer, and parameters of each."""
ADAM_BYTES, COPY_BYTES = 28, 6
"""Bytes of a parameter: weight, gradient and two states read, three of them written; fp32 read and bf16 written."""


def line_of(kernel: str, phase: str, tokens: int, width: int, moved: int, seconds: float) -> dict[str, Any]:
    """One line of the file."""
    return {"kernel": kernel, "pass": phase, "tokens": tokens, "width": width, "bytes": moved, "seconds": seconds}


def both_passes(
    kernel: str, sizes: tuple[int, int], work: Callable[[], Any], inputs: tuple[Any, ...], moved: tuple[int, int]
) -> Iterator[dict[str, Any]]:
    """Lines of a function forward, and of the gradients of its inputs."""
    import torch

    out = work()
    gradient, device = torch.randn_like(out), out.device
    with torch.no_grad():
        yield line_of(kernel, "forward", *sizes, moved[0], seconds_of(work, device))
    back = seconds_of(lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True), device)
    yield line_of(kernel, "backward", *sizes, moved[1], back)


def of_layers(tokens: int, hidden: int, width: int, device: Any) -> Iterator[dict[str, Any]]:
    """Norms and sums of one hidden size, and activations of one width."""
    import torch
    from torch.nn.functional import gelu, silu

    kind = {"dtype": torch.bfloat16, "device": device}
    x = torch.randn(tokens, hidden, **kind, requires_grad=True)
    size, bytes_of = (tokens, hidden), 2 * tokens * hidden
    norms: dict[str, torch.nn.Module] = {
        "rms_norm": torch.nn.RMSNorm(hidden, **kind),
        "layer_norm": torch.nn.LayerNorm(hidden, **kind),
    }
    for name, norm in norms.items():
        inputs = (x, *norm.parameters())
        yield from both_passes(name, size, partial(norm, x), inputs, (2 * bytes_of, 3 * bytes_of))
    a, b = x.detach(), torch.randn_like(x)
    yield line_of("add", "forward", *size, 3 * bytes_of, seconds_of(lambda: a + b, device))
    parts = torch.randn(tokens, 2 * width, **kind, requires_grad=True)

    def swiglu() -> torch.Tensor:
        gate, up = parts.chunk(2, dim=-1)
        return silu(gate) * up

    bytes_of = 2 * tokens * width
    yield from both_passes("silu_mul", (tokens, width), swiglu, (parts,), (3 * bytes_of, 5 * bytes_of))
    z = torch.randn(tokens, width, **kind, requires_grad=True)
    moved = (2 * bytes_of, 3 * bytes_of)
    yield from both_passes("gelu", (tokens, width), lambda: gelu(z, approximate="tanh"), (z,), moved)


def of_loss(tokens: int, vocab: int, device: Any) -> Iterator[dict[str, Any]]:
    """Cross entropy of logits that are cast to fp32."""
    import torch
    from torch.nn.functional import cross_entropy

    logits = torch.randn(tokens, vocab, dtype=torch.bfloat16, device=device, requires_grad=True)
    targets, moved = torch.randint(vocab, (tokens,), device=device), 8 * tokens * vocab
    yield from both_passes(
        "cross_entropy", (tokens, vocab), lambda: cross_entropy(logits.float(), targets), (logits,), (moved, moved)
    )


def of_copies(elements: int, device: Any) -> Iterator[dict[str, Any]]:
    """Copies, and the sum of a bf16 gradient into fp32."""
    import torch

    total = torch.zeros(elements, device=device)
    part = torch.randn(elements, device=device).to(torch.bfloat16)
    for name, work, each in (
        ("add_fp32_bf16", lambda: total.add_(part), 10),
        ("copy_bf16", part.clone, 4),
        ("copy_fp32", total.clone, 8),
    ):
        yield line_of(name, "forward", elements, 1, each * elements, seconds_of(work, device))


def of_optimizer(tensors: int, size: int, device: Any) -> Iterator[dict[str, Any]]:
    """Fused AdamW on fp32 weights, and the copy of these to bf16."""
    import torch

    weights = [torch.nn.Parameter(torch.randn(size, device=device)) for _ in range(tensors)]
    copies = [weight.detach().to(torch.bfloat16) for weight in weights]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    adam = torch.optim.AdamW(weights, lr=1e-6, fused=True)

    def copy() -> None:
        with torch.no_grad():
            for mine, its in zip(copies, weights, strict=True):
                mine.copy_(its)

    for name, work, each in (("adamw_fused", adam.step, ADAM_BYTES), ("weights_copy", copy, COPY_BYTES)):
        yield line_of(name, f"{tensors}x{size}", tensors * size, 1, each * tensors * size, seconds_of(work, device))


def measure(folder: Path, name: str) -> None:
    """Measure everything and write it."""
    import torch

    from taut.profiling.layers import device_name

    device = torch.device(name)
    found = [line for sizes in SIZES for line in of_layers(*sizes, device)]
    found += [line for sizes in LOGITS for line in of_loss(*sizes, device)]
    found += list(of_copies(ELEMENTS, device))
    found += [line for sizes in WEIGHTS for line in of_optimizer(*sizes, device)]
    write(folder / f"kernels-{device_name(device, catalog_devices())}.csv", found)


def shares(folder: Path = FOLDER, gpu: str = "h100-80gb") -> dict[tuple[str, str], list[float]]:
    """Bandwidth over the device's peak, by kernel and pass; the optimizer's tensors count as one pass."""
    peak, found = catalog_devices()[gpu].memory_bandwidth, defaultdict(list)
    for line in lines_of(folder / f"kernels-{gpu}.csv"):
        phase = line["pass"] if line["pass"] in ("forward", "backward") else "step"
        found[line["kernel"], phase].append(float(line["bytes"]) / float(line["seconds"]) / peak)
    return dict(found)


def table(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Lines of the table."""
    return [
        {
            "kernel": kernel,
            "pass": phase,
            "sizes": len(found),
            "of the peak": f"{np.median(found):.2f}",
            "from": f"{min(found):.2f}",
            "to": f"{max(found):.2f}",
        }
        for (kernel, phase), found in shares(folder).items()
    ]


if __name__ == "__main__":
    measure_or_print(__doc__, measure, lambda folder: as_table(table(folder)))
