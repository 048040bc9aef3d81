"""
Plans that were published with their measured step times, read from public tables (none is part of the project).

Files of other projects lie in a folder that is given, or up to two levels below it. Lines that begin with # are
comments. All plans shard the optimizer over replicas.

- ``nvidia_dgxc_h100.csv`` has NVIDIA's dgxc-benchmarking runs: columns ``model``, ``precision``, ``n_gpus``, ``tp``,
  ``pp``, ``cp``, ``vp``, ``mbs``, ``gbs``, ``layers_override``, ``step_s``; those of dense models in bf16 with all
  layers are taken, and of equal plans the median step. They keep gradients in bf16 and recompute nothing.
- ``mlperf_dense.csv`` has MLPerf training's logs: ``round``, ``submitter``, ``benchmark``, ``gpu``, ``n_gpus``, ``tp``,
  ``pp``, ``cp``, ``vpp``, ``mbs``, ``gbs``, ``seq``, ``precision``, ``step_s_median``; those on DGX H100 of GPT-3 and
  Llama 3.1 405B are taken. They keep gradients in bf16 and recompute nothing.
- ``megatron_bridge_h100_b200_gb200.csv`` has Megatron-Bridge's performance summaries of models with experts, the newest
  first: columns ``system``, ``model``, ``n_gpus``, ``precision``, ``gbs``, ``mbs``, ``seq``, ``tp``, ``pp``, ``cp``,
  ``vp``, ``ep`` and ``tokens_per_s_per_gpu``, where a step takes gbs seq / (n_gpus tokens/s) seconds. Of every system,
  model and number of GPUs the newest row is taken, where the GPUs are whole nodes, or whole domains of 64 GPUs with
  NVLink. Routing is forced to be even, and an expert is on one GPU whole (``etp`` 1). Recompute, which is of single
  modules there, is left open.
- ``megatron_bridge_recipes_config.csv`` has what the recipes of Megatron-Bridge for dense models state that keep
  activations of whole layers on the hosts: columns ``task``, ``model``, ``n_gpus``, ``gpu``, ``precision_tag``,
  ``cpu_offloading``, ``cpu_offloading_num_layers``, ``global_batch_size``, ``micro_batch_size``,
  ``tensor_model_parallel_size``, ``context_parallel_size`` and ``sequence_parallel``. Taken are those for pre-training
  whose GPUs are whole nodes or domains. They shard weights as well, with one stage and no recompute, at 8192 tokens.
  Their n layers of L are the share n / L of all activations, which is what Transformer Engine moves. The table before
  does not say which runs moved activations; the measured step of a recipe is that of the newest run there with its job,
  micro-batch and degrees, and with shards (``fsdp``), if any.
- ``sailor_per_stage_gh200.csv`` has runs of OPT-350M that Sailor measured stage by stage to check planners:
  ``campaign`` (lines of ``time`` are taken), ``nodes`` of four GH200, ``gbs``, ``dp``, ``pp``, ``mbs``, ``time``
  (milliseconds a step, of which the slowest stage's counts), at tensor degree 4 in fp32, nothing recomputed or sharded.
  Layer costs are those of the profile that it planned with, ``OPT-350__GH-96__profile.json``, with measured activations
  where ``llm_info.json`` is there. A node's rings run at the 250.6 GB/s, and a GPU sends at the 22.9 GB/s and a node at
  the 92.6, that Sailor measured there (``intra_node_bandwidths.json``, ``network_coeffs_all_homo.json``). The layers,
  which were cut by operators, are divided anew.
"""

import csv
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from taut.data.catalog.devices import device_named
from taut.data.cluster import ClusterSpec
from taut.data.load import load_model
from taut.data.readers.sailor import read_sailor
from taut.data.units import GIGABIT, GIGABYTE, MILLISECOND
from taut.errors import DataError

