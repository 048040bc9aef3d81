"""
Public runs whose outcome is known, whether they ran or ended out of memory, with what their stacks keep in memory.

What a source leaves open, recompute or the stage of ZeRO, is a list of choices. Formats are those of the software that
a source names:

- Megatron-Bridge's performance recipes sum gradients in bf16 and fuse the loss (``perf_recipes/_common.py``,
  ``_benchmark_common``); DeepSeek's keep moments in bf16 (``recipes/deepseek/deepseek_v3.py``);
- NeMo's optimizer of 2024 keeps remainders of the fp32 weights (``megatron_base_model.py``);
- PyTorch's FSDP has no copy of the sharded weights in half precision, as they are cast when they are gathered, which
  takes as much as remainders beside one; MPT's loss is fused (``modeling_mpt.py``, ``fused_crossentropy``).
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.campaigns import campaigns, checks, torchtitan, torchtitan_row
from benchmarks.expert_memory import beside_allocation, formats_of, memory_runs
from benchmarks.expert_rows import PLAN, RECIPE_MODELS, RECIPES, RUNS, TAGS, ExpertRun, expert_runs
from benchmarks.memory_campaigns import FSDP, STATED, memory_campaigns
from benchmarks.mlperf import even_stages
from benchmarks.runs import SHAPES, Campaign, Line, accepted, lines_of
from taut.data.catalog.builtin import catalog_memory_models
from taut.data.memory import MemoryModel
from taut.data.samples import ConfigurationRow

Rows = list[ConfigurationRow]
Choices = tuple[dict[str, Any], ...]
ALL_STATED: Choices = ({},)
RECOMPUTE: Choices = tuple({"recompute": kind} for kind in ("none", "selective", "full"))
LAYERS: Choices = tuple({"recompute": kind} for kind in ("none", "full"))
ZERO: Choices = tuple({"zero": stage} for stage in (0, 1))
RECIPE = {"sequence_parallel": True, "fused_loss": "te", "fp8_inputs": True}
HALF_MOMENTS = {"weight_remainders": True, "half_moments": True}
IN_HALF = {"grad_precision": "bf16"}
DENSE = {"LLAMA3_8B": "llama3.1_8b", "LLAMA3_70B": "llama3.1_70b", "LLAMA3.1_405B": "llama3.1_405b"}
DENSE_RECIPES = {"llama3_8b": "LLAMA3_8B", "llama3_70b": "LLAMA3_70B", "llama31_405b": "LLAMA3.1_405B"}
DENSE_PRECISIONS = {"BF16": "bf16", "FP8": "fp8", "FP8-CS": "fp8", "MXFP8": "mxfp8", "NVFP4": "nvfp4"}
ON_HOSTS = "cpu_offloading_num_layers"
_AS_RELEASED = {"mbs": "1", "pp": "4", "vp": "5"}
CORRECTED = {
    ("26.02.01", "DGX-GB300", "LLAMA3_70B", "MXFP8"): _AS_RELEASED,
    ("26.02.01", "DGX-GB300", "LLAMA3_70B", "NVFP4"): _AS_RELEASED,
}
"""
Rows whose micro-batch and stages are not those of their release's recipe, which are taken: without shards their weights
and activations would not fit (Megatron-Bridge v0.3.1, ``scripts/performance/configs/llama``, ``GB300_*_V2``).
"""


class Source(NamedTuple):
    """Runs of one kind: those that ran and those out of memory, the memory model, choices, and what they are."""

    name: str
    model: MemoryModel
    ran: Rows
    out: Rows = []
    choices: Choices = ALL_STATED
    open: str = ""


def sources(folder: Path) -> Iterator[Source]:
    """Every kind of runs in the folder."""
    timed = {campaign.name: campaign for campaign in [*campaigns(folder), *checks(folder)]}
    yield from _fitted(folder, timed)
    yield _torchtitan_a100(folder / "torchtitan_2024_a100_fsdp.csv")
    yield from _by_campaigns(timed)
    yield Source("Megatron-Bridge, dense", MemoryModel(**RECIPE), bridge_rows(folder))
    yield from _experts(folder)
    yield Source("recipes with activations on hosts", MemoryModel(**RECIPE), recipes_on_hosts(folder / RECIPES))


def _fitted(folder: Path, timed: dict[str, Campaign]) -> Iterator[Source]:
    """Campaigns that have a memory model of their own, with runs of the same stack whose memory is not stated."""
    models = catalog_memory_models()
    bloom, titan, sailor = memory_campaigns(folder)
    known = {_plan(row) for row in bloom.rows}
    others = [row for row in timed["megatron-deepspeed-bloom"].rows if _plan(row) not in known]
    yield Source("BLOOM's trials", models[bloom.name], bloom.rows, bloom.out_of_memory)
    yield Source("BLOOM's trials, memory not stated", models[bloom.name], [_tied(row) for row in others])
    for name, words in (("one", "one node"), ("many", "2 to 64 nodes")):
        rows = timed[f"megatron-deepspeed-a100-{name}"].rows
        yield Source(f"vTrain, {words}", models[bloom.name], rows, choices=ZERO, open="ZeRO")
    # With the campaign's stack pipelines have ZeRO-3, as its memory was fitted; other stacks refuse it.
    rows = [row.model_copy(update={"gpu": "h100-96gb", "stack": titan.name}) for row in timed[titan.name].rows]
    rows += _on(torchtitan(folder / "torchtitan_2024_a100_fsdp.csv", "h100-80gb", "bf16 fp8").rows, "h100-96gb")
    rows += torchtitan(folder / "torchtitan_h100_h200.csv", "h200-141gb", "bf16 fp8").rows
    yield Source("torchtitan on H100 and H200", models[titan.name], rows)
    yield Source("Aceso's runtime on GH200, by stage", models[sailor.name], sailor.rows)


def _plan(row: ConfigurationRow) -> tuple[Any, ...]:
    """Shape and degrees of a run."""
    return tuple(getattr(row, name) for name in ("n_gpus", "hidden", "layers", "tp", "pp", "dp", "micro_batch", "zero"))


def _tied(row: ConfigurationRow) -> ConfigurationRow:
    """A run of BLOOM with what its memory campaign knows of it: the vocabulary, tied."""
    return row.model_copy(update={"vocab": 250880, "tied_embedding": True})


def _on(rows: Iterable[ConfigurationRow], gpu: str) -> Rows:
    return [row.model_copy(update={"gpu": gpu}) for row in rows]


def _torchtitan_a100(path: Path) -> Source:
    """Torchtitan on A100; every second layer checkpointed is taken as selective recompute."""
    values = [torchtitan_row({**line, "wps_per_gpu": "1"}, "a100-80gb", "bf16") for line in lines_of(path)]
    failed = [line["wps_per_gpu"] == "OOM" for line in lines_of(path)]
    ran, out = (
        accepted([one for one, beyond in zip(values, failed, strict=True) if one and beyond == kind])[0]
        for kind in (False, True)
    )
    model = MemoryModel(**FSDP, sequence_parallel=True, selective_products=True)
    return Source("torchtitan on A100", model, ran, out)


def _by_campaigns(timed: dict[str, Campaign]) -> Iterator[Source]:
    """Campaigns of step times alone, by memory models that are not fitted."""
    nemo = MemoryModel(**FSDP, sequence_parallel=True, fp8_inputs=True)
    jax, core = MemoryModel(**FSDP), MemoryModel(sequence_parallel=True)
    kinds: list[tuple[str, str, MemoryModel, Choices, Callable[[Rows], Rows]]] = [
        ("MPT with llm-foundry", "llm-foundry", STATED[0], ALL_STATED, list),
        ("NeMo, dgxc-benchmarking", "nemo-h100", nemo, RECOMPUTE, _in_half),
        ("MaxText", "maxtext", jax, RECOMPUTE, list),
        ("Paxml", "paxml", jax, RECOMPUTE, list),
        ("Megatron-Core's scaling table", "megatron-core", core, RECOMPUTE, list),
        ("MLPerf training, dense", "mlperf", core.model_copy(update={"fp8_inputs": True}), ALL_STATED, list),
    ]
    for name, prefix, model, choices, change in kinds:
        rows = [row for key, campaign in timed.items() if key.startswith(prefix) for row in campaign.rows]
        words = "recompute" if choices is RECOMPUTE else ""
        yield Source(name, model, change(rows), choices=choices, open=words)


def _in_half(rows: Iterable[ConfigurationRow]) -> Rows:
    """Rows whose gradients are summed in bf16."""
    return [row.model_copy(update=IN_HALF) for row in rows]


def bridge_rows(folder: Path) -> Rows:
    """Dense pre-training runs of Megatron-Bridge's summaries, with the recipes' activations on hosts."""
    shares = {_recipe_key(line): int(line[ON_HOSTS]) for line in lines_of(folder / RECIPES) if line[ON_HOSTS]}
    values = []
    for stated in lines_of(folder / RUNS):
        named = stated.get("container", ""), stated["system"], stated["model"], stated["precision"]
        line = {**stated, **CORRECTED.get(named, {})}
        numbers = [line[key] for key in ("tp", "pp", "cp", "mbs")]
        precision = DENSE_PRECISIONS.get(line["precision"].split()[0] if line["precision"] else "BF16")
        if line["kind"] != "Pre-Training Performance" or line["model"] not in DENSE or precision is None:
            continue
        if not all(number.isdigit() for number in numbers):
            continue
        gpu, vpp = line["system"].removeprefix("DGX-").lower(), line["vp"] if line["vp"].isdigit() else "1"
        sharded = line["fsdp"].isdigit() and int(line["fsdp"]) > 1
        key = line["model"], gpu, line["n_gpus"], precision, line["mbs"]
        values.append(_dense(line["model"], gpu, line, precision, int(vpp), shares.get(key, 0) if sharded else 0))
        values[-1]["zero"] = 3 if sharded else 1
    return _in_half(accepted(values)[0])


def _dense(model: str, gpu: str, line: Line, precision: str, vpp: int, away: int) -> dict[str, Any]:
    """A row of a dense recipe; embedding and loss count as layers of their stages where that makes chunks equal."""
    gpus, tp, pp, cp = (int(line[key]) for key in ("n_gpus", "tp", "pp", "cp"))
    shape = SHAPES[DENSE[model]]
    chunks = pp * (vpp if pp > 1 else 1)
    sizes = even_stages(shape["layers"] + 2 * (shape["layers"] % chunks > 0), chunks)
    if shape["layers"] % chunks:
        sizes[0], sizes[-1] = sizes[0] - 1, sizes[-1] - 1
    return {
        "gpu": gpu,
        "n_gpus": gpus,
        "gpus_per_node": min(64, gpus) if gpu.startswith("gb") else 8,
        **shape,
        **{"tp": tp, "pp": pp, "cp": cp, "dp": gpus // (tp * pp * cp), "vpp": vpp if pp > 1 else 1},
        "stages": " ".join(map(str, sizes)) if pp > 1 else "",
        **{"seq": line["seq"], "micro_batch": line["mbs"], "global_batch": line["gbs"]},
        **{"zero": 3, "precision": precision, "sequence_parallel": tp > 1},
        "activation_offload_fraction": away / shape["layers"] if away else "",
    }


def _recipe_key(line: Line) -> tuple[str, ...]:
    precision = TAGS.get(line["precision_tag"], (line["precision_tag"],))[0]
    return DENSE_RECIPES.get(line["model"], ""), line["gpu"], line["n_gpus"], precision, line["micro_batch_size"]


def recipes_on_hosts(path: Path) -> Rows:
    """Llama's recipes with activations of some layers on hosts, published without a measurement of memory."""
    columns = {"tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size", "cp": "context_parallel_size"}
    columns |= {"mbs": "micro_batch_size", "gbs": "global_batch_size"}
    values = []
    for line in lines_of(path):
        if not line[ON_HOSTS] or line["model"] not in DENSE_RECIPES or line["task"] != "pretrain":
            continue
        model, gpu, _, precision, _ = _recipe_key(line)
        cells = {
            **line,
            **{name: line[column] for name, column in columns.items()},
            "seq": line["seq_length"] or "8192",
        }
        values.append(_dense(model, gpu, cells, precision, 1, int(line[ON_HOSTS])))
    return _in_half(accepted(values)[0])


