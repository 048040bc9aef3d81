"""
SimuMax's engine and search (MooreThreads/SimuMax, revision 4dcaae5) on its system of eight A100 with PCIe.

Its search takes a micro-batch of one, all tensor and pipeline degrees, and three kinds of recompute. The rates of
matrix products of its system file become a cost table here (:math:`2 m n k` over its peak and its efficiency). Links,
memory and the 10 GiB that its example keeps free are stated alike. Other kernels are priced by either side's own model,
so its answer is priced here by planning with its degrees and micro-batch.
"""

import csv
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import taut
from benchmarks.peers.frame import Checkout, PeerRow, plan_or_none, run, timed, words_of
from taut.data.analytic.operator_costs import costs_from_operators, read_gemms
from taut.data.catalog.devices import device_named
from taut.data.costs import CostTable
from taut.data.units import MILLISECOND

CASES = (("llama3-8b", 32), ("llama2-7b", 32))
"""Model of both catalogs, and global batch."""
GPUS, SEQ, FREE_GIB = 8, 4096, 10
PRODUCT = re.compile(r"b=1, m=(\d+), k=(\d+), n=(\d+), layout=(?:TN|NN), accumulate=False")
PROGRAM = """
import contextlib, io, json, sys, time
sys.path.insert(0, ".")
from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig
from simumax.core.perf_llm import PerfLLM
name, batch, gpus, seq, free = sys.argv[1], *map(int, sys.argv[2:])
begun = time.process_time()
given = StrategyConfig.read_json_file("configs/strategy/tp1_pp2_dp4_mbs1.json")
given |= {"enable_recompute": False, "recompute_granularity": None, "recompute_layer_num": 0, "seq_len": seq}
engine = PerfLLM()
engine.configure(
    strategy_config=StrategyConfig.init_from_dict(given),
    model_config=ModelConfig.init_from_config_file(f"configs/models/{name}.json"),
    system_config=SystemConfig.init_from_config_file("configs/system/a100_pcie.json"),
)
engine.model_config.padded_vocab_size = True
engine.model_config.make_vocab_size_divisible_by = 128
with contextlib.redirect_stdout(io.StringIO()):
    best = engine.search_best_parallel_strategy(
        world_size=gpus, gmi_error=free, micro_batch_size=1, global_batch_size=batch, all_search_result={},
        tp_search_list=[1, 2, 4, 8], ep_search_list=[1], pp_search_list=[1, 2, 4, 8],
        recompute_search_type=["no_recompute", "full_block", "selective_recompute"], use_reserved_memory=True,
        dump_path=None, verbose=False,
    )
print(json.dumps({"best": {k: str(v) for k, v in best.items()}, "cpu": time.process_time() - begun}))
"""


def rows(given: Checkout) -> list[PeerRow]:
    """A row for each model."""
    return [_row(given, *case) for case in CASES if given.case in case[0]]


def _row(given: Checkout, name: str, batch: int) -> PeerRow:
    words = [name, *map(str, (batch, GPUS, SEQ, FREE_GIB))]
    out, _ = run([given.python, "-c", PROGRAM, *words], within=given.under("simumax").parent)
    answer = json.loads(out.splitlines()[-1])
    found = answer["best"]
    degrees = {key: int(value) for key, value in re.findall(r"\b(tp|pp|dp)(\d+)\b", found["parallelism"])}
    system = json.loads(given.under("configs", "system", "a100_pcie.json").read_text(encoding="utf-8"))
    model = taut.load_model(name, seq=SEQ)
    options: dict[str, Any] = {
        "global_batch": batch,
        "profile": costs(system, model),
        "memory_model": {"margin": FREE_GIB / system["accelerator"]["mem_gbs"], "overhead_gib": 0.0},
        "time_limit": given.seconds,
    }
    node = cluster(system)
    best, ours = timed(lambda: taut.plan(model, node, **options))
    theirs = plan_or_none(model, node, fix={**degrees, "micro_batch": 1}, **options)
    return PeerRow(
        case=f"{name}, batch {batch}",
        theirs=" ".join(f"{key} {value}" for key, value in degrees.items()) + f" mb 1, {found['recompute_status']}",
        predicted_s=float(found["iter_time"].split()[0]),
        their_cpu_s=answer["cpu"],
        priced_s=None if theirs is None else theirs.step_time_s,
        ours=words_of(best),
        best_s=best.step_time_s,
        bound_s=best.lower_bound_s,
        our_cpu_s=ours,
    )


def costs(system: dict[str, Any], model: taut.ModelSpec) -> CostTable:
    """Layer seconds from the products of a system file."""
    products = system["accelerator"]["op"]["matmul"]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "products.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(["m", "n", "k", "latency"])
            for words, share in products["accurate_efficient_factor"].items():
                if found := PRODUCT.match(words):
                    m, k, n = map(int, found.groups())
                    lines.writerow([m, n, k, 2 * m * n * k / (products["tflops"] * 1e12 * share) / MILLISECOND])
        device, degrees = device_named("a100-80gb", "device"), (1, 2, 4, 8)
        return costs_from_operators(read_gemms(path), model, device, tensor_degrees=degrees, micro_batches=degrees)


def cluster(system: dict[str, Any]) -> taut.ClusterSpec:
    """The node of a system file: each card sends over PCIe at the rate of its reduce-scatter over four cards."""
    link = system["networks"]["intra_node_pcie_4x"]
    rate, link = 8 * link["bandwidth"]["gbps"] * link["op"]["reduce_scatter"]["efficient_factor"], link["bandwidth"]
    shape = {"count": 1, "device": "a100-80gb", "gpus_per_node": GPUS, "intra_latency_us": link["latency_us"]}
    nodes = [{**shape, "intra_bandwidth_gbps": rate}]
    return taut.ClusterSpec.parse({"name": "a100-pcie", "nodes": nodes}, "a system of SimuMax")