NVIDIA, MLPERF, BRIDGE = "nvidia_dgxc_h100.csv", "mlperf_dense.csv", "megatron_bridge_h100_b200_gb200.csv"
RECIPES = "megatron_bridge_recipes_config.csv"
DEPTHS = "", "*/", "*/*/"
"""Folders in which a table may lie."""
_NAMES = yaml.safe_load((files("taut.papers.searches") / "names.yaml").read_text("utf-8"))
DENSE: dict[str, tuple[str, int]] = _NAMES["dense"]
OF_EXPERTS: dict[str, str] = _NAMES["of_experts"]
OF_RECIPES: dict[str, tuple[str, str]] = _NAMES["of_recipes"]
SYSTEMS: dict[str, tuple[str, int]] = _NAMES["systems"]
PRECISIONS: dict[str, str] = _NAMES["precisions"]
TAGS: dict[str, tuple[str, str]] = _NAMES["tags"]
RECIPE_COLUMNS: dict[str, str] = _NAMES["recipe_columns"]
"""Names of models, systems, precisions and columns in the tables; ``names.yaml`` says what each is."""
OF_RUN = ("system", "model", "n_gpus", "precision", "gbs", "mbs", "tp", "pp")
"""Columns in which a measured run is of the job and degrees of a recipe."""
RECIPE_SEQ = 8192
Line = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PublishedPlan:
    """
    A plan, on DGX H100 unless stated: who published it, the job, its measured step if it is known, and what it fixes.

    ``activation_offload`` is the share of the activations that it keeps on the hosts.
    ``priced`` are options of ``taut.plan`` for prices of its own, such as measured layer costs.
    """

    who: str
    model: str
    seq: int
    gpus: int
    global_batch: int
    precision: str
    measured_s: float | None
    fixed: dict[str, Any] = field(default_factory=dict)
    cluster: str | ClusterSpec = ""
    activation_offload: float = 0.0
    priced: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, of a cluster its name."""
        named = self.cluster if isinstance(self.cluster, str) else self.cluster.name
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "priced"}
        return {**plain, "cluster": named}

    def options(self, *, also_without: bool) -> dict[str, Any]:
        """Options of ``taut.plan`` for the share of the activations on the hosts, at choice also for none there."""
        shares = [0.0, self.activation_offload] if also_without else [self.activation_offload]
        return {"activation_offload_fraction": shares} if self.activation_offload else {}

    @property
    def flags(self) -> list[str]:
        """The same for the published share as words of ``taut plan``."""
        share = self.activation_offload
        return ["--activation-offload-fraction", f"{share:.6g}"] if share else []

    @property
    def degrees(self) -> str:
        """What the plan fixes, in words."""
        return _in_words({**self.fixed, "activation_offload": self.activation_offload})


def degrees_of(strategy: object) -> str:
    """Degrees of a strategy in words."""
    names = ("tp", "cp", "pp", "vpp", "ep", "dp", "micro_batch", "zero", "activation_offload")
    return _in_words({name: getattr(strategy, name) for name in names})


def _in_words(chosen: dict[str, Any]) -> str:
    """Degrees in words, those of 1 left out, with the share of the activations on hosts."""
    said = [f"{name} {chosen[name]}" for name in ("tp", "cp", "pp", "vpp", "ep", "dp") if chosen.get(name, 1) > 1]
    share = chosen["activation_offload"]
    away = [f"offload {100 * share:.0f} %"] if share else []
    return " ".join([*said, f"mb {chosen['micro_batch']}", f"ZeRO-{chosen['zero']}", *away])


def lines_of(path: Path) -> list[dict[str, str]]:
    """Lines of a table by column, comments left out."""
    text = path.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in text if not line.startswith("#")))


def places_of(folder: Path, pattern: str) -> list[Path]:
    """Files and folders of a name, ``*`` for any text, those of the folder itself first."""
    return [path for depth in DEPTHS for path in sorted(folder.glob(f"{depth}{pattern}"))]


def published_plans(folder: Path) -> Iterator[PublishedPlan]:
    """The plans of the tables in a folder or up to two levels below it."""
    readers = {NVIDIA: _nvidia, MLPERF: _mlperf, BRIDGE: _with_experts}
    found = {name: lines_of(path) for name, path in _tables(folder).items()}
    for name, reader in readers.items():
        yield from reader(found.get(name, []))
    yield from _recipes(found.get(RECIPES, []), found.get(BRIDGE, []))


def has_plans(folder: Path) -> bool:
    """Whether a folder has one of the tables."""
    return bool(_tables(folder))


def _tables(folder: Path) -> dict[str, Path]:
    found = {name: places_of(folder, name) for name in (NVIDIA, MLPERF, BRIDGE, RECIPES)}
    return {name: paths[0] for name, paths in found.items() if paths}


def _nvidia(lines: list[dict[str, str]]) -> Iterator[PublishedPlan]:
    runs = defaultdict(list)
    for line in lines:
        if line["model"] in DENSE and line["precision"] == "BF16" and line["mbs"] and _whole(line):
            runs[line["model"], int(line["n_gpus"])].append(line)
    for (name, _), rows in sorted(runs.items()):
        seconds = statistics.median(float(row["step_s"]) for row in rows)
        yield _plan("NVIDIA", DENSE[name], rows[0], "bf16", seconds, _dense_degrees(rows[0], rows[0]["vp"]))


def _plan(
    who: str, job: tuple[str, int], line: Line, precision: str, seconds: float | None, fixed: dict[str, Any]
) -> PublishedPlan:
    """A plan of a line with its GPUs and batch, on DGX H100; ``job`` is model and sequence length."""
    return PublishedPlan(who, *job, int(line["n_gpus"]), int(line["gbs"]), precision, seconds, fixed)


def _whole(line: dict[str, str]) -> bool:
    """Whether a run has all layers of its model."""
    layers = line["layers_override"]
    return not layers or int(layers) == len(load_model(DENSE[line["model"]][0]).blocks)


def _mlperf(lines: list[dict[str, str]]) -> Iterator[PublishedPlan]:
    for line in lines:
        if line["benchmark"] in DENSE and line["gpu"] == "NVIDIA H100-SXM5-80GB":
            who, seconds = f"MLPerf {line['round']} {line['submitter']}", float(line["step_s_median"])
            fixed = _dense_degrees(line, line["vpp"])
            yield _plan(who, DENSE[line["benchmark"]], line, line["precision"], seconds, fixed)


def _dense_degrees(line: Line, chunks: str) -> dict[str, Any]:
    """What a plan fixes."""
    found: dict[str, Any] = {name: int(line[name]) for name in ("tp", "pp", "cp")}
    replicas = int(line["n_gpus"]) // (found["tp"] * found["pp"])
    found |= {"micro_batch": int(line["mbs"]), "recompute": "none", "sequence_parallel": found["tp"] > 1}
    return found | _schedule(chunks, found["pp"]) | {"zero": int(replicas > 1)}


def _schedule(chunks: str, pp: int) -> dict[str, Any]:
    vpp = int(chunks) if chunks.isdigit() and pp > 1 else 1
    return {"schedule": "interleaved-1f1b", "vpp": vpp} if vpp > 1 else {"schedule": "1f1b"}


def _cluster(system: str, gpus: str) -> str:
    """Catalog name of so many GPUs of a system; empty where these are no whole nodes or domains."""
    cluster, size = SYSTEMS[system]
    count, rest = divmod(int(gpus), size)
    return "" if rest else f"{cluster}:{count}" if count > 1 else cluster


def _with_experts(lines: list[dict[str, str]]) -> Iterator[PublishedPlan]:
    """The newest plan of every system, model and number of GPUs."""
    newest: dict[tuple[str, str, str], dict[str, str]] = {}
    for line in lines:
        if line["model"] in OF_EXPERTS and line["system"] in SYSTEMS and line["precision"] in PRECISIONS:
            newest.setdefault((line["model"], line["system"], line["n_gpus"]), line)
    for (model, system, gpus), line in sorted(newest.items()):
        if cluster := _cluster(system, gpus):
            job, precision = (OF_EXPERTS[model], int(line["seq"])), PRECISIONS[line["precision"]]
            found = _plan(f"NVIDIA {line['container']}", job, line, precision, _step_of(line), _expert_degrees(line))
            yield replace(found, cluster=cluster)


def _step_of(line: Line) -> float:
    """Seconds of a step of a measured run."""
    tokens = float(line["tokens_per_s_per_gpu"].split()[0].replace(",", ""))
    return int(line["gbs"]) * int(line["seq"]) / (int(line["n_gpus"]) * tokens)


def _expert_degrees(line: Line) -> dict[str, Any]:
    """What a plan fixes."""
    found: dict[str, Any] = {name: int(line[name]) for name in ("tp", "pp", "cp", "ep")}
    found |= {"etp": 1, "micro_batch": int(line["mbs"]), "sequence_parallel": found["tp"] > 1, "zero": 1}
    return found | _schedule(line["vp"], found["pp"])


def _recipes(recipes: list[dict[str, str]], runs: list[dict[str, str]]) -> Iterator[PublishedPlan]:
    """The recipes of a table, with the measured steps of another."""
    for line in recipes:
        taken = line["cpu_offloading"] == "True" and line["task"] == "pretrain" and line["model"] in OF_RECIPES
        if taken and (cluster := _cluster(f"DGX-{line['gpu'].upper()}", line["n_gpus"])):
            yield _recipe(line, cluster, runs)


def _recipe(line: Line, cluster: str, runs: list[dict[str, str]]) -> PublishedPlan:
    model, run_name = OF_RECIPES[line["model"]]
    precision, run_precision = TAGS[line["precision_tag"]]
    # The line in the columns of the table of measured runs.
    cells = {**line, "pp": "1", **{ours: line[theirs] for ours, theirs in RECIPE_COLUMNS.items()}}
    cells |= {"system": f"DGX-{line['gpu'].upper()}", "model": run_name, "precision": run_precision}
    of_run = (run for run in runs if all(run[name] == cells[name] for name in OF_RUN) and run["fsdp"] != "0")
    seconds = None if (ran := next(of_run, None)) is None else _step_of(ran)
    fixed = {**_dense_degrees(cells, "1"), "sequence_parallel": line["sequence_parallel"] == "True", "zero": 3}
    found = _plan("NVIDIA recipe", (model, RECIPE_SEQ), cells, precision, seconds, fixed)
    share = int(line["cpu_offloading_num_layers"]) / len(load_model(model).blocks)
    return replace(found, cluster=cluster, activation_offload=share)


RUNS, PROFILE, INFO = "sailor_per_stage_gh200.csv", "OPT-350__GH-96__profile.json", "llm_info.json"
SAILOR_MODEL, SAILOR_DEVICE, GPUS_PER_NODE, SAILOR_TP, SAILOR_SEQ = "opt-350m", "gh200-96gb", 4, 4, 2048
RING, GPU, NODE = 250.6, 22.9, 92.6
"""GB/s of a node's rings, out of a GPU and out of a node."""


