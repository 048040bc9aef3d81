"""
Whole training steps on one GPU: measured seconds and peak bytes beside those that ``taut`` predicts.

Run ``python -m benchmarks.single_gpu --measure`` on a machine with a GPU: it trains the models of ``RUNS``, made of the
modules that ``taut profile`` measures, times their layers alone, and writes both to ``benchmarks/measured``. Without
``--measure`` it prices the measured runs and prints the table of the documentation. A step is, for each of the
micro-batches, forward and backward in bf16 with gradients summed in fp32, and at the end fused Adam on fp32 weights.
Three prices stand beside it:

(1) the profile: the layers of the same model, measured alone on the same machine;
(2) the default: what ``taut plan`` takes for the device, calibrated on runs of Megatron-Core, whose kernels are fused;
(3) the operator models without any calibration (stack ``any``).
"""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import taut
from benchmarks.accuracy import as_table
from benchmarks.device_measurements import FOLDER, measure_or_print, write
from benchmarks.runs import lines_of
from taut.data.costs import RECOMPUTE, CostRow, CostTable, Recompute
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.units import GIB
from taut.errors import ExtrapolationWarning

if TYPE_CHECKING:
    import torch

WARM_UP, REPEATS = 2, 5
LAYER_WARM_UP, LAYER_REPEATS = 3, 10
GPT = {"vocab": 50304, "dropout": False}
LLAMA = {"vocab": 128256, "gated_mlp": True, "kv_heads": 8, "ffn_hidden": 8192}
MODELS: dict[str, dict[str, Any]] = {
    "gpt-0.4b": GPT | {"layers": 24, "hidden": 1024, "heads": 16},
    "gpt-1.3b": GPT | {"layers": 24, "hidden": 2048, "heads": 16},
    "gpt-2.7b": GPT | {"layers": 32, "hidden": 2560, "heads": 32},
    "llama-1.5b": LLAMA | {"layers": 16, "hidden": 2048, "heads": 32},
    "llama-3.2b": LLAMA | {"layers": 24, "hidden": 3072, "heads": 24},
}


class Run(NamedTuple):
    """One configuration: a model, its sequences, the micro-batches of a step, and recompute."""

    model: str
    seq: int
    micro_batch: int
    micro_batches: int
    recompute: Recompute

    @property
    def spec(self) -> ModelSpec:
        """The model at this length."""
        return ModelSpec.parse({"name": self.model, **MODELS[self.model], "seq": self.seq}, self.model)


RUNS = (
    Run("gpt-0.4b", 2048, 1, 8, "none"),
    Run("gpt-0.4b", 2048, 8, 4, "none"),
    Run("gpt-1.3b", 2048, 4, 4, "none"),
    Run("gpt-1.3b", 2048, 8, 2, "full"),
    Run("gpt-1.3b", 8192, 1, 4, "none"),
    Run("gpt-2.7b", 2048, 2, 4, "none"),
    Run("llama-1.5b", 2048, 4, 4, "none"),
    Run("llama-1.5b", 8192, 1, 4, "none"),
    Run("llama-1.5b", 8192, 2, 2, "full"),
    Run("llama-3.2b", 8192, 1, 2, "full"),
)


def training(run: Run, device: "torch.device") -> Callable[[], Iterator[None]]:
    """A function that works through one step of a run."""
    import torch
    from torch.utils.checkpoint import checkpoint

    from taut.profiling.slices import Block, Embedding, Head

    torch.set_default_dtype(torch.bfloat16)
    with device:
        model = run.spec
        parts = [Embedding(model, 1), *(Block(layer, 1) for layer in model.blocks), Head(model, 1, run.micro_batch)]
        tokens = torch.randint(model.vocab or 1, (run.micro_batches, run.micro_batch, run.seq))
    torch.set_default_dtype(torch.float32)
    weights: list[Any] = [weight for part in parts for weight in part.parameters()]
    masters: list[Any] = [torch.nn.Parameter(weight.detach().float()) for weight in weights]
    sums = [torch.zeros_like(master) for master in masters]
    # A weight keeps its hook where no collector sees it, so the hook must not keep the weights.
    totals = {id(weight): total for weight, total in zip(weights, sums, strict=True)}

    def add(weight: Any) -> None:
        totals[id(weight)].add_(weight.grad)
        weight.grad = None

    for weight, master, total in zip(weights, masters, sums, strict=True):
        master.grad = total
        weight.register_post_accumulate_grad_hook(add)
    adam = torch.optim.AdamW(masters, lr=1e-6, fused=True)

    def step() -> Iterator[None]:
        for batch in tokens:
            x = batch
            for part in parts:
                again = run.recompute == "full" and isinstance(part, Block)
                x = checkpoint(part, x, use_reentrant=False, preserve_rng_state=False) if again else part(x)
            x.backward()
        adam.step()
        with torch.no_grad():
            torch._foreach_copy_(weights, masters)
            torch._foreach_zero_(sums)
        yield

    return step


