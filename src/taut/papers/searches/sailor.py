"""
Runs of OPT-350M on GH200 that Sailor measured to check planners, with the profiles that it planned with.

``sailor_per_stage_gh200.csv`` has them stage by stage: ``campaign`` (lines of ``time`` are taken), ``nodes`` of four
GPUs, ``gbs``, ``dp``, ``pp``, ``mbs``, ``time`` (milliseconds a step), at tensor degree 4 in fp32, in Aceso's runtime,
nothing recomputed or sharded. A step is that of its slowest stage. Layer costs are those of Sailor's profile of the
model on that device, ``OPT-350__GH-96__profile.json``, with measured activations where ``llm_info.json`` is there. A
node's rings run at the 250.6 GB/s, and a GPU sends at the 22.9 GB/s and a node at the 92.6, that Sailor measured there
(``intra_node_bandwidths.json``, ``network_coeffs_all_homo.json``). The layers, which were cut by operators, are divided
anew.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from taut.data.catalog.devices import device_named
from taut.data.cluster import ClusterSpec
from taut.data.load import load_model
from taut.data.readers.sailor import read_sailor
from taut.data.units import GIGABIT, GIGABYTE, MILLISECOND
from taut.errors import DataError
from taut.papers.searches.published_plans import PublishedPlan, lines_of, places_of

RUNS, PROFILE, INFO = "sailor_per_stage_gh200.csv", "OPT-350__GH-96__profile.json", "llm_info.json"
MODEL, DEVICE, GPUS_PER_NODE, TP, SEQ = "opt-350m", "gh200-96gb", 4, 4, 2048
RING, GPU, NODE = 250.6, 22.9, 92.6
"""GB/s of a node's rings, out of a GPU and out of a node."""


def has_runs(folder: Path) -> bool:
    """Whether a folder has the runs, itself or up to two levels below it."""
    return bool(places_of(folder, RUNS))


def has_profile(folder: Path) -> bool:
    """Whether a folder has the profile that prices the runs, itself or up to two levels below it."""
    return bool(places_of(folder, PROFILE))


def sailor_runs(folder: Path, only: str = "") -> Iterator[PublishedPlan]:
    """
    The runs of a folder, each once, of those whose name has a part that is asked for.

    Raises ``DataError`` if the profile is missing.
    """
    if not has_runs(folder):
        return
    steps: dict[tuple[int, ...], float] = {}
    for line in lines_of(places_of(folder, RUNS)[0]):
        if line["campaign"] == "time":
            run = tuple(int(line[name]) for name in ("nodes", "gbs", "dp", "pp", "mbs"))
            steps[run] = max(steps.get(run, 0.0), float(line["time"]) * MILLISECOND)
    wanted = {
        run: each for run, each in steps.items() if only.lower() in f"sailor {MODEL} on {GPUS_PER_NODE * run[0]} gpus"
    }
    priced = _priced(folder) if wanted else {}
    for (nodes, batch, dp, pp, micro_batch), seconds in sorted(wanted.items()):
        fixed: dict[str, Any] = {"tp": TP, "pp": pp, "dp": dp, "micro_batch": micro_batch}
        yield PublishedPlan(
            who="Sailor",
            model=MODEL,
            seq=SEQ,
            gpus=GPUS_PER_NODE * nodes,
            global_batch=batch,
            precision="fp32",
            measured_s=seconds,
            fixed={**fixed, "recompute": "none", "zero": 0, "schedule": "1f1b"},
            cluster=_cluster(nodes),
            priced=priced,
        )


def _priced(folder: Path) -> dict[str, Any]:
    """Layer costs, with measured activations where the folder has them, and the memory model."""
    profiles, infos = (places_of(folder, name) for name in (PROFILE, INFO))
    if not profiles:
        raise DataError(f"{folder}: no file {PROFILE}, expected it with {RUNS} or up to two levels below the folder")
    info = infos[0] if infos else None
    costs = read_sailor(profiles[0], load_model(MODEL), device_named(DEVICE, "gpu"), info=info)
    return {"profile": costs, "memory_model": {"overhead_gib": 2.0, "margin": 0.05}}


def _cluster(nodes: int) -> ClusterSpec:
    per_gigabit = GIGABYTE / GIGABIT
    node: dict[str, Any] = {
        "count": nodes,
        "device": DEVICE,
        "gpus_per_node": GPUS_PER_NODE,
        "intra_bandwidth_gbps": RING * per_gigabit,
    }
    if nodes == 1:
        return ClusterSpec.parse({"name": "gh200", "nodes": [node]}, "Sailor's nodes")
    node["nic_bandwidth_gbps"] = NODE * per_gigabit
    network = {"bandwidth_gbps": GPU * per_gigabit}
    return ClusterSpec.parse({"name": f"gh200:{nodes}", "nodes": [node], "network": network}, "Sailor's nodes")