def _experts(folder: Path) -> Iterator[Source]:
    """Models with experts: runs with a peak, and published runs, whose recompute is their recipe's or open."""
    for measured in memory_runs(folder):
        model, row = formats_of(measured)
        row = row.model_copy(update={"measured_bytes": measured.measured + beside_allocation(model, row)})
        name = f"models with{'' if row.num_experts else 'out'} experts, peaks stated"
        yield Source(name, model, *(([], [row]) if measured.out_of_memory else ([row], [])))
    recipes = _expert_recipes(folder / RECIPES)
    for run in expert_runs(folder):
        model = MemoryModel(**RECIPE, **(HALF_MOMENTS if run.model == "deepseek-v3" else {}))
        open_row = run.row.model_copy(update={"recompute": "none", "recompute_modules": []})
        modules, row = recipes.get(_plan_key(run)), _in_half([open_row])[0]
        if modules is None:
            yield Source("Megatron-Bridge, experts, recompute open", model, [row], choices=LAYERS, open="recompute")
        else:
            row = row.model_copy(update={"recompute": "selective" if modules else "none", "recompute_modules": modules})
            yield Source("Megatron-Bridge, experts, recompute of the recipe", model, [row])


def _plan_key(run: ExpertRun) -> tuple[str, ...]:
    row = run.row
    plan = (row.pp, row.vpp, row.ep, row.micro_batch)
    return run.model, row.gpu, str(row.n_gpus), row.precision or "", *map(str, plan)


def _expert_recipes(path: Path) -> dict[tuple[str, ...], list[str]]:
    """Named modules by a recipe's plan, where it states them."""
    return {
        (RECIPE_MODELS[line["model"]], line["gpu"], line["n_gpus"], tag, *(line[name] or "1" for name in PLAN)): [
            word.strip(" '") for word in line["recompute_modules"].strip("[]").split(",") if word.strip(" '")
        ]
        for line in lines_of(path)
        if line["model"] in RECIPE_MODELS and line["task"] == "pretrain" and line["recompute_modules"]
        for tag in TAGS.get(line["precision_tag"], ())
    }
