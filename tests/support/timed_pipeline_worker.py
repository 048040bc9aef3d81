"""
One process of a PyTorch pipeline on CPU whose passes take known time, and when each of them ran.

A stage waits instead of computing, so that four processes run at once on any number of cores. A micro-batch carries its
number as its values. Clocks are the system's monotonic one, which all processes share.
"""

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

FORWARD, BACKWARD = 0, 3
"""Kinds of pass, as ``taut.formulations.schedules.recurrence`` numbers them."""
SHAPE = (1, 4)
"""Of a micro-batch."""
Event = tuple[int, int, int, float, float]
"""Kind, chunk, micro-batch, start and end."""


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stage: "Waiting") -> Tensor:
        """Hand the values on after the stage's forward seconds."""
        ctx.stage, ctx.number = stage, -1
        # PyTorch first finds shapes with tensors that hold anything, NaN included.
        if not x.is_meta and math.isfinite(value := float(x.flatten()[0])):
            ctx.number = round(value)
            stage.wait(FORWARD, ctx.number)
        return x + 0.0 * weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        """Hand the gradient back after the stage's backward seconds."""
        ctx.stage.wait(BACKWARD, ctx.number)
        return torch.ones(gradients[0].shape, device=gradients[0].device), torch.ones(1), None


class Waiting(nn.Module):
    """A chunk that waits."""

    def __init__(self, chunk: int, forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.chunk, self.seconds = chunk, {FORWARD: forward_s, BACKWARD: backward_s}
        self.weight = nn.Parameter(torch.ones(1))
        self.events: list[Event] = []

    def forward(self, x: Tensor) -> Tensor:
        """The same values."""
        found: Tensor = _Wait.apply(x, self.weight, self)
        return found

    def wait(self, kind: int, micro_batch: int) -> None:
        """Wait, and note when."""
        began = time.monotonic()
        time.sleep(self.seconds[kind])
        self.events.append((kind, self.chunk, micro_batch, began, time.monotonic()))


def run(rank: int, folder: str, processes: int, micro_batches: int, seconds: list[tuple[float, float]]) -> None:
    """Run every ``*.csv`` of a folder twice, and write the events of the second time as JSON."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=processes)
    found = {path.stem: _events(path, rank, micro_batches, seconds) for path in sorted(Path(folder).glob("*.csv"))}
    Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _events(path: Path, rank: int, micro_batches: int, seconds: list[tuple[float, float]]) -> list[Event]:
    rows = path.read_text(encoding="utf-8").splitlines()
    device = {int(cell.partition("F")[0]): d for d, row in enumerate(rows) for cell in row.split(",") if "F" in cell}
    here = [chunk for chunk in sorted(device) if device[chunk] == rank]
    chunks = [Waiting(chunk, *seconds[chunk]) for chunk in here]
    cpu, count = torch.device("cpu"), len(device)
    stages = [PipelineStage(each, each.chunk, count, cpu) for each in chunks]
    schedule = _PipelineScheduleRuntime(stages, micro_batches, loss_fn=lambda output, _: output.sum())
    schedule._load_csv(os.fspath(path))
    numbers = torch.arange(micro_batches, dtype=torch.float32)[:, None].expand(micro_batches, SHAPE[1])
    inputs = (numbers.contiguous().requires_grad_(),) if 0 in here else ()
    target = torch.zeros(micro_batches, SHAPE[1]) if count - 1 in here else None
    for _ in range(2):
        # The first step sets up connections and shapes.
        for each in chunks:
            each.events.clear()
        dist.barrier()
        schedule.step(*inputs, target=target)
    return sorted((event for each in chunks for event in each.events), key=lambda event: event[3])