def sailor_runs(folder: Path, only: str = "") -> Iterator[PublishedPlan]:
    """The runs of a folder, each once, whose name has the asked part; a ``DataError`` without their profile."""
    if not (tables := places_of(folder, RUNS)):
        return
    steps: dict[tuple[int, ...], float] = {}
    for line in lines_of(tables[0]):
        if line["campaign"] == "time":
            run = tuple(int(line[name]) for name in ("nodes", "gbs", "dp", "pp", "mbs"))
            steps[run] = max(steps.get(run, 0.0), float(line["time"]) * MILLISECOND)
    wanted = {
        run: each
        for run, each in steps.items()
        if only.lower() in f"sailor {SAILOR_MODEL} on {GPUS_PER_NODE * run[0]} gpus"
    }
    priced = _sailor_prices(folder) if wanted else {}
    for (nodes, batch, dp, pp, micro_batch), seconds in sorted(wanted.items()):
        fixed: dict[str, Any] = {"tp": SAILOR_TP, "pp": pp, "dp": dp, "micro_batch": micro_batch}
        fixed |= {"recompute": "none", "zero": 0, "schedule": "1f1b"}
        cells = {"n_gpus": str(GPUS_PER_NODE * nodes), "gbs": str(batch)}
        found = _plan("Sailor", (SAILOR_MODEL, SAILOR_SEQ), cells, "fp32", seconds, fixed)
        yield replace(found, cluster=_sailor_cluster(nodes), priced=priced)


