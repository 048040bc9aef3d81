"""
What public reports of people who train models show, and what taut answers: ``python -m benchmarks.practitioners DATA``.

DATA is a folder with small files after such reports (``networks``, ``launchers``, ``models``); none of them is part of
the project, and without them nothing is tried. A row has the case, what its source says was measured or done, the
verdict on taut before these reports were read, its answer now, and whether this is right. A reader's answer is right if
it has the words or figures of the source, and a refusal if it names what is wrong. A prediction is right if it says
what fits, and is within 8 % of the stated memory and 15 % of the stated speed. *Open* are predictions whose source
leaves out what they need.
"""

import argparse
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple

import taut
from benchmarks.accuracy import as_table
from taut.commands.options import parse_fix
from taut.comparison.compare import current_of, priced_as_is
from taut.comparison.result import Priced
from taut.data.cluster import ClusterSpec
from taut.data.read import read_text
from taut.data.readers.nccl_tests import cluster_from_nccltests, read_nccltests
from taut.data.readers.nvbandwidth import cluster_from_nvbandwidth, read_nvbandwidth
from taut.data.readers.nvidia_topo import cluster_from_topology, read_topology
from taut.data.units import GIB
from taut.errors import DataError, TautError
from taut.launchers.read import launch_of_file, launch_of_text
from taut.launchers.settings import Run
from taut.planning.request import PlanRequest

