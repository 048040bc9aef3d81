"""Plans to launch: small ones of every kind, with placements of one's own."""

import copy
import json
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import taut
from taut.data.arrays import Ints
from taut.exports.job import Job
from taut.planning.solve import plan_one_degree

MODEL = taut.ModelSpec.parse(
    {"name": "small", "layers": 13, "hidden": 256, "heads": 8, "ffn_hidden": 1024, "seq": 128, "vocab": 1024}, "small"
)
BATCH = 16
ROUTED_BATCH = 1152
"""A batch that all degrees up to 12 and their products on 64 GPUs divide."""
ROOT = Path(__file__).parents[2]


def small_cluster(nodes: int = 2, gpus: int = 4, types: int = 1) -> taut.ClusterSpec:
    """Nodes of some GPUs, in turn of each type."""
    devices = [
        {
            "name": f"gpu-{kind}",
            "memory_gib": 16,
            "peak_tflops": {"bf16": 100 / (1 + kind)},
            "memory_bandwidth_gbytes": 1000,
        }
        for kind in range(types)
    ]
    groups = [
        {"count": 1, "device": devices[node % types], "gpus_per_node": gpus, "intra_bandwidth_gbps": 2400}
        for node in range(nodes)
    ]
    return taut.ClusterSpec.parse({"name": "small", "nodes": groups, "network": {"bandwidth_gbps": 100}}, "small")


def model_with_experts(experts: int) -> taut.ModelSpec:
    """Layers that one to twelve tensor ranks can share, with some experts each."""
    routed = {"num_experts": experts, "experts_per_token": 2, "expert_ffn_hidden": 576}
    shape = {"layers": 12, "hidden": 576, "heads": 24, "ffn_hidden": 1152, "seq": 576, "vocab": 1024}
    return taut.ModelSpec.parse({"name": "routed", **shape, "experts": routed}, "routed")


@cache
def _document(fix: tuple[tuple[str, Any], ...], stack: str, types: int) -> dict[str, Any]:
    return _planned(MODEL, small_cluster(types=types), dict(fix), stack)


def _planned(model: taut.ModelSpec, cluster: taut.ClusterSpec, fix: dict[str, Any], stack: str) -> dict[str, Any]:
    request = taut.PlanRequest(
        model, cluster, global_batch=BATCH, fix=fix, stack=stack, schedules="all", latency_model="step",
        work_limit=4, memory_model={"precision": "bf16"},
    )  # fmt: skip
    return plan_one_degree(request).document


def launched(*, stack: str = "any", types: int = 1, hosts: tuple[str, ...] = (), **fix: Any) -> Job:
    """The plan of fixed values on two nodes of four GPUs."""
    return Job(taut.Plan(copy.deepcopy(_document(tuple(sorted(fix.items())), stack, types))), hosts)


def launched_on(cluster: taut.ClusterSpec, model: taut.ModelSpec, **fix: Any) -> Job:
    """The plan of fixed values of any model on any cluster."""
    return Job(taut.Plan(_planned(model, cluster, fix, "any")))


def shuffled(job: Job, seed: int) -> Job:
    """The same with its devices drawn at random."""
    return placed(job, np.random.default_rng(seed).permutation(job.devices))


def in_order(job: Job) -> Job:
    """The same with process r on device r."""
    return placed(job, np.arange(len(job.devices)))


def placed(job: Job, devices: Ints) -> Job:
    document = copy.deepcopy(job.plan.document)
    shape = np.array(document["placement"]["devices"]).shape
    document["placement"]["devices"] = devices.reshape(shape).tolist()
    return Job(taut.Plan(document), job.hosts)


def divided(job: Job, layers: tuple[int, ...]) -> Job:
    """The same with other layers of its chunks."""
    document, ends = copy.deepcopy(job.plan.document), np.cumsum((0, *layers)).tolist()
    document["strategy"]["stages"] = [list(each) for each in pairwise(ends)]
    return Job(taut.Plan(document), job.hosts)


def asked(package: str, cases: list[dict[str, Any]], worker: str = "launcher_worker") -> list[dict[str, Any]]:
    """What a package, or by ``checkout_worker`` a checkout, said of every case."""
    given = json.dumps(cases)
    command = [sys.executable, "-m", f"tests.support.{worker}", package]
    done = subprocess.run(command, cwd=ROOT, input=given, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def groups_of_rank(groups: dict[str, Ints], rank: int) -> dict[str, list[int]]:
    """The group of every name that a process is in."""
    return {name: rows[(rows == rank).any(axis=1)][0].tolist() for name, rows in groups.items()}
