"""
What layers with experts take on one GPU, by tokens an expert, micro-batch and recompute, beside the operator models.

Run ``python -m benchmarks.torch_experts --measure`` on a machine with a GPU. It writes two files to
``benchmarks/measured``.

``grouped-GPU.csv``: one grouped product (PyTorch's ``grouped_mm``, bf16) forward, and the gradients by its input and by
its weights, for the experts that a rank holds, from 16 to 8,192 tokens an expert.

``expert-layers-GPU.csv``: a whole layer (attention, router, permutation, grouped products, sum of the copies), forward
and backward, at micro-batches 1 to 8, without recompute, with the experts recomputed, and with the layer recomputed;
started kernel by kernel, and replayed as one CUDA graph. A rank of ep expert ranks holds 1/ep of the experts and, under
balanced routing, works on as many copies of tokens as it sends; the exchange itself needs several GPUs and is not in
these figures. The router's choice is drawn once and kept, so that all rows are balanced alike.

Without ``--measure`` it prints how far ``taut.data.analytic.operator_times`` is from the grouped products, by tokens an
expert, and what micro-batch, recompute and graphs change in a layer.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.device_measurements import FOLDER, measure_or_print, write

ROUNDS, ROUND_S, WARM_UP = 5, 0.01, 2
TOKENS = 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192
MOST_BYTES = 6e9
"""Bytes of the inputs and outputs of one product at the most."""


class Experts(NamedTuple):
    """A layer as its model's configuration states it; ``shared`` is the width of the expert that takes every token."""

    model: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    chosen: int
    width: int
    shared: int
    seq: int