NETWORKS = (
    (1, "`topo -m`, eight A100 in bridged pairs", "pairs of NV12", "right", "topo178.txt", "8 devices .*NV12"),
    (2, "`topo -m` with rows of cards, four L40S", "4 devices", "right", "topo106.txt", "4 devices"),
    (4, "nvbandwidth as text, six A6000", "up to 26.4 GB/s", "refused wrongly", "nvbw50.txt", "6 devices, 21.8 to 26"),
    (5, "nvbandwidth, tests between devices waived", "no peer access", "other reason", "nvbw15.txt", "peer"),
    (6, "all_reduce, two nodes of eight H100, from 512 MiB", "one card a pair", "wrong", "plain.txt", "488 Gb/s, 5 us"),
    (7, "all_reduce, eight H100, from 128 MiB", "about 3 us", "wrong", "one290.txt", "Gb/s, 3 us"),
    (10, "`[1,0]<stdout>:` before every line", "a whole run", "refused wrongly", "tag.txt", "Gb/s, 5 us"),
    (10, "` 0: ` before every line", "a whole run", "refused wrongly", "srunl.txt", "Gb/s, 5 us"),
    (9, "rank 71 alone", "incomplete", "right", "Rank 71", "71"),
    (13, "one device, bus bandwidth 0", "measures no link", "right", "Rank 0", "rank"),
)  # fmt: skip
"""Number, case, source, verdict before, file (or the ranks that are left of ``plain.txt``), and the right answer."""
MODELS: tuple[tuple[int, str, str, str, float], ...] = (
    (15, "minimax-m2", "228.7", "right", 228.7), (16, "glm-4.5-air", "106.85", "right", 106.85),
    (18, "exaone4-32b", "32.0", "right", 32.0), (18, "smollm3-3b", "3.08", "wrong", 3.08),
    (20, "openpangu-ultra", "718", "wrong", 718), (22, "grok-2", "269.5", "wrong", 269.5),
    (23, "step3", "316", "wrong", 316), (26, "hunyuan-large", "389", "wrong", 389),
    (29, "granite-4.0-micro", "3.4", "refused wrongly", 3.4), (32, "mimo-v2-flash", "309", "by a type", 309),
    (32, "gemma3n-e4b", "6.9", "by a type", 6.9), (32, "ernie-4.5-vl-28b", "two kinds of experts", "by a type", 0),
    (19, "lfm2-moe", "incomplete", "right", 0), (19, "jet-nemotron", "incomplete", "right", 0),
)  # fmt: skip
"""Number, file, billions of parameters that are published, verdict before, and these as a figure, 0 for a refusal."""
FLAGS = {
    "tp": "--tensor-model-parallel-size", "pp": "--pipeline-model-parallel-size", "cp": "--context-parallel-size",
    "chunks": "--num-virtual-stages-per-pipeline-rank", "each": "--num-layers-per-virtual-pipeline-stage",
    "mbs": "--micro-batch-size", "gbs": "--global-batch-size",
}  # fmt: skip
"""Megatron-LM's flags by the names that the cases give them."""
LINES: tuple[tuple[int, str, str, str, int, str, str], ...] = (
    (33, "46 layers, 4 stages", "refused", "accepted", 32, "glm-4.5-air|{pp} 4 {mbs} 1", "4 does not divide 46"),
    (35, "60 layers, 8 stages", "refused", "accepted", 64, "60|{pp} 8 {mbs} 1", "8 does not divide 60"),
    (37, "40 layers, 2 stages, 12 chunks", "refused", "accepted", 16,
     "llama2-13b|{tp} 8 {pp} 2 {chunks} 12 {mbs} 1", "which is 20"),
    (39, "80 layers, 16 stages, 2 a chunk", "refused", "another reason", 128,
     "llama2-70b|{tp} 8 {pp} 16 {each} 2 {mbs} 1", "80 layers over 16"),
    (40, "80 layers, 4 stages, 5 a chunk", "4 chunks", "refused wrongly", 64,
     "llama2-70b|{tp} 8 {pp} 4 {each} 5 {mbs} 1", "vpp=4"),
    (44, "flags with underscores", "tp 8", "refused wrongly", 64,
     "llama2-70b|--tensor_model_parallel_size 8 --micro_batch_size 1", "tp=8"),
    (45, "`model.tensor_model_parallel_size=4`", "tp 4", "refused wrongly", 64,
     "llama2-70b|run.py model.tensor_model_parallel_size=4 train.micro_batch_size=1", "tp=4"),
    (48, "torchtitan, two key-value heads, tp 4", "refused", "accepted, planned", 8,
     "two_kv|--parallelism.tensor_parallel_degree 4 --training.local_batch_size 1", "4 does not divide 2 key"),
    (50, "torchtitan, eight key-value heads, tp 16", "refused", "another reason", 16,
     "llama3-8b|--parallelism.tensor_parallel_degree 16 --training.local_batch_size 1", "16 does not divide 8 key"),
    (57, "batch 100, micro-batch 8", "refused", "right", 8,
     "llama2-7b|{tp} 1 {mbs} 8 {gbs} 100", "100 is no multiple"),
    (58, "tp 8, pp 8, cp 2 on 64 devices", "refused", "right", 64, "llama2-70b|{tp} 8 {pp} 8 {cp} 2 {mbs} 1", "64"),
)  # fmt: skip
"""Number, case, source, verdict before, devices, model and words, and the right answer."""
FIXED: tuple[tuple[int, str, str, str, str, str, int, dict[str, Any], str, str], ...] = (
    (46, "six stages, three micro-batches, interleaved", "refused", "rule not named",
     "llama2-7b", "six", 3, {"pp": 6, "tp": 1, "vpp": 2, "micro_batch": 1, "schedule": "interleaved-1f1b"},
     "megatron-core", "multiple of"),
    (51, "28 heads, tp 8", "refused", "rule not named",
     "28", "dgx-h100", 8, {"tp": 8}, "megatron-core", "8 does not divide 28 heads"),
    (55, "DeepSpeed, four stages and ZeRO-2", "refused", "rule not named",
     "llama2-7b", "dgx-h100", 64, {"pp": 4, "zero": 2}, "deepspeed", "ZeRO-0 and (ZeRO-)?1 in pipelines"),
)  # fmt: skip
"""Number, case, source, verdict before, model, cluster, batch, values, stack, and the right answer."""
V2_LITE: dict[str, Any] = {
    "name": "deepseek-v2-lite", "layers": 27, "hidden": 2048, "ffn_hidden": 10944, "heads": 16, "vocab": 102400,
    "seq": 4096, "gated_mlp": True, "dense_layers": 1,
    "latent": {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
    "experts": {"num_experts": 64, "experts_per_token": 6, "expert_ffn_hidden": 1408, "shared_ffn_hidden": 2816},
}  # fmt: skip
SEQ = 4096
"""Tokens of a sequence of priced runs, unless they state others."""


class Report(NamedTuple):
    """
    A run that a thread reports.

    ``number``, ``case``, ``source`` and ``before`` are those of its ``Row``. A figure that the thread does not state is
    None, and so is ``ran`` where it leaves out what memory needs. ``more`` are further options of the request.
    """

    thread: str
    number: int
    case: str
    source: str
    before: str
    model: str
    cluster: str
    batch: int
    stack: str
    values: str
    ran: bool | None = True
    gib: float | None = None
    tokens_per_s: float | None = None
    more: Mapping[str, Any] = MappingProxyType({})

    def priced(self) -> tuple[Priced, float]:
        """The run as priced, and tokens a second of a GPU."""
        cluster = _cluster(self.cluster)
        options = {"global_batch": self.batch, "seq": SEQ, "stack": self.stack, **self.more}
        request = PlanRequest(_model(self.model), cluster, **options)
        found = Priced.of(priced_as_is(request, current_of(parse_fix([self.values]))))
        return found, self.batch * options["seq"] / found.step_time_s / cluster.num_devices

    def is_right(self, found: Priced, pace: float) -> bool:
        """Whether a price says what fits, memory within 8 % and speed within 15 %."""
        gib = max(found.memory_bytes) / GIB
        return (
            (self.ran is None or found.fits == self.ran)
            and (self.gib is None or abs(gib / self.gib - 1) <= 0.08)
            and (self.tokens_per_s is None or abs(pace / self.tokens_per_s - 1) <= 0.15)
        )


FSDP = "tp=1,pp=1,cp=1,zero=3"
PRIMUS = "AMD-AGI/Primus, docs_deprecated/tech_blogs/projection"
REPORTS = (
    Report("pytorch/torchtitan#1789, batch 8", 60, "DeepSeek-V2-Lite, 8 H100, ep 8, batch 8, selective",
           "out of memory", "right", "lite", "dgx-h100", 64, "torchtitan",
           f"{FSDP},ep=8,micro_batch=8,recompute=selective", ran=False),
    Report("pytorch/torchtitan#1789", 61, "the same, batch 4", "runs, 11,636 tokens/s", "memory",
           "lite", "dgx-h100", 32, "torchtitan",
           f"{FSDP},ep=8,micro_batch=4,recompute=selective", gib=73.32, tokens_per_s=11636),
    # 18 % of a B200's peak at torchtitan's 17.4 GFLOP a token.
    Report("pytorch/torchtitan#1993", 64, "the same, 8 B200, no recompute", "18 % of the peak, 23,300", "wrong +45 %",
           "lite", "dgx-b200", 32, "torchtitan",
           f"{FSDP},ep=1,micro_batch=4,recompute=none", tokens_per_s=0.18 * 2250e12 / 17.4e9),
    Report("pytorch/torchtitan#1690", 65, "Qwen3-32B, 8 H100 of 96 GB, batch 2, full", "runs, 1,874",
           "wrong -41 %, memory", "qwen3-32b", "h96", 16, "torchtitan",
           f"{FSDP},micro_batch=2,recompute=full", gib=81.85, tokens_per_s=1874),
    Report("pytorch/torchtitan#4016", 68, "DeepSeek-V3, 256 GB300, batch 4, selective", "out of memory", "right",
           "deepseek-v3", "gb300-nvl64:4", 1024, "torchtitan",
           f"{FSDP},ep=2,micro_batch=4,recompute=selective", ran=False),
    Report("foundation-model-stack/fms-fsdp#89", 71, "Llama 2 7B, 96 H100, batch 2", "9,600", "right",
           "llama2-7b", "dgx-h100:12", 192, "torchtitan",
           f"{FSDP},micro_batch=2,recompute=none", tokens_per_s=9600),
    Report("NVIDIA/Megatron-LM#2762, ZeRO-1", 75, "Qwen3-30B-A3B, 8 H100, ZeRO-1", "out of memory", "right",
           "qwen3-30b-a3b", "dgx-h100", 64, "megatron-core",
           "tp=1,pp=1,cp=1,zero=1,ep=8,micro_batch=1,recompute=none", ran=False),
    Report("NVIDIA/Megatron-LM#2762, ZeRO-3", 75, "the same, ZeRO-3", "out of memory", "right",
           "qwen3-30b-a3b", "dgx-h100", 64, "megatron-core",
           f"{FSDP},ep=8,micro_batch=1,recompute=none", ran=False),
    Report("NVIDIA/Megatron-LM#606", 76, "Llama 2 7B, 8 A100 of 40 GB, no sharding", "out of memory", "right",
           "llama2-7b", "a40", 64, "megatron-core",
           "tp=1,pp=1,cp=1,zero=0,micro_batch=1,recompute=none", ran=False),
    # Global batches of 64 replicas by the recipes of one node, and Mixtral's by its projected step.
    Report(f"{PRIMUS}, 8B", 85, "Llama 3.1 8B in fp8, 64 MI325X, batch 2", "16,186 (projected 17,351)", "no such card",
           "llama3-8b", "mi325x-node:8", 1024, "megatron-core",
           "tp=1,pp=1,cp=1,zero=1,micro_batch=2,recompute=none",
           tokens_per_s=16186, more={"seq": 8192, "precision": "fp8"}),
    Report(f"{PRIMUS}, 70B in fp8", 86, "Llama 3.1 70B in fp8, 64 MI325X, batch 4, 72 layers again",
           "1,726 (projected 1,818)", "no such card", "llama3-70b", "mi325x-node:8", 256, "megatron-core",
           f"{FSDP},micro_batch=4,recompute=full,recompute_layers=72",
           tokens_per_s=1726, more={"seq": 8192, "precision": "fp8"}),
    Report(f"{PRIMUS}, 70B", 87, "the same in bf16, batch 1", "1,174 (projected 1,066)", "no such card",
           "llama3-70b", "mi325x-node:8", 64, "megatron-core",
           f"{FSDP},micro_batch=1,recompute=full,recompute_layers=72", tokens_per_s=1174, more={"seq": 8192}),
    Report(f"{PRIMUS}, Mixtral", 88, "Mixtral 8x22B, 64 MI355X, batch 2; recompute not said",
           "3,534 (projected 3,260)", "no such card", "mixtral-8x22b", "mi355x-node:8", 256, "megatron-core",
           "tp=1,pp=4,vpp=2,ep=8,cp=1,zero=1,micro_batch=2,recompute=none",
           ran=None, tokens_per_s=3534, more={"seq": 8192}),
    Report("AMD-AGI/Primus#1022", 89, "DeepSeek-V2-Lite, 8 MI325X, ep 8, batch 8, no recompute", "18,143",
           "no such card", "lite", "mi325x-node", 64, "torchtitan",
           f"{FSDP},ep=8,micro_batch=8,recompute=none", tokens_per_s=18143),
)  # fmt: skip
UNSAID = (
    (72, "Qwen3-30B-A3B, 8 to 128 B200: recompute", "open"),
    (73, "Llama 3 70B SFT, 32 H100, fp8: lengths", "right"), (77, "Llama 2 7B, 16 GPUs: length", "open"),
    (78, "Qwen2.5-32B, H200: length, batch", "open"), (79, "Llama 1B, nanotron: another framework", "open"),
    (80, "OLMo 1B: GPUs, batch", "open"), (81, "nanochat: another framework", "open"),
    (82, "Qwen3-30B-A3B SFT: padding", "open"), (83, "300M, GH200: shape", "open"), (84, "Llama 2 70B: GPU", "open"),
)  # fmt: skip
"""Predictions that were not tried again, with what the source leaves out, and the verdict before."""


LONGEST = 140
"""Characters of an answer that are shown."""


class Row(NamedTuple):
    """A case with its answer; verdicts are ``right``, ``wrong`` and ``open``."""

    number: int
    case: str
    source: str
    before: str
    now: str
    verdict: str


def main() -> None:
    """Try every case, and print the table with the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    if not (data / "networks").is_dir():
        print(f"{data}: no folder networks, expected files after public reports; nothing is tried")
        return
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        every = [*networks(data, Path(folder)), *models(data), *launchers(data, Path(folder)), *predictions()]
    rows = sorted(every, key=lambda row: row.number)
    print(as_table([row._asdict() for row in rows]))
    counts = [f"{sum(row.verdict == each for row in rows)} {each}" for each in ("right", "wrong", "open")]
    print(f"{len(rows)} rows: {', '.join(counts)}.")


def _row(number: int, case: str, source: str, before: str, read: Callable[[], object], right: str) -> Row:
    """A row of what is read or refused, right if the expression is found in it."""
    try:
        said = str(read())
    except (TautError, ValueError) as error:
        said = "refused: " + re.sub(r"^\S*/", "", str(error).partition("; the nearest")[0])
    said = said.replace("\n", " ").replace("|", "/")
    found = re.search(right, said)
    if found is not None and len(said) > LONGEST:
        said = f"{said.partition(':')[0]}: ... {said[found.start() :]}"
    return Row(number, case, source, before, said[:LONGEST], "right" if found is not None else "wrong")


def networks(data: Path, folder: Path) -> Iterator[Row]:
    """Outputs of network tests."""
    for number, case, source, before, name, right in NETWORKS:
        yield _row(number, case, source, before, partial(_network, data / "networks", folder, name), right)
    yield _row(14, "two DGX Spark: a device of one's own", "read", "not possible", _spark, "gb10")


def _spark() -> str:
    """The name of a device that is described in place."""
    device = {"name": "gb10", "memory_gib": 119, "peak_tflops": {"bf16": 125}, "memory_bandwidth_gbytes": 273}
    node = {"count": 2, "device": device, "gpus_per_node": 1, "intra_bandwidth_gbps": 200}
    return next(
        iter(ClusterSpec.parse({"name": "c", "nodes": [node], "network": {"bandwidth_gbps": 200}}, "c").devices)
    )


def _network(data: Path, folder: Path, name: str) -> str:
    """What an output says, in a few words."""
    device, path = taut.load_cluster("dgx-h100").node_list[0].device, data / name
    if name.startswith("topo"):
        topology = read_topology(path)
        kinds = sorted({kind for row in topology.kinds for kind in row})
        size = cluster_from_topology(topology, name="t", device=device).num_devices
        return f"{size} devices by {', '.join(kinds)}"
    if name.startswith("nvbw"):
        measured = read_nvbandwidth(path)
        rates = sorted(rate for i, row in enumerate(measured.rows) for j, rate in enumerate(row) if i != j)
        size = cluster_from_nvbandwidth(measured, name="n", device=device).num_devices
        return f"{size} devices, {rates[0]:.1f} to {rates[-1]:.1f} GB/s"
    if name.startswith("Rank"):
        path, rank = folder / "part.txt", int(name.split()[1])
        lines = read_text(data / "plain.txt", "text", 10**6).splitlines()
        ranks = [line for line in lines if re.match(r"#\s+Rank", line)]
        kept = [line for line in lines if line not in ranks]
        kept.insert(2, re.sub(r"Rank\s+\d+", f"Rank {rank:2}", ranks[0]))
        path.write_text("\n".join(kept), encoding="utf-8")
    run = read_nccltests(path, "all_reduce")
    inside = len(run.ranks_per_host) == 1
    rate = None if inside else 3600.0
    cluster = cluster_from_nccltests(run, name="c", device=device, intra_bandwidth_gbps=rate)
    node, network = cluster.nodes[0], cluster.network
    if inside or network is None:
        return f"{node.intra_bandwidth_gbps:.0f} Gb/s, {node.intra_latency_us:g} us"
    return f"{network.bandwidth_gbps:.0f} Gb/s, {network.latency_us:g} us"


def models(data: Path) -> Iterator[Row]:
    """Model files."""
    for number, name, source, before, published in MODELS:
        path = data / "models" / f"{name}.json"
        row = _row(number, name, source, before, partial(_billions, path), "")
        if published and not row.now.startswith("refused"):
            close = abs(float(row.now) / published - 1) <= 0.02
            yield row._replace(verdict="right" if close else "wrong")
        else:
            yield row._replace(verdict="right" if row.now.startswith("refused") and not published else "wrong")


def _billions(path: Path) -> str:
    """Parameters of a model file in billions."""
    return f"{taut.load_model(path).parameters() / 1e9:.2f}"


def launchers(data: Path, folder: Path) -> Iterator[Row]:
    """Words and files of launchers, and values of a plan."""
    for number, case, source, before, devices, words, right in LINES:
        yield _row(number, case, source, before, partial(_line, data, words, devices), right)
    path, run = data / "launchers", Run(taut.load_model("llama3-70b"), 64)
    steps = folder / "steps.json"
    steps.write_text(
        '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}'
    )
    routed = Run(taut.load_model("qwen3-235b-a22b"), 512)
    files: tuple[tuple[int, str, str, str, Path, Run, dict[str, Any], str], ...] = (
        (42, "a script with `TP=${TP:-2}`: 94 layers, 8 stages", "read, refused", "refused wrongly",
         path / "run2280.sh", routed, {}, "8 does not divide 94"),
        (52, "DeepSpeed, all auto, micro-batch beside", "read", "refused wrongly",
         path / "ds2899.json", run, {"micro_batch": 1}, "'zero': 3"),
        (54, "DeepSpeed, micro-batch 2, 4 steps, 8 devices", "batch 64", "not read",
         steps, Run(run.model, 8), {}, "'global_batch': 64"),
        (56, "torchtitan's `.toml` of Llama 4 Scout", "read", "right",
         path / "titan1932.toml", run, {}, "'micro_batch': 16"),
    )  # fmt: skip
    for number, case, source, before, file, of, beside, right in files:
        yield _row(number, case, source, before, partial(_file, file, of, beside), right)
    for number, case, source, before, model, cluster, batch, fix, stack, right in FIXED:
        plan = partial(taut.plan, _model(model), _cluster(cluster), global_batch=batch, fix=fix, stack=stack)
        yield _row(number, case, source, before, plan, right)


def _file(path: Path, run: Run, beside: dict[str, Any]) -> str:
    """What a launcher's file says."""
    return str(launch_of_file(path, run, beside).values)


def _line(data: Path, text: str, devices: int) -> str:
    """What words say of a run of a model."""
    name, _, words = text.partition("|")
    file = data / "models" / f"{name}.json"
    model = taut.load_model(file) if file.exists() else _model(name)
    launch = launch_of_text(words.format(**FLAGS), Run(model, devices))
    stated = {name: value for name, value in launch.values.items() if name in ("tp", "pp", "cp", "vpp")}
    used = stated.get("tp", 1) * stated.get("pp", 1) * stated.get("cp", 1)
    if devices % used:
        raise DataError(f"tp pp cp = {used} on {devices} devices")
    return ", ".join(f"{name}={value}" for name, value in stated.items())


def _model(name: str) -> taut.ModelSpec:
    """A model of the catalog, or one that a report describes."""
    sizes: dict[str, Any] = {"seq": 4096, "vocab": 151936}
    if name == "60":
        return taut.ModelSpec.parse({"name": "m", "layers": 60, "hidden": 4096, "heads": 32, **sizes}, "m")
    if name == "28":
        sizes |= {"layers": 28, "hidden": 3584, "heads": 28, "kv_heads": 4, "ffn_hidden": 18944, "gated_mlp": True}
        return taut.ModelSpec.parse({"name": "m", **sizes}, "m")
    if name == "two_kv":
        sizes |= {"layers": 36, "hidden": 2048, "heads": 16, "kv_heads": 2, "ffn_hidden": 11008, "gated_mlp": True}
        return taut.ModelSpec.parse({"name": "m", **sizes}, "m")
    if name == "lite":
        return taut.ModelSpec.parse(V2_LITE, "m")
    if name == "qwen3-32b":
        sizes |= {"layers": 64, "hidden": 5120, "heads": 64, "kv_heads": 8, "head_dim": 128, "ffn_hidden": 25600}
        return taut.ModelSpec.parse({"name": name, **sizes, "gated_mlp": True, "qk_norm": True}, name)
    return taut.load_model(name)


def _cluster(name: str) -> taut.ClusterSpec:
    """A cluster of the catalog, or one that a report describes."""
    devices = {"h96": ("h100-96gb", 8, 3600), "a40": ("a100-40gb", 8, 4800), "six": ("h100-80gb", 6, 3600)}
    if name not in devices:
        return taut.load_cluster(name)
    device, count, inside = devices[name]
    node = {"device": device, "gpus_per_node": count, "intra_bandwidth_gbps": inside, "nic_bandwidth_gbps": 3200}
    return ClusterSpec.parse({"name": name, "nodes": [node]}, name)


def predictions() -> Iterator[Row]:
    """Memory and speed of runs beside what was measured."""
    for report in REPORTS:
        found, pace = report.priced()
        fits = "fits" if found.fits else "does not fit"
        said = f"{max(found.memory_bytes) / GIB:.1f} GiB, {fits}; {pace:,.0f} tokens/s"
        verdict = "right" if report.is_right(found, pace) else "wrong"
        yield Row(report.number, report.case, report.source, report.before, said, verdict)
    for number, case, before in UNSAID:
        yield Row(number, case, "", before, "not tried again", "open")


if __name__ == "__main__":
    main()
