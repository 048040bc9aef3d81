"""
Megatron-Bridge's published runs of models with experts as rows that ``taut predict`` reads.

Routing is forced to be even and no token is dropped. What the summaries do not state is an assumption, named here.
"""

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.mlperf import even_stages
from benchmarks.runs import Line, accepted, lines_of
from taut.data.calibration import BETWEEN_REPLICAS
from taut.data.catalog.builtin import catalog_model
from taut.data.samples import ConfigurationRow

RUNS, RECIPES = "megatron_bridge_h100_b200_gb200.csv", "megatron_bridge_recipes_config.csv"
OTHERS = {"moe_cp_recompute_h100.csv": "26.05", "moe_memory_and_overlap_h100.csv": "26.08"}
"""Runs on H100 from pull requests and guides of Megatron-Bridge, with the container of their time."""
MODELS = {
    "DeepSeekV3": "deepseek-v3",
    "DeepSeekV3 (w/o MTP)": "deepseek-v3",
    "DeepSeekV3 (w/ MTP)": "deepseek-v3",
    "DeepSeekV3 (dropless)": "deepseek-v3",
    "GPT OSS 120B": "gpt-oss-120b",
    "Qwen3_30B_a3B": "qwen3-30b-a3b",
    "Qwen3_235B_a22B": "qwen3-235b-a22b",
    "Kimi_K2": "kimi-k2",
}
PRECISIONS = {"BF16": "bf16", "": "bf16", "FP8": "fp8", "FP8-CS": "fp8", "MXFP8": "mxfp8", "FP8-MX": "mxfp8"}
RECIPE_MODELS = {
    "deepseek_v3": "deepseek-v3",
    "gpt_oss_120b": "gpt-oss-120b",
    "qwen3_30b_a3b": "qwen3-30b-a3b",
    "qwen3_235b_a22b": "qwen3-235b-a22b",
    "kimi_k2": "kimi-k2",
}
PLAN = (
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "expert_model_parallel_size",
    "micro_batch_size",
)
NARROW_FIRST = ("mxfp8", "fp8", "bf16")
TAGS = {"bf16": ("bf16",), "fp8mx": ("mxfp8",), "fp8cs": ("fp8",)}
"""Precisions by the tags of recipes."""
WHOLE_GRAPHS = (26, 6)
"""First container whose recipes record whole steps as CUDA graphs."""


QUICK_DISPATCH = (26, 4)
"""First container whose recipes exchange tokens by HybridEP or DeepEP, and record parts of a step as CUDA graphs."""
HIDDEN_BEFORE = {("deepseek-v3", "h100", "25.09")}
"""
Model, GPU and container of runs that hid exchanges behind another micro-batch by recipes which the table does not have.

DeepSeek-V3 on H100 had them hidden and sent by DeepEP, whose kernels leave most of the GPU to others (Megatron-Bridge
of September 2025, ``scripts/performance/configs/deepseek/deepseek_v3_llm_pretrain.py``, ``A2A_1F1B`` and
``enable_deepep`` of ``deepseek_v3_h100_1024gpus_bf16_config``).
"""
NEWEST = (26, 4)
"""First container of the newest release: coefficients stand for it, and runs before say less."""


class ExpertRun(NamedTuple):
    """A run: catalog model, software release, and the row."""

    model: str
    container: str
    row: ConfigurationRow

    @property
    def older(self) -> str:
        """Year and month of a release before the newest; empty of that."""
        year, month = self.container.split(".")[:2]
        return "" if (int(year), int(month)) >= NEWEST else f"{year}.{month}"


def expert_runs(folder: Path, *, every_release: bool = False) -> list[ExpertRun]:
    """
    The runs of pre-training whose models the catalog has, in the order of the table, the newest of equal rows or all.

    Racks of GB200 and GB300 are nodes of 64 GPUs, what NVLink spans of a rack in Slurm's segments. DeepSeek-V3 counts
    its layer for prediction of further tokens as one layer more where the run has it. Runs that NVIDIA marks with a
    known regression are left out.
    """
    graphs, hidden, quick = (of(folder / RECIPES) for of in (_whole_graphs, _hidden, _quick_dispatch))
    again = _recomputed(folder / RECIPES)
    found: list[ExpertRun] = []
    seen: list[ConfigurationRow] = []
    for line in lines_of(folder / RUNS):
        if line["kind"] != "Pre-Training Performance" or line["model"] not in MODELS:
            continue
        if "[^" in line["tflops_per_gpu"] or not line["tp"].isdigit() or line["precision"] not in PRECISIONS:
            continue
        values = _row(line)
        key = MODELS[line["model"]], values["gpu"], line["n_gpus"], values["precision"], *_plan_of(values)
        release = tuple(int(part) for part in line["container"].split("."))
        values["cuda_graphs"] = release >= WHOLE_GRAPHS and key in graphs
        if key in hidden or (MODELS[line["model"]], values["gpu"], line["container"]) in HIDDEN_BEFORE:
            values["overlap_moe_expert_parallel_comm"] = True
        if values["gpu"].startswith("gb") and not values["cuda_graphs"]:
            values["stack"] = "megatron-experts-rack"
        place = MODELS[line["model"]], values["gpu"], int(values["pp"]), int(values["ep"])
        if values["gpu"] in ("b200", "b300") and (release < QUICK_DISPATCH or place not in quick):
            values["stack"] = "megatron-experts-eager"
        values |= again.get((*place, int(values["micro_batch"]), values["precision"]), {})
        rows, _ = accepted([values])
        for row in rows:
            of = row.model_copy(update={"measured_s": None, "stack": ""})
            if every_release or of not in seen:
                found.append(ExpertRun(MODELS[line["model"]], line["container"], row))
                seen.append(of)
    return [*found, *_others(folder)]