MODELS = (
    Experts("mixtral-8x7b", 4096, 32, 8, 128, 8, 2, 14336, 0, 4096),
    Experts("mixtral-8x22b", 6144, 48, 8, 128, 8, 2, 16384, 0, 4096),
    Experts("qwen3-30b-a3b", 2048, 32, 4, 128, 128, 8, 768, 0, 4096),
    Experts("qwen3-235b-a22b", 4096, 64, 4, 128, 128, 8, 1536, 0, 4096),
    Experts("gpt-oss-20b", 2880, 64, 8, 64, 32, 4, 2880, 0, 4096),
    Experts("deepseek-v3", 7168, 128, 128, 128, 256, 8, 2048, 2048, 4096),
)
RANKS = {"mixtral-8x7b": (8, 2), "mixtral-8x22b": (8,), "qwen3-30b-a3b": (8, 1), "qwen3-235b-a22b": (16,)}
RANKS |= {"gpt-oss-20b": (8,), "deepseek-v3": (64,)}
RECOMPUTE = "none", "experts", "full"


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Median seconds of one call over five rounds, and the distance of the outer rounds relative to it."""
    import torch

    def once(count: int) -> float:
        event: Any = torch.cuda.Event
        begin, end = event(enable_timing=True), event(enable_timing=True)
        begin.record()
        for _ in range(count):
            work()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3 / count

    for _ in range(WARM_UP):
        rough = once(1)
    rounds = [once(max(1, min(200, int(ROUND_S / rough)))) for _ in range(ROUNDS)]
    middle = statistics.median(rounds)
    return middle, (max(rounds) - min(rounds)) / middle


def products(x: Any, w: Any, dy: Any, ends: Any) -> dict[str, Callable[[], object]]:
    """A grouped product forward, and both of its gradients."""
    from torch.nn.functional import grouped_mm

    return {
        "forward_s": lambda: grouped_mm(x, w.mT, offs=ends),
        "input_grad_s": lambda: grouped_mm(dy, w, offs=ends),
        "weight_grad_s": lambda: grouped_mm(dy.t(), x, offs=ends),
    }


def grouped(model: Experts, ep: int, device: Any) -> Iterator[dict[str, Any]]:
    """Rows of both grouped products of a rank, the first of which makes gate and value together."""
    import torch

    held = model.experts // ep
    dtype = {"dtype": torch.bfloat16, "device": device}
    for name, columns, sums in (("up", 2 * model.width, model.hidden), ("down", model.hidden, model.width)):
        w = torch.randn(held, columns, sums, **dtype)
        for tokens in TOKENS:
            rows = held * tokens
            if 2 * (rows * (columns + sums) + held * columns * sums) > MOST_BYTES:
                continue
            x, dy = torch.randn(rows, sums, **dtype), torch.randn(rows, columns, **dtype)
            ends = tokens * torch.arange(1, held + 1, device=device, dtype=torch.int32)
            sizes = {"model": model.model, "product": name, "groups": held, "tokens": tokens, "columns": columns}
            calls = products(x, w, dy, ends)
            figures = {key: timed(call) for key, call in calls.items()}
            spread = max(spread for _, spread in figures.values())
            yield sizes | {"sums": sums} | {key: s for key, (s, _) in figures.items()} | {"spread": spread}
            del x, dy, calls
        torch.cuda.empty_cache()


def layer(model: Experts, ep: int, micro_batch: int, device: Any) -> tuple[Any, Any]:
    """
    A layer's module and its input.

    Every token is copied to ``chosen`` experts drawn evenly from those that the rank holds.
    """
    import torch
    from torch import nn
    from torch.nn.functional import grouped_mm, linear, rms_norm, scaled_dot_product_attention, silu

    held, tokens = model.experts // ep, micro_batch * model.seq
    heads = [model.heads, model.kv_heads, model.kv_heads]

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()

            def weight(*shape: int) -> nn.Parameter:
                return nn.Parameter(0.02 * torch.randn(*shape, dtype=torch.bfloat16, device=device))

            self.qkv = weight(sum(heads) * model.head_dim, model.hidden)
            self.out = weight(model.hidden, model.heads * model.head_dim)
            self.norms = nn.ParameterList([weight(model.hidden), weight(model.hidden)])
            self.router = weight(model.experts, model.hidden)
            self.up = weight(held, 2 * model.width, model.hidden)
            self.down = weight(held, model.hidden, model.width)
            if model.shared:
                self.shared_up = weight(2 * model.shared, model.hidden)
                self.shared_down = weight(model.hidden, model.shared)
            drawn = torch.arange(tokens * model.chosen, device=device) % held
            self.choice = drawn[torch.randperm(drawn.numel(), device=device)].view(tokens, model.chosen)
            self.seats = (torch.arange(tokens * model.chosen, device=device) % model.experts).view(tokens, -1)
            self.recompute = "none"

        def attention(self, x: Any) -> Any:
            mixed: Any = linear(rms_norm(x, (model.hidden,), self.norms[0]), self.qkv)
            parts = mixed.view(micro_batch, model.seq, sum(heads), model.head_dim).transpose(1, 2).split(heads, dim=1)
            query, key, value = parts
            grouped = heads[0] != heads[1]
            core = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
            return x + linear(core.transpose(1, 2).reshape(tokens, -1), self.out)

        def experts(self, x: Any) -> Any:
            y = rms_norm(x, (model.hidden,), self.norms[1])
            scores = linear(y, self.router).float().softmax(-1).gather(1, self.seats)
            order = self.choice.flatten().argsort(stable=True)
            counts = torch.zeros(held, dtype=torch.int64, device=device)
            counts.scatter_add_(0, self.choice.flatten(), torch.ones_like(order))
            ends = counts.cumsum(0).to(torch.int32)
            source = order // model.chosen
            gate, value = grouped_mm(y[source], self.up.mT, offs=ends).chunk(2, dim=-1)
            made = grouped_mm(silu(gate) * value, self.down.mT, offs=ends)
            made = made * scores.flatten()[order].unsqueeze(1).to(made.dtype)
            total = x.index_add(0, source, made)
            if model.shared:
                gate, value = linear(y, self.shared_up).chunk(2, dim=-1)
                total = total + linear(silu(gate) * value, self.shared_down)
            return total

        def whole(self, x: Any) -> Any:
            return self.experts(self.attention(x))

        def forward(self, x: Any) -> Any:
            from torch.utils.checkpoint import checkpoint

            if self.recompute == "full":
                return checkpoint(self.whole, x, use_reentrant=False, preserve_rng_state=False)
            x = self.attention(x)
            if self.recompute == "experts":
                return checkpoint(self.experts, x, use_reentrant=False, preserve_rng_state=False)
            return self.experts(x)

    x = torch.randn(tokens, model.hidden, dtype=torch.bfloat16, device=device, requires_grad=True)
    return Layer(), x


def layers(model: Experts, ep: int, device: Any) -> Iterator[dict[str, Any]]:
    """Rows of a model's layer on a rank of ``ep``."""
    import torch

    for micro_batch in (1, 2, 4, 8):
        module, x = layer(model, ep, micro_batch, device)
        gradient = torch.randn_like(x)
        weights = list(module.parameters())
        for recompute in RECOMPUTE:
            module.recompute = recompute

            def both(module: Any = module, x: Any = x, gradient: Any = gradient, weights: Any = weights) -> None:
                torch.autograd.grad(module(x), [x, *weights], gradient)

            def ahead(module: Any = module, x: Any = x) -> None:
                with torch.no_grad():
                    module(x)

            row = {"model": model.model, "ep": ep, "seq": model.seq, "micro_batch": micro_batch, "recompute": recompute}
            try:
                torch.cuda.synchronize()
                kept = torch.cuda.memory_allocated()
                out = module(x)
                kept = torch.cuda.memory_allocated() - kept
                del out
                torch.cuda.reset_peak_memory_stats()
                forward, _ = timed(ahead)
                seconds, spread = timed(both)
                peak = torch.cuda.max_memory_allocated()
                figures = {"forward_s": forward, "forward_backward_s": seconds, "spread": spread}
                yield row | figures | {"graph_s": replayed(both), "kept_bytes": kept, "peak_bytes": peak}
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()
        del module, x, gradient, weights
        torch.cuda.empty_cache()


