"""One process of a PyTorch pipeline on CPU: a small transformer by given schedules, and the same unpipelined."""

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleZBVZeroBubble, _PipelineScheduleRuntime
from torch.distributed.pipelining.stage import _PipelineStageBase

LAYERS, HIDDEN, HEADS, VOCABULARY, LENGTH = 9, 16, 2, 32, 6
STEPS = 10


class Block(nn.Module):
    """Causal attention and a feed-forward network, each after a norm and with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)])
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.wide, self.narrow = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        """Map hidden states (batch, length, hidden) to the same shape."""
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(-2))
        widened: Tensor = self.narrow(nn.functional.gelu(self.wide(self.norms[1](x))))
        return x + widened


def layers() -> list[nn.Module]:
    """The same transformer in every process: embedding, blocks, head."""
    torch.manual_seed(0)
    blocks = [Block() for _ in range(LAYERS)]
    return [nn.Embedding(VOCABULARY, HIDDEN), *blocks, nn.Linear(HIDDEN, VOCABULARY)]


def pieces(chunks: int) -> list[nn.Module]:
    """Chunks of equally many blocks, the first with the embedding, the last with the head."""
    each = LAYERS // chunks
    return divided([(each * c, each * (c + 1)) for c in range(chunks)])


def divided(stages: list[tuple[int, int]]) -> list[nn.Module]:
    """Chunks of the blocks from a first one to before an end, the first with the embedding, the last with the head."""
    embedding, *blocks, head = layers()
    parts = [blocks[first:end] for first, end in stages]
    parts[0].insert(0, embedding)
    parts[-1].append(head)
    return [nn.Sequential(*part).double() for part in parts]


def loss_of(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross entropy of the next token."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def batch(micro_batches: int) -> tuple[Tensor, Tensor]:
    """Two sequences for each micro-batch, and what follows each token."""
    tokens = torch.randint(VOCABULARY, (2 * micro_batches, LENGTH + 1), generator=torch.Generator().manual_seed(1))
    return tokens[:, :-1], tokens[:, 1:]


def run(rank: int, folder: str, processes: int, micro_batches: int) -> None:
    """Run every ``*.csv`` of a folder as a schedule, write what was found as JSON, and PyTorch's own ZB-V beside it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=processes)
    found = {path.stem: _compare(path, rank, micro_batches) for path in sorted(Path(folder).glob("*.csv"))}
    Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    if rank == 0:
        _write_own(Path(folder, "own.txt"), processes, micro_batches)
    dist.barrier()
    dist.destroy_process_group()


def _compare(path: Path, rank: int, micro_batches: int) -> dict[str, float]:
    """Largest difference of a gradient on this rank, its parameters, and both losses if the last chunk is here."""
    rows = path.read_text(encoding="utf-8").splitlines()
    device = {int(cell.partition("F")[0]): d for d, row in enumerate(rows) for cell in row.split(",") if "F" in cell}
    tokens, target = batch(micro_batches)
    reference, model = pieces(len(device)), pieces(len(device))
    whole = loss_of(nn.Sequential(*reference)(tokens), target)
    whole.backward()
    here = [c for c in sorted(device) if device[c] == rank]
    stages = [PipelineStage(model[c], c, len(device), torch.device("cpu")) for c in here]
    schedule = _PipelineScheduleRuntime(stages, micro_batches, loss_fn=loss_of)
    schedule._load_csv(os.fspath(path))
    losses: list[Tensor] = []
    inputs = (tokens,) if 0 in here else ()
    last = len(device) - 1 in here
    schedule.step(*inputs, target=target if last else None, losses=losses if last else None)
    pairs = [pair for c in here for pair in zip(model[c].parameters(), reference[c].parameters(), strict=True)]
    errors = [float((_gradient(ours) - _gradient(theirs)).abs().max()) for ours, theirs in pairs]
    found = {"parameters": float(len(errors)), "error": max(errors)}
    if last:
        found |= {"loss": float(torch.stack(losses).detach().mean()), "reference": float(whole.detach())}
    return found


def train(device: int, folder: str, ranks: list[int], stages: list[tuple[int, int]], micro_batches: int) -> None:
    """Train for ten steps on what an export says: this device's rank, its chunks, and the order of the passes."""
    torch.set_num_threads(1)
    rank, cpu, path = ranks[device], torch.device("cpu"), Path(folder, "schedule.csv")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=len(ranks))
    rows = path.read_text(encoding="utf-8").splitlines()
    here = sorted({int(cell.partition("F")[0]) for cell in rows[rank].split(",") if "F" in cell})
    model = divided(stages)
    schedule = _PipelineScheduleRuntime(
        [PipelineStage(model[c], c, len(stages), cpu) for c in here], micro_batches, loss_fn=loss_of
    )
    schedule._load_csv(os.fspath(path))
    optimizer = torch.optim.SGD([weight for c in here for weight in model[c].parameters()], lr=0.1)
    found, last = [], len(stages) - 1 in here
    for _ in range(STEPS):
        losses: list[Tensor] = []
        tokens, target = batch(micro_batches)
        optimizer.zero_grad()
        schedule.step(
            *((tokens,) if 0 in here else ()), target=target if last else None, losses=losses if last else None
        )
        optimizer.step()
        found += [float(torch.stack(losses).detach().mean())] if last else []
    if last:
        Path(folder, "losses.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def trained(micro_batches: int) -> list[float]:
    """Losses of the same ten steps in one process, without a pipeline."""
    model, found = divided([(0, LAYERS)])[0], []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        tokens, target = batch(micro_batches)
        optimizer.zero_grad()
        loss = loss_of(model(tokens), target)
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


def _write_own(path: Path, processes: int, micro_batches: int) -> None:
    """ZB-V as PyTorch orders it, in PyTorch's CSV."""
    chunks = 2 * processes
    cpu = torch.device("cpu")
    stages: list[_PipelineStageBase] = [PipelineStage(nn.Identity(), c, chunks, cpu) for c in (0, chunks - 1)]
    own = ScheduleZBVZeroBubble(stages, micro_batches, loss_fn=loss_of)
    own._dump_csv(os.fspath(path), format="compute_only")


def _gradient(parameter: nn.Parameter) -> Tensor:
    """Gradient of a parameter, of which some entry is not 0."""
    assert parameter.grad is not None
    assert parameter.grad.any()
    return parameter.grad