def _sailor_prices(folder: Path) -> dict[str, Any]:
    """Layer costs, with measured activations where the folder has them, and the memory model."""
    profiles, infos = (places_of(folder, name) for name in (PROFILE, INFO))
    if not profiles:
        raise DataError(f"{folder}: no file {PROFILE}, expected it with {RUNS} or up to two levels below the folder")
    info = infos[0] if infos else None
    costs = read_sailor(profiles[0], load_model(SAILOR_MODEL), device_named(SAILOR_DEVICE, "gpu"), info=info)
    return {"profile": costs, "memory_model": {"overhead_gib": 2.0, "margin": 0.05}}


def _sailor_cluster(nodes: int) -> ClusterSpec:
    per_gigabit = GIGABYTE / GIGABIT
    node: dict[str, Any] = {
        "count": nodes,
        "device": SAILOR_DEVICE,
        "gpus_per_node": GPUS_PER_NODE,
        "intra_bandwidth_gbps": RING * per_gigabit,
    }
    if nodes == 1:
        return ClusterSpec.parse({"name": "gh200", "nodes": [node]}, "Sailor's nodes")
    node["nic_bandwidth_gbps"] = NODE * per_gigabit
    network = {"bandwidth_gbps": GPU * per_gigabit}
    return ClusterSpec.parse({"name": f"gh200:{nodes}", "nodes": [node], "network": network}, "Sailor's nodes")