def replayed(work: Callable[[], object]) -> float:
    """Seconds of work replayed as one CUDA graph; 0 where it cannot be captured."""
    import torch

    graph = torch.cuda.CUDAGraph()
    try:
        side: Any = torch.cuda.Stream
        stream = side()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            work()
        seconds, _ = timed(graph.replay)
    except torch.cuda.OutOfMemoryError:
        return 0.0
    except RuntimeError as problem:
        print("not captured:", problem)
        return 0.0
    finally:
        del graph
        torch.cuda.empty_cache()
    return seconds


def measure(folder: Path, name: str) -> None:
    """Measure everything, and write each file again after every model."""
    import torch

    device = torch.device(name)
    gpu = "-".join(torch.cuda.get_device_name(device).lower().split()[1:3]).replace("-80gb", "") + "-80gb"
    single: list[dict[str, Any]] = []
    whole: list[dict[str, Any]] = []
    for model in MODELS:
        for ep in RANKS[model.model]:
            whole += layers(model, ep, device)
            write(folder / f"expert-layers-{gpu}.csv", whole)
            single += grouped(model, ep, device)
            write(folder / f"grouped-{gpu}.csv", single)
            print(model.model, ep, len(single), len(whole), flush=True)


def product_errors(folder: Path = FOLDER, gpu: str = "h100-80gb") -> dict[int, list[tuple[float, float]]]:
    """Measured share of the peak of three products together, and the operator model's error, by tokens an expert."""
    from benchmarks.runs import lines_of
    from taut.data.catalog.builtin import catalog_operators
    from taut.data.catalog.devices import catalog_devices

    operators, peak = catalog_operators()[gpu], catalog_devices()[gpu].peak_flops("bf16") or math.nan
    found = defaultdict(list)
    for line in lines_of(folder / f"grouped-{gpu}.csv"):
        groups, m, n, k = (int(line[name]) for name in ("groups", "tokens", "columns", "sums"))
        measured = sum(float(line[name]) for name in ("forward_s", "input_grad_s", "weight_grad_s"))
        modelled = sum(float(operators.gemm_seconds(*sizes, groups)) for sizes in ((m, n, k), (m, k, n), (n, k, m)))
        found[m].append((6 * groups * m * n * k / measured / peak, modelled / measured - 1))
    return dict(found)


def layer_lines(folder: Path = FOLDER, gpu: str = "h100-80gb") -> list[dict[str, Any]]:
    """A line for each layer and micro-batch: microseconds a sequence, and what recompute and a graph change."""
    from benchmarks.runs import lines_of

    rows = {
        (r["model"], r["ep"], int(r["micro_batch"]), r["recompute"]): r
        for r in lines_of(folder / f"expert-layers-{gpu}.csv")
    }
    lines = []
    for (model, ep, micro_batch, recompute), row in rows.items():
        if recompute != "none":
            continue
        plain, graph = float(row["forward_backward_s"]), float(row["graph_s"])
        line = {
            "model": model,
            "ep": ep,
            "micro-batch": micro_batch,
            "ms a sequence": f"{1e3 * plain / micro_batch:.2f}",
        }
        line["as a graph"] = f"{100 * (graph / plain - 1):+.0f} %" if graph else "-"
        for kind in RECOMPUTE[1:]:
            other = rows.get((model, ep, micro_batch, kind))
            line[f"{kind} again"] = f"{100 * (float(other['forward_backward_s']) / plain - 1):+.0f} %" if other else "-"
        lines.append(line | {"kept GiB": f"{int(row['kept_bytes']) / 2**30:.2f}"})
    return lines


def text(folder: Path = FOLDER) -> str:
    """Both tables."""
    from benchmarks.accuracy import as_table

    products = [
        {
            "tokens an expert": tokens,
            "shapes": len(found),
            "share of the peak": f"{100 * min(s for s, _ in found):.0f} to {100 * max(s for s, _ in found):.0f} %",
            "mean error": f"{100 * statistics.mean(e for _, e in found):+.0f} %",
            "mean of sizes": f"{100 * statistics.mean(abs(e) for _, e in found):.0f} %",
        }
        for tokens, found in sorted(product_errors(folder).items())
    ]
    return as_table(products) + "\n\n" + as_table(layer_lines(folder))


if __name__ == "__main__":
    measure_or_print(__doc__, measure, text)
