"""Every reader with a right file of its kind, and ``verify`` with documents that hold."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taut.data.analytic.operator_costs import read_attention, read_gemms
from taut.data.calibration import TERMS
from taut.data.catalog.devices import catalog_device
from taut.data.load import load_calibration, load_cluster, load_costs, load_memory_model, load_model
from taut.data.read import read_matrix
from taut.data.readers.galvatron.costs import read_galvatron
from taut.data.readers.mpigraph import cluster_from_mpigraph, read_mpigraph
from taut.data.readers.nccl_tests import cluster_from_nccltests, read_nccltests
from taut.data.readers.nvbandwidth import cluster_from_nvbandwidth, read_nvbandwidth
from taut.data.readers.nvidia_topo import cluster_from_topology, read_topology
from taut.data.readers.qaplib import read_qaplib, read_qaplib_solution
from taut.data.readers.sailor import read_sailor
from taut.data.samples import read_samples
from taut.papers.amp import read_amp_profile
from taut.schedules.found import verify_schedule
from taut.schedules.reading import given_json, read_torch_csv
from tests.data.readers.galvatron.test_costs import MODEL, TIMES
from tests.data.readers.test_huggingface import LLAMA
from tests.data.readers.test_huggingface_layers import DEEPSEEK3
from tests.data.readers.test_mpigraph import CSV, RECV, SEND
from tests.data.readers.test_nccl_tests import TEXT, report
from tests.data.readers.test_nvbandwidth import case, waived
from tests.data.readers.test_nvidia_topo import LEGEND, TABLE
from tests.data.readers.test_sailor import profile
from tests.data.test_memory_network import TINY
from tests.support.pipelines import SPLIT, WHOLE, found
from tests.taut.papers.test_amp_files import SECONDS


@dataclass(frozen=True, slots=True)
class Target:
    """A reader, the ending of its files, and a right one."""

    name: str
    ending: str
    text: str
    read: Callable[[Path], object]


A100 = catalog_device("a100-80gb")
COSTS = """\
# measured at night
# optimizer_s_per_parameter a100: 1e-11
device,kind,tp,micro_batch,seq,recompute,forward_s,input_grad_s,weight_grad_s,activation_bytes,activation_bytes_sp
a100,block,2,4,2048,none,0.001,0.0015,0.001,1000,500
a100,block,2,8,2048,none,0.002,0.003,0.002,2000,1000
a100,embedding,2,4,2048,none,0.0001,0,0.0001,100,
"""
SAMPLES = """\
gpu,n_gpus,hidden,layers,global_batch,tp,pp,dp,micro_batch,schedule,recompute,measured_s,measured_bytes
a100-80gb,16,1024,8,64,2,4,2,2,1f1b,none,1.5,2e10
a100-80gb,8,2048,24,32,8,1,1,1,gpipe,full,2.5,
"""
CLUSTER = """\
name: two-racks
nodes:
  - {count: 4, device: a100-80gb, gpus_per_node: 8, intra_bandwidth_gbps: 2400, intra_latency_us: 2}
  - count: 2
    device: {name: own, memory_gib: 80, peak_tflops: {bf16: 312.0}, memory_bandwidth_gbytes: 2039}
    gpus_per_node: 8
    intra_bandwidth_gbps: 2.4e3
    nic_bandwidth_gbps: 200
network:
  bandwidth_gbps: 200
  latency_us: 5
  racks: [[0, 1], {nodes: 2-5, bandwidth_gbps: 100}]
"""
MATRIX = """\
nodes: [{count: 2, device: a100-80gb, gpus_per_node: 1, intra_bandwidth_gbps: 2400}]
bandwidth_matrix: {unit: GB/s, rows: [[0, 25.5], [24, 0]]}
latency_matrix: {rows_us: [[0, 5], [6.5, 0]]}
"""
EXPERTS = {
    **DEEPSEEK3,
    **{"max_position_embeddings": 4096, "sliding_window": 128, "sliding_window_pattern": 2, "mlp_only_layers": [0]},
}
MODEL_YAML = 'layers: 24\nhidden: 1024\nheads: 16\nseq: 2048\nvocab: 51200\ngated_mlp: true\nsource: "mine"\n'
UNLIKE_YAML = """\
vocab: 1000
layers:
  - {kind: wide, count: 3, hidden: 1024, heads: 16, kv_heads: 4, ffn_hidden: 4096, seq: 256}
  - {kind: narrow, hidden: 512, heads: 8, seq: 1024, attention_window: 64}