def measured_step(run: Run, device: "torch.device") -> dict[str, Any]:
    """Median seconds of a step, their spread, and the most bytes that the allocator gave out."""
    import torch

    from taut.profiling.layers import time_passes

    step = training(run, device)
    time_passes(step, device, warm_up=WARM_UP, repeats=1)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    timing = time_passes(step, device, warm_up=0, repeats=REPEATS)
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    return run._asdict() | {"seconds": timing.seconds[0], "spread": timing.spread, "peak_bytes": peak}


def measured_layers(run: Run, device: "torch.device", gpu: str) -> CostTable:
    """The layers of a run's model alone, as ``taut profile`` measures them."""
    from taut.profiling.layers import Sweep, collect, cost_table

    sweep = Sweep(
        model=run.spec,
        gpu=gpu,
        device=device,
        precision="bf16",
        tensor_degrees=[1],
        micro_batches=[run.micro_batch],
        warm_up=LAYER_WARM_UP,
        repeats=LAYER_REPEATS,
    )
    return cost_table(sweep, collect(sweep, kernels=False, say=lambda line: None))


def measure(folder: Path, name: str, runs: tuple[Run, ...] = RUNS) -> None:
    """Measure runs, step and layers, and write them after each, so that what was measured is kept."""
    import torch

    from taut.data.catalog.devices import catalog_devices
    from taut.profiling.layers import device_name, free

    device = torch.device(name)
    gpu = device_name(device, catalog_devices())
    steps: list[dict[str, Any]] = []
    layers: list[dict[str, Any]] = []
    for run in runs:
        table = measured_layers(run, device, gpu)
        free()
        step = measured_step(run, device)
        free()
        optimizer = table.optimizer_s_per_parameter[gpu]
        steps.append(step | {"device": gpu, "optimizer_s_per_parameter": optimizer})
        layers += [{"model": run.model} | row.model_dump(exclude_none=True) for row in table.rows]
        write(folder / f"steps-{gpu}.csv", steps)
        write(folder / f"layers-{gpu}.csv", layers)
        print(steps[-1], flush=True)


def measured(folder: Path = FOLDER) -> list[tuple[Run, dict[str, str], CostTable]]:
    """Every measured run with its figures and the layers measured beside it."""
    found = []
    for path in sorted(folder.glob("steps-*.csv")):
        layers = lines_of(folder / path.name.replace("steps", "layers"))
        for line in lines_of(path):
            recompute = next(kind for kind in RECOMPUTE if kind == line["recompute"])
            seq, batch, count = (int(line[name]) for name in ("seq", "micro_batch", "micro_batches"))
            run = Run(line["model"], seq, batch, count, recompute)
            table = CostTable(
                name=run.model,
                basis=path.name,
                rows=[_cost_row(cells) for cells in layers if cells["model"] == run.model],
                optimizer_s_per_parameter={line["device"]: float(line["optimizer_s_per_parameter"])},
            )
            found.append((run, line, table))
    return found


def _cost_row(cells: dict[str, str]) -> CostRow:
    return CostRow.parse_cells({name: cell for name, cell in cells.items() if name != "model"}, cells["model"])


def predicted(run: Run, gpu: str, **prices: Any) -> tuple[float, float]:
    """Seconds of a step, and bytes of the one device but for the overhead, which no allocator counts."""
    cluster = {"name": gpu, "nodes": [{"device": gpu, "gpus_per_node": 1, "intra_bandwidth_gbps": 1}]}
    fix = {"tp": 1, "pp": 1, "micro_batch": run.micro_batch, "recompute": run.recompute}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        batch = run.micro_batch * run.micro_batches
        # Plain modules of PyTorch keep what no stack's kernels save, the loss in fp32 among it.
        own = MemoryModel()
        plan = taut.plan(run.spec, cluster, global_batch=batch, fix=fix, memory_model=own, fused_loss="none", **prices)
    return plan.predicted.step_time_s, plan.predicted.memory_bytes[0] - own.overhead_gib * GIB


def rows(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Lines of the table: measured seconds and bytes, and predicted ones with their errors."""
    table = []
    for run, line, layers in measured(folder):
        gpu, seconds = line["device"], float(line["seconds"])
        found, bytes_ = predicted(run, gpu, profile=layers)
        others = {"by default": predicted(run, gpu)[0], "uncalibrated": predicted(run, gpu, stack="any")[0]}
        table.append(
            {
                "model": run.model,
                "tokens": run.seq,
                "micro-batches": f"{run.micro_batches} of {run.micro_batch}",
                "recompute": run.recompute,
                "measured s": f"{seconds:.3f}",
                **{
                    name: f"{price:.3f} ({100 * (price / seconds - 1):+.1f} %)"
                    for name, price in {"by profile": found, **others}.items()
                },
                "measured GiB": f"{int(line['peak_bytes']) / GIB:.1f}",
                "predicted GiB": f"{bytes_ / GIB:.1f}",
            }
        )
    return table


if __name__ == "__main__":
    measure_or_print(__doc__, measure, lambda folder: as_table(rows(folder)))