def _others(folder: Path) -> list[ExpertRun]:
    """Runs of other tables that state all their degrees: Qwen3 30B on 16 H100, some with hidden exchanges."""
    found = []
    for file, container in OTHERS.items():
        for line in lines_of(folder / file):
            stated = all(line[name] for name in ("n_gpus", "seq", "mbs", "gbs", "tp", "pp", "ep", "step_s"))
            if line["model"] != "qwen3-30b-a3b" or not stated:
                continue
            gpus, pp = int(line["n_gpus"]), int(line["pp"])
            values = {
                "gpu": "h100",
                "n_gpus": gpus,
                **shape_of(line["model"]),
                **{name: line[name] for name in ("seq", "tp", "pp", "ep", "precision")},
                "dp": gpus // (int(line["tp"]) * pp),
                "micro_batch": line["mbs"],
                "global_batch": line["gbs"],
                "zero": 1,
                "overlap_moe_expert_parallel_comm": True,
                "measured_s": line["step_s"],
            }
            found += [ExpertRun(line["model"], container, row) for row in accepted([values])[0]]
    return found


def checked_runs() -> tuple[ExpertRun, ...]:
    """
    Steps on H100 that no fit has: 14 layers of DeepSeek-V3 and one for further tokens, without and with full recompute.

    Megatron-LM's pull requests #6311 and #6429. A row has no words for the second head of further tokens, so
    ``benchmarks.published_steps`` prices the steps as plans.
    """
    degrees = {"tp": 1, "pp": 4, "dp": 16, "ep": 16, "vpp": 2, "micro_batch": 1, "global_batch": 256, "zero": 1}
    shape = {**shape_of("deepseek-v3"), "layers": 15, "seq": 2048, "stages": "2 2 2 2 2 2 2 1"}
    usual = {"gpu": "h100", "n_gpus": 64, "precision": "bf16", **shape, **degrees}
    values = [{**usual, "recompute": "none", "measured_s": 2.504}, {**usual, "recompute": "full", "measured_s": 3.044}]
    return tuple(ExpertRun("deepseek-v3", "26.08", row) for row in accepted(values)[0])