"""
MEMORY = """\
precision: bf16
margin: 0.06
overhead_gib: 1.5
coefficients: {weights: 1, activations: 1.2}
ranges: {tp: [1, 8]}
"""
CALIBRATION = (
    "stack: mine\ndevice: a100-80gb\nlaunch_us: 12\ncoefficients:\n"
    + "".join(f"  {term}: 1.25\n" for term in TERMS)
    + "residuals: {'0.1': -0.05, '0.9': 0.1}\n"
)
GEMM = "m,n,k,gemm_dtype,latency\n128,256,512,bf16,0.02\n256,256,512,bf16,0.03\n128,512,512,float16,0.04\n"
ATTENTION = "batch_size,isl,num_heads,num_key_value_heads,head_dim,latency\n1,1024,16,16,64,0.1\n2,1024,16,8,64,0.2\n"
AMP = "file,layer,seconds\n" + "".join(f"gpt2_G4_1,{i},{seconds}\n" for i, seconds in enumerate(SECONDS[:6]))
NVBANDWIDTH = {"nvbandwidth": {"git_version": "v0.8", "testcases": [waived("other"), case()]}}
TORCH = "0F0,0F1,,0I0,0W0,0B1\n,1F0,(1F1;1B0)OVERLAP_F_B,1SEND_F0,1B1,\n"


def _mpigraph(path: Path) -> object:
    return cluster_from_mpigraph(
        read_mpigraph(path), name="m", device=A100, gpus_per_node=8, intra_bandwidth_gbps=2400.0
    )


def _nccl(path: Path) -> object:
    return cluster_from_nccltests(read_nccltests(path), name="n", device=A100)


def _galvatron(path: Path) -> object:
    return read_galvatron(path, MODEL, A100)


def _galvatron_memory(path: Path) -> object:
    times = path.with_name("times.json")
    times.write_text(json.dumps(TIMES), encoding="utf-8")
    return read_galvatron(times, MODEL, A100, memory=path)


def _sailor(path: Path) -> object:
    return read_sailor(path, MODEL, A100)


def _sailor_info(path: Path) -> object:
    measured = path.with_name("profile.json")
    measured.write_text(json.dumps(profile()), encoding="utf-8")
    return read_sailor(measured, MODEL, A100, info=path)


def _layer(parameters: float) -> dict[str, float]:
    return {"params_floats": parameters, "act_mem_bytes": 640, "act_output_floats": 32}


INFO = {
    "tiny": {
        tp: {str(i): _layer(block if 0 < i < 4 else 512) for i in range(5)} for tp, block in (("1", 244), ("2", 134))
    }
}
MEMORY_PROFILE = {
    "1_1_8": {"layernum[1]_bsz8_seq8_rank0_act": 40.0, "layernum[2]_bsz8_seq8_rank0_act": 60.0},
}


def schedule_text(orders: Any = SPLIT) -> str:
    """A schedule document that is written by hand."""
    return json.dumps(found(orders, bound=8.0).document)


def readers() -> list[Target]:
    """Every reader of the package but ``verify``."""
    return [
        Target("model", ".yaml", MODEL_YAML, lambda path: load_model(str(path))),
        Target("unlike-model", ".yaml", UNLIKE_YAML, lambda path: load_model(str(path))),
        Target("hugging-face", ".json", json.dumps(LLAMA, indent=1), lambda path: load_model(str(path))),
        Target("hugging-face-experts", ".json", json.dumps(EXPERTS, indent=1), lambda path: load_model(str(path))),
        Target("cluster", ".yaml", CLUSTER, lambda path: load_cluster(str(path))),
        Target("cluster-matrix", ".yaml", MATRIX, lambda path: load_cluster(str(path))),
        Target("matrix", ".csv", "to,a,b\na,0,25.5\nb,24,0\n", read_matrix),
        Target("costs", ".csv", COSTS, lambda path: load_costs(str(path))),
        Target("samples", ".csv", SAMPLES, read_samples),
        Target("memory-model", ".yaml", MEMORY, lambda path: load_memory_model(str(path))),
        Target("memory-network", ".json", json.dumps(TINY), lambda path: load_memory_model(str(path))),
        Target("calibration", ".yaml", CALIBRATION, lambda path: load_calibration(str(path))),
        Target("gemm", ".csv", GEMM, read_gemms),
        Target("attention", ".csv", ATTENTION, read_attention),
        Target("nccl-text", ".txt", TEXT, _nccl),
        Target("nccl-json", ".json", json.dumps(report(), indent=1), _nccl),
        Target("mpigraph-text", ".txt", SEND + RECV, _mpigraph),
        Target("mpigraph-csv", ".csv", CSV, _mpigraph),
        Target("nvbandwidth", ".json", json.dumps(NVBANDWIDTH), _nvbandwidth),
        Target("topo", ".txt", TABLE + LEGEND, _topo),
        Target("qaplib", ".dat", "3\n0 1 2\n1 0 3\n2 3 0\n\n0 5 2\n5 0 3\n2 3 0\n", read_qaplib),
        Target("qaplib-solution", ".sln", "3 14\n2 1 3\n", read_qaplib_solution),
        Target("amp", ".csv", AMP, read_amp_profile),
        Target("galvatron", ".json", json.dumps(TIMES), _galvatron),
        Target("galvatron-memory", ".json", json.dumps(MEMORY_PROFILE), _galvatron_memory),
        Target("sailor", ".json", json.dumps(profile()), _sailor),
        Target("sailor-info", ".json", json.dumps(INFO), _sailor_info),
        Target("torch-csv", ".csv", TORCH, read_torch_csv),
        Target("schedule", ".json", schedule_text(WHOLE), given_json),
        Target("schedule-verify", ".json", schedule_text(), verify_schedule),
    ]


def _nvbandwidth(path: Path) -> object:
    return cluster_from_nvbandwidth(read_nvbandwidth(path), name="v", device=A100)


def _topo(path: Path) -> object:
    return cluster_from_topology(read_topology(path), name="t", device=A100)
