"""PyTorch's kernels that move bytes, which this project measured on one H100."""

import numpy as np
import pytest
import torch

from benchmarks import torch_kernels, torch_operators
from benchmarks.torch_kernels import shares

pytestmark = pytest.mark.usefixtures("one_thread")


def test_no_kernel_is_faster_than_the_peak() -> None:
    """Copies reach nine tenths of the stated bandwidth, and nothing reaches all of it."""
    found = shares()
    assert max(max(each) for each in found.values()) < 1
    assert min(found["copy_bf16", "forward"]) > 0.85


def test_the_optimizer_reaches_what_its_price_assumes_within_a_quarter() -> None:
    """Fused AdamW moves 28 bytes of a parameter at three quarters of the peak bandwidth, that its term is priced at."""
    assert 0.75 < np.median(shares()["adamw_fused", "step"]) < 0.8


def test_kernels_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of kernel is timed on the CPU too, and its line has the bytes that it must move."""
    monkeypatch.setattr(torch_operators, "ROUND_S", 0.0)
    device = torch.device("cpu")
    lines = [
        *torch_kernels.of_layers(8, 16, 4, device),
        *torch_kernels.of_loss(4, 32, device),
        *torch_kernels.of_copies(64, device),
        *torch_kernels.of_optimizer(2, 8, device),
    ]
    assert {line["kernel"] for line in lines} == {kernel for kernel, _ in shares()}
    assert min(line["seconds"] for line in lines) > 0
    assert next(line["bytes"] for line in lines if line["kernel"] == "add") == 3 * 2 * 8 * 16
    assert next(line["bytes"] for line in lines if line["kernel"] == "adamw_fused") == 28 * 16