def _row(line: Line) -> dict[str, Any]:
    gpu, gpus = line["system"].removeprefix("DGX-").lower(), int(line["n_gpus"])
    name = MODELS[line["model"]]
    tp, pp, cp = (int(line[key]) for key in ("tp", "pp", "cp"))
    vpp = int(line["vp"]) if line["vp"].isdigit() and pp > 1 else 1
    shape = shape_of(name)
    shape["layers"] += name == "deepseek-v3" and "w/o" not in line["model"]
    tokens = float(line["tokens_per_s_per_gpu"].split()[0].replace(",", ""))
    return {
        "gpu": gpu,
        "n_gpus": gpus,
        "gpus_per_node": min(64, gpus) if gpu.startswith("gb") else 8,
        **shape,
        **{"tp": tp, "pp": pp, "cp": cp, "dp": gpus // (tp * pp * cp), "ep": line["ep"], "vpp": vpp},
        "stages": " ".join(map(str, even_stages(shape["layers"], pp * vpp))) if pp > 1 else "",
        "seq": line["seq"],
        "micro_batch": line["mbs"],
        "global_batch": line["gbs"],
        "zero": 1,
        "precision": PRECISIONS[line["precision"]],
        "measured_s": int(line["gbs"]) * int(line["seq"]) / gpus / tokens,
    }


def left_out(run: ExpertRun) -> str:
    """Why a run is no sample of a fit; empty where it is one."""
    row = run.row
    if run.model == "qwen3-30b-a3b" and row.gpu == "h100" and run.container < "26.02.01":
        return "26.02.01 runs the same degrees 1.8 times as fast"
    if run.container == OTHERS["moe_memory_and_overlap_h100.csv"] and row.gpu == "h100":
        return "HybridEP, partial graphs and hidden exchanges together, in two runs of one plan alone"
    return ""


class ExpertCampaign(NamedTuple):
    """
    Runs of one kind of recipe in one precision on GPUs of one kind.

    ``about``: what a calibration from them says of itself; ``generation``: of the GPUs; ``launch_us``: microseconds
    that the host takes for a pass; ``beside``: runs of the same kernels on like machines whose launches or clocks alone
    differ, which belong to what was seen; ``gpus``: those that it prices, where not those of all these runs;
    ``checked``: steps that its prices were checked on, which belong to what was seen as well.
    """

    about: dict[str, Any]
    generation: str
    launch_us: float
    runs: list[ExpertRun]
    beside: tuple[ExpertRun, ...] = ()
    gpus: tuple[str, ...] = ()
    checked: tuple[ExpertRun, ...] = ()

    @property
    def label(self) -> str:
        """Its name, with the GPUs that it prices where others of its software have coefficients of their own."""
        return "-".join([self.about["name"], *self.gpus])

    @property
    def features(self) -> tuple[str, ...]:
        """What the recipes of the newest release switch on."""
        fused = ("fused-router", "fused-permutation", "grouped-products")
        if "eager" in self.about["name"]:
            return (*fused, BETWEEN_REPLICAS)
        graphs = ("whole-step-graphs", "fused-activation") if self.launch_us == 0 else ("part-graphs",)
        return (*graphs, *fused, "hybrid-ep", BETWEEN_REPLICAS)


def campaigns(runs: list[ExpertRun]) -> list[ExpertCampaign]:
    """
    The campaigns, each with coefficients of its own.

    Recipes that record whole steps as CUDA graphs also fuse the experts' activation, compute attention in fp8 and hide
    exchanges behind another micro-batch; they are campaigns of their own. The others are one on machines of eight GPUs,
    whose hosts launch kernels more slowly than Grace, for each generation of GPUs, and those on racks; each in half
    precision and in narrower formats. GB300 has the stated rates of GB200 but for fp4, and 1,400 W in the place of
    1,200: it sustains a higher clock, and has coefficients of its own, as B300 has with whole graphs. On machines of
    eight B200 or B300, plain all-to-alls without graphs are a
    campaign of their own, ``eager``: the host waits in every layer for the number of rows that it gets, and launches
    what follows only then. Qwen3-30B took half the time with a fixed number of rows (25.09, tokens dropped). The
    launch of a kind of host is the one of least error in ten folds: of 400, 800, 1600, 2400 and 3000 us on the hosts of
    all machines of eight at first, and of 1600, 2400 and 3000 us where they wait.
    """
    taken = [run for run in runs if not left_out(run)]
    graphs = [run for run in taken if run.row.cuda_graphs]
    parts = [run for run in taken if not run.row.cuda_graphs]
    places: list[tuple[str, str, float, tuple[str, ...]]] = [
        ("h100", "hopper", 1600.0, ("h100",)),
        ("eager", "blackwell", 2400.0, ("b200", "b300")),
        ("hgx", "blackwell", 800.0, ("b200", "b300")),
        ("rack", "blackwell", 400.0, ("gb200", "gb300")),
    ]
    found = _by_gpu(_campaign("graphs", "mxfp8", "blackwell", 0.0, graphs), [("gb200",), ("gb300", "b300")])
    for name, generation, launch_us, gpus in places:
        for narrow in (False, True):
            some = [run for run in parts if run.row.gpu in gpus and (run.row.precision != "bf16") == narrow]
            own = [run for run in some if ("eager" in run.row.stack) == (name == "eager")]
            precision = ("fp8" if generation == "hopper" else "mxfp8") if narrow else "bf16"
            beside = tuple(run for run in some if run not in own)
            whole = _campaign(name, precision, generation, launch_us, own)._replace(beside=beside)
            if (name, narrow) == ("h100", False):
                whole = whole._replace(checked=checked_runs())
            found += _by_gpu(whole, [("gb200",), ("gb300",)]) if name == "rack" else [whole]
    return found


def _by_gpu(whole: ExpertCampaign, groups: list[tuple[str, ...]]) -> list[ExpertCampaign]:
    """A campaign for each group of GPUs, with the runs on the others beside."""
    found = []
    for gpus in groups:
        own = [run for run in whole.runs if run.row.gpu in gpus]
        beside = tuple(run for run in whole.runs if run.row.gpu not in gpus)
        found.append(whole._replace(runs=own, beside=beside, gpus=gpus))
    return found


def _campaign(name: str, precision: str, generation: str, launch_us: float, runs: list[ExpertRun]) -> ExpertCampaign:
    gpus = " and ".join(sorted({run.row.gpu for run in runs})).upper()
    source = "NVIDIA-NeMo/Megatron-Bridge docs/performance-summary, models with experts"
    about = {
        "name": f"megatron-experts-{name}" + ("" if name == "graphs" else f"-{precision}"),
        "stack": f"megatron-experts-{name}",
        "precision": precision,
        "source": f"{source}, {gpus}, with priors that all campaigns share",
        "fp8_inputs": True,
        "fused_experts": name == "graphs",
        "fused_loss": "te",
    }
    return ExpertCampaign(about, generation, launch_us, runs)


def shape_of(name: str) -> dict[str, Any]:
    """Columns of a catalog model."""
    model = catalog_model(name)
    assert model.experts is not None
    shape = {key: getattr(model, key) for key in ("hidden", "layers", "heads", "kv_heads", "ffn_hidden", "vocab")}
    return {**shape, "dense_layers": model.dense_layers, **model.experts.model_dump(exclude={"biased"})}


def _plan_of(values: dict[str, Any]) -> list[int]:
    return [int(values[name]) for name in ("pp", "vpp", "ep", "micro_batch")]


def _hidden(path: Path) -> set[tuple[Any, ...]]:
    """
    The same of the recipes that hide exchanges behind another micro-batch, on B200.

    On H100, where hosts take longer to launch a pass than plain all-to-alls take, what such recipes hid is left to the
    coefficients of all but exchanges (NVIDIA on Qwen3 30B: 37 % of its communication is hidden there).
    """
    return {
        (RECIPE_MODELS[line["model"]], line["gpu"], line["n_gpus"], tag, *(int(line[name] or 1) for name in PLAN))
        for line in lines_of(path)
        if line["model"] in RECIPE_MODELS and line["task"] == "pretrain" and line["gpu"] == "b200"
        if line["overlap_moe_expert_parallel_comm"] == "True"
        for tag in TAGS.get(line["precision_tag"], ())
    }


def _quick_dispatch(path: Path) -> set[tuple[Any, ...]]:
    """
    Model, GPU, stages and expert ranks of recipes on machines of eight whose hosts do not wait for every exchange.

    They exchange by HybridEP or DeepEP, or record router and permutation as CUDA graphs. Recipes that record whole
    steps say nothing of the releases before.
    """
    return {
        (RECIPE_MODELS[line["model"]], line["gpu"], *(int(line[name] or 1) for name in (PLAN[0], PLAN[2])))
        for line in lines_of(path)
        if line["model"] in RECIPE_MODELS and line["task"] == "pretrain" and line["gpu"] in ("b200", "b300")
        if "full_iter" not in line["helpers"]
        if line["moe_flex_dispatcher_backend"] or "graph" in line["helpers"] or line["cuda_graph_impl"]
    }


def _recomputed(path: Path) -> dict[tuple[Any, ...], dict[str, str]]:
    """
    Columns of recompute by model, GPU, stages, expert ranks, micro-batch and precision, of recipes that name modules.

    A precision without a recipe of its own has the modules of another one, the narrower ones before bf16.
    """
    stated: dict[tuple[Any, ...], dict[str, str]] = {}
    for line in lines_of(path):
        if line["model"] in RECIPE_MODELS and line["task"] == "pretrain" and line["recompute_modules"]:
            names = "+".join(name.strip(" '") for name in line["recompute_modules"].strip("[]").split(","))
            plan = [int(line[name] or 1) for name in (PLAN[0], *PLAN[2:])]
            for precision in TAGS.get(line["precision_tag"], ()):
                key = RECIPE_MODELS[line["model"]], line["gpu"], *plan, precision
                stated[key] = {"recompute": f"selective:{names}"} if names else {}
    found = dict(stated)
    for *place, _ in stated:
        known = [stated[*place, one] for one in NARROW_FIRST if (*place, one) in stated]
        for precision in NARROW_FIRST:
            found.setdefault((*place, precision), known[0])
    return found


def _whole_graphs(path: Path) -> set[tuple[Any, ...]]:
    """Model, GPU, number of GPUs, precision, degrees and micro-batch of the recipes that record whole steps."""
    return {
        (RECIPE_MODELS[line["model"]], line["gpu"], line["n_gpus"], "mxfp8", *(int(line[name] or 1) for name in PLAN))
        for line in lines_of(path)
        if line["model"] in RECIPE_MODELS and line["task"] == "pretrain" and "full_iter" in line["helpers"]
    }
