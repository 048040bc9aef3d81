"""A plan in each framework's words, read back, and what a framework cannot run."""

import copy
import json
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import taut
from taut.data.load import load_calibration
from taut.errors import DataError
from taut.exports.arguments import named, primus_files, verl_files, verl_settings
from taut.exports.deepspeed import deepspeed_files
from taut.exports.flagscale import flagscale_config, flagscale_files
from taut.exports.job import ExportError, Job
from taut.exports.megatron import bridge_files, bridge_settings, flags_text, megatron_flags
from taut.exports.torchtitan import parallelism, schedule_csv, torchtitan_files
from taut.formulations.schedules.orders import passes_of
from taut.launchers.deepspeed import deepspeed_launch
from taut.launchers.read import launch_of_file, launch_of_text
from taut.launchers.recipes import module_fields
from taut.launchers.settings import Run
from taut.launchers.torchtitan import torchtitan_launch
from taut.quoting import yaml_text
from taut.schedules.reading import read_torch_csv
from taut.solver.certificate.document import strategy_of
from tests.support.launches import (
    MODEL,
    divided,
    in_order,
    launched,
    launched_on,
    model_with_experts,
    shuffled,
    small_cluster,
)

Made = Callable[[], Job]
KNOWN = ("tp", "pp", "cp", "micro_batch", "zero", "sequence_parallel", "schedule")


def said(job: Job, *names: str) -> dict[str, Any]:
    """What a plan says under a reader's names."""
    chosen = job.strategy
    values = {name: getattr(chosen, name) for name in names}
    return values | {"recompute": chosen.recompute[0], "global_batch": job.global_batch}


def expert_copies() -> Job:
    """Two copies of four devices, each of two expert groups."""
    fixed = {"pp": 1, "tp": 1, "ep": 2, "zero": 2, "dp_shard": 4, "micro_batch": 1, "recompute": "none"}
    return launched_on(small_cluster(), model_with_experts(8), **fixed)


MEGATRON: dict[str, Made] = {
    "uneven": lambda: launched(pp=4, tp=2, micro_batch=1, schedule="1f1b", recompute="none"),
    "chunks": lambda: launched(pp=2, tp=2, micro_batch=1, schedule="interleaved-1f1b", vpp=2, recompute="full"),
    "even chunks": lambda: divided(launched(pp=1, tp=2, micro_batch=2, schedule="1f1b", recompute="selective"), (13,)),
    "sharded": lambda: launched(pp=1, tp=1, micro_batch=1, zero=3, recompute="none"),
    "contexts": lambda: launched(pp=2, tp=2, cp=2, micro_batch=1, schedule="1f1b", recompute="none"),
    "all-to-all": lambda: launched(pp=1, tp=1, cp=2, cp_comm="a2a", micro_batch=1, recompute="none"),
    "copies": lambda: launched(pp=1, tp=1, micro_batch=1, zero=2, dp_shard=4, recompute="none"),
    "expert copies": expert_copies,
    "copies of states": lambda: launched(pp=1, tp=1, micro_batch=1, zero=1, dp_shard=4, recompute="none"),
    "shuffled": lambda: shuffled(launched(pp=4, tp=2, micro_batch=1, schedule="1f1b", recompute="none"), 1),
}


@pytest.mark.parametrize("made", MEGATRON.values(), ids=MEGATRON)
def test_megatrons_flags_are_read_back(made: Made) -> None:
    """Degrees, schedule, sharding, recompute, batch, and layers of the chunks."""
    job = made()
    text = flags_text(megatron_flags(job))
    found = launch_of_text(text).values
    wanted = said(job, *KNOWN, "vpp", *(["cp_comm"] if job.strategy.cp > 1 else []))
    assert {name: found[name] for name in wanted} == wanted
    if not job.is_even:
        assert found["layers"] == "|".join(map(str, job.layers))
    if job.strategy.dp_shard:
        assert "--num-distributed-optimizer-instances 2\n" in text
        assert found["copies"] == 2


@pytest.mark.parametrize("made", MEGATRON.values(), ids=MEGATRON)
def test_what_is_written_is_read(made: Made, tmp_path: Path) -> None:
    """Flags, recipe, overrides and the configurations for FlagScale, Primus and verl of a plan say the same."""
    job = made()
    texts = {"megatron.txt": flags_text(megatron_flags(job)), **bridge_files(job), **flagscale_files(job)}
    texts.pop("hostfile", None)
    texts |= primus_files(job) | (verl_files(job) if job.strategy.zero < 2 and job.strategy.copies == 1 else {})
    wanted = said(job, *KNOWN, "vpp", *(["cp_comm"] if job.strategy.cp > 1 else []))
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        launch = launch_of_file(tmp_path / name, Run(job.model, len(job.devices)))
        found = {"recompute": "none", **launch.values}
        assert {field: found[field] for field in wanted} == wanted, name
        assert found.get("layers", "even") == ("even" if job.is_even else "|".join(map(str, job.layers))), name
        assert launch.options.get("seq") == (None if name == "verl.txt" else job.sequence), name


@pytest.mark.parametrize("made", MEGATRON.values(), ids=MEGATRON)
def test_primus_takes_all_that_megatrons_flags_say(made: Made) -> None:
    """Each flag is an override of the same value; what Primus does unless told otherwise is said."""
    job = made()
    trainer = yaml.safe_load(primus_files(job)["primus.yaml"])["modules"]["pre_trainer"]
    flags = megatron_flags(job)
    flags.pop("--moe-flex-dispatcher-backend", None)
    assert named(flags).items() <= trainer["overrides"].items()
    for flag in ("--use-distributed-optimizer", "--sequence-parallel"):
        assert trainer["overrides"][flag[2:].replace("-", "_")] == (flag in flags)


def test_primus_has_a_dispatcher_of_its_own() -> None:
    """Primus-Turbo's takes the place of DeepEP, and no bias is no switch."""
    made = yaml.safe_load(primus_files(expert_copies())["primus.yaml"])["modules"]["pre_trainer"]["overrides"]
    assert made["use_turbo_deepep"] and made["enable_primus_turbo"] and made["add_bias_linear"] is False
    assert "moe_flex_dispatcher_backend" not in made and made["moe_token_dispatcher_type"] == "flex"


def test_primus_is_told_no_other_dispatcher_and_small_numbers_as_numbers() -> None:
    """HybridEP of wide domains is refused; a share below 1e-4 is no text."""
    fixed = {"pp": 1, "tp": 1, "ep": 8, "etp": 1, "micro_batch": 1, "zero": 1, "recompute": "none"}
    with pytest.raises(ExportError, match="hybridep, which Primus has not; plan with --moe-token-dispatcher alltoall"):
        primus_files(launched_on(small_cluster(1, 16), model_with_experts(8), **fixed))
    assert yaml.safe_load(yaml_text(named({"--optimizer-offload-fraction": "5e-05"}))) == {
        "optimizer_offload_fraction": 5e-05
    }


def test_verls_settings_stand_where_its_configuration_has_them() -> None:
    """Degrees by their paths, the layout of uneven chunks and recompute among the layers' own arguments."""
    settings = verl_settings(divided(MEGATRON["chunks"](), (3, 3, 4, 3)))
    actor = "actor_rollout_ref.actor"
    assert settings[f"{actor}.megatron.virtual_pipeline_model_parallel_size"] == 2
    assert settings[f"{actor}.megatron.use_distributed_optimizer"] is (MEGATRON["chunks"]().strategy.zero == 1)
    layers = f"++{actor}.megatron.override_transformer_config"
    assert settings[f"{layers}.pipeline_model_parallel_layout"] == "Et*3|t*3|t*4|t*3L"
    assert settings[f"{layers}.recompute_granularity"] == "full"
    assert settings[f"{actor}.ppo_micro_batch_size_per_gpu"] == 1


@pytest.mark.parametrize(("made", "words"), [("sharded", "ZeRO-3"), ("copies of states", "several copies")])
def test_verl_has_no_other_sharding(made: str, words: str) -> None:
    """Sharded weights and several copies of states are refused with the stack that plans without them."""
    with pytest.raises(ExportError, match=f"{words}.* for verl's actor; plan with --stack megatron-core"):
        verl_files(MEGATRON[made]())


def test_verl_is_told_no_dispatcher_but_deepep() -> None:
    """Groups of 16 devices in one NVLink domain have HybridEP, for which its configuration has no place."""
    fixed = {"pp": 1, "tp": 1, "ep": 8, "etp": 1, "micro_batch": 1, "zero": 1, "recompute": "none"}
    with pytest.raises(ExportError, match="hybridep, which verl's actor is not told; plan with --moe-token-dispatcher"):
        verl_files(launched_on(small_cluster(1, 16), model_with_experts(8), **fixed))


def test_ray_starts_verl(tmp_path: Path) -> None:
    """No start script stands beside its settings, and none is taken."""
    plan = MEGATRON["uneven"]().plan
    names = {path.name for path in taut.export(plan, "verl", tmp_path / "a")}
    assert names == {"verl.txt", "env.sh", "ranks.csv", "plan.json", "launch.md"}
    said = (tmp_path / "a" / "launch.md").read_text()
    assert "beside the head of Ray's cluster: `python -m verl.trainer.main_ppo" in said
    with pytest.raises(DataError, match="expected no slurm"):
        taut.export(plan, ["verl", "slurm"], tmp_path / "b")


def test_end_chunks_without_layers_are_stated() -> None:
    """Embedding and loss alone: Megatron-LM's layout, which is read back, and torchtitan's modules."""
    job = divided(launched(stack="torchtitan", pp=2, tp=2, micro_batch=1, schedule="interleaved-1f1b"), (0, 6, 7, 0))
    flags = megatron_flags(job)
    assert flags["--pipeline-model-parallel-layout"] == "E|t*6|t*7|L"
    assert launch_of_text(flags_text(flags)).values["layers"] == "0|6|7|0"
    names: dict[str, Any] = {}
    text = torchtitan_files(job)["taut_plan.py"].replace("from torchtitan", "# from torchtitan")
    exec(text.split("def base()")[0] + "def modules" + text.split("def modules")[1].split("def taut_plan")[0], names)
    assert names["modules"]()[0] == ["tok_embeddings"]
    assert names["modules"]()[-1] == ["norm", "lm_head"]


def test_context_ranks_on_two_levels_state_their_sizes() -> None:
    """A replica of four context ranks on two nodes of two: all-to-alls of two, and a ring of two."""
    job = launched_on(small_cluster(4, 2), MODEL, pp=1, tp=1, cp=4, cp_comm="a2a+p2p", micro_batch=1, recompute="none")
    flags, settings = megatron_flags(job), bridge_settings(job)
    assert (flags["--cp-comm-type"], flags["--hierarchical-context-parallel-sizes"]) == ("a2a+p2p", "2 2")
    assert settings["model.cp_comm_type"] == "a2a+p2p"
    assert settings["model.hierarchical_context_parallel_sizes"] == [2, 2]


def test_torchtitan_gathers_keys() -> None:
    """A ring is refused with the plan that torchtitan can run."""
    with pytest.raises(ExportError, match="cp_comm=all_gather"):
        torchtitan_files(launched(pp=1, tp=2, cp=2, micro_batch=1, zero=3, recompute="none", sequence_parallel=True))


@pytest.mark.parametrize("made", MEGATRON.values(), ids=MEGATRON)
def test_bridges_settings_are_megatrons(made: Made) -> None:
    """The recipe's values are those of the flags, and the function sets them."""
    job = made()
    flags, settings = megatron_flags(job), bridge_settings(job)
    assert str(settings["model.tensor_model_parallel_size"]) == flags["--tensor-model-parallel-size"]
    assert str(settings["train.global_batch_size"]) == flags["--global-batch-size"]
    assert settings["model.pipeline_model_parallel_layout"] == flags.get("--pipeline-model-parallel-layout")
    assert settings["model.recompute_granularity"] == flags.get("--recompute-granularity")
    assert settings["ddp.use_distributed_optimizer"] == ("--use-distributed-optimizer" in flags)
    made_in_shards = job.strategy.zero == 3
    assert settings.get("model.init_model_with_meta_device", False) == made_in_shards
    assert ("--init-model-with-meta-device" in flags) == made_in_shards
    assert flags["--manual-gc-interval"] == "100" and "--manual-gc" in flags
    names: dict[str, Any] = {}
    exec(bridge_files(job)["taut_plan.py"], names)
    recipe = Recipe()
    assert names["taut_plan"](recipe) is recipe
    found = {path: attrgetter(path)(recipe) for path in settings}
    assert found == settings
    assert "model.recompute_granularity=" in bridge_files(job)["overrides.txt"], "what is off is said too"


class Recipe:
    """Sections of a recipe that take any value."""

    def __init__(self) -> None:
        for section in ("model", "train", "ddp", "dataset"):
            setattr(self, section, type(section, (), {})())


TORCHTITAN: dict[str, Made] = {
    "uneven": lambda: launched(stack="torchtitan", pp=4, tp=2, micro_batch=1, schedule="1f1b", recompute="full"),
    "chunks": lambda: launched(stack="torchtitan", pp=2, tp=2, micro_batch=1, schedule="interleaved-1f1b"),
    "zb-v": lambda: launched(stack="torchtitan", pp=2, tp=2, micro_batch=1, schedule="zb-v", recompute="none"),
    "sharded": lambda: launched(stack="torchtitan", pp=1, tp=2, cp=2, micro_batch=1, zero=3, recompute="selective"),
    "copies": lambda: launched(stack="torchtitan", pp=1, tp=1, micro_batch=1, zero=3, dp_shard=4, recompute="none"),
    "expert copies": expert_copies,
}


@pytest.mark.proof
@pytest.mark.parametrize("made", TORCHTITAN.values(), ids=TORCHTITAN)
def test_torchtitans_function_is_read_back(made: Made) -> None:
    """The module's dictionaries hold degrees, schedule, sharding, recompute, batch, and layers of the chunks."""
    job = made()
    found = torchtitan_launch(module_fields(torchtitan_files(job)["taut_plan.py"]).fields, Run()).values
    wanted = said(job, *KNOWN, "ep")
    assert {name: found[name] for name in wanted} == wanted
    if len(job.layers) > 1:
        assert found["layers"] == "|".join(map(str, job.layers))
    if job.strategy.dp_shard:
        degrees = parallelism(job)
        assert (degrees["data_parallel_replicate_degree"], degrees["data_parallel_shard_degree"]) == (2, 4)
        assert found["copies"] == 2


def test_torchtitans_expert_ranks_are_read_back() -> None:
    """Eight expert ranks of one tensor rank each, weights sharded: as a degree of the function and of the flags."""
    fixed = {"pp": 1, "tp": 2, "ep": 8, "etp": 1, "micro_batch": 1, "zero": 3, "recompute": "none"}
    job = launched_on(small_cluster(), model_with_experts(8), **fixed)
    files, wanted = torchtitan_files(job), said(job, *KNOWN, "ep", "etp")
    for found in (
        torchtitan_launch(module_fields(files["taut_plan.py"]).fields, Run()).values,
        launch_of_text(files["flags-0.3.0.txt"]).values,
    ):
        assert {name: found[name] for name in wanted} == wanted
    assert 'moe_comm_backend="deepep"' in files["taut_plan.py"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"zero": 1}, "plan with --stack torchtitan"), ({"etp": 2}, "of 2 tensor ranks each, which torchtitan has not")],
)
def test_expert_ranks_that_torchtitan_has_not_are_refused(changes: dict[str, Any], words: str) -> None:
    """Without sharded weights, or where tensor ranks share an expert."""
    fixed = {"pp": 1, "tp": 2, "ep": 4, "etp": 1, "micro_batch": 1, "zero": 3, "recompute": "none", **changes}
    with pytest.raises(ExportError, match=words):
        torchtitan_files(launched_on(small_cluster(), model_with_experts(8), **fixed))


@pytest.mark.parametrize("made", TORCHTITAN.values(), ids=TORCHTITAN)
def test_torchtitans_flags_are_read_back(made: Made) -> None:
    """The same from flags of version 0.3.0, which do not hold the layers."""
    job = made()
    found, wanted = launch_of_text(torchtitan_files(job)["flags-0.3.0.txt"]).values, said(job, *KNOWN)
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize("on", [True, False])
def test_torchtitan_compiles_where_the_runs_behind_the_prices_did(on: bool) -> None:
    """By the function and by a flag, and both are read as such."""
    known = load_calibration("torchtitan-h100" if on else "torchtitan-a100-bf16").model_copy(update={"device": ""})
    fix = {"pp": 1, "tp": 2, "micro_batch": 1}
    plan = taut.plan(
        MODEL, small_cluster(), global_batch=16, fix=fix, work_limit=4, stack="torchtitan", calibration=known
    )
    files = torchtitan_files(in_order(Job(plan)))
    said = ("priced as the calibration's runs had it: compile.enable",) * on
    for found in (
        torchtitan_launch(module_fields(files["taut_plan.py"]).fields, Run()),
        launch_of_text(files["flags-0.3.0.txt"]),
    ):
        assert found.values["tp"] == 2 and tuple(each for each in found.named if "compile" in each) == said
        assert found.flags is not None and ("compile.enable" in found.flags) == on


ORDERS = {
    name: partial(launched, pp=2, tp=2, micro_batch=1, schedule=name)
    for name in ("1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min")
}


@pytest.mark.parametrize("made", ORDERS.values(), ids=ORDERS)
def test_orders_of_passes_are_read_back(made: Made, tmp_path: Path) -> None:
    """Every schedule's passes, in the plan's order, on each rank."""
    job = made()
    (tmp_path / "s.csv").write_text(schedule_csv(job))
    order, found = (
        passes_of(*strategy_of(job.strategy, "a plan").candidate.order_key),
        read_torch_csv(tmp_path / "s.csv").orders,
    )
    assert len(found) == 2
    assert np.array_equal(np.concatenate(found), order.passes)
    assert [len(rank) for rank in found] == np.diff(order.first).tolist()


@pytest.mark.proof
def test_schedules_that_torchtitan_does_not_build_come_as_a_file() -> None:
    """V-Half is laid out as ZB-V is, with its own order beside it."""
    files = torchtitan_files(launched(pp=2, tp=1, micro_batch=1, schedule="v-half", zero=2, recompute="none"))
    assert '"pipeline_parallel_schedule": "ZBVZeroBubble"' in files["taut_plan.py"]
    assert '"pipeline_parallel_schedule_csv": "schedule.csv"' in files["taut_plan.py"]
    assert files["schedule.csv"].startswith("0F0,")


def test_deepspeeds_files_are_read_back() -> None:
    """Batches multiply, stages begin at the marks, and the hostfile is there while ranks follow its order."""
    job = in_order(launched(stack="deepspeed", hosts=("alpha", "beta"), pp=4, tp=1, micro_batch=1, recompute="full"))
    files = deepspeed_files(job)
    config, chosen = json.loads(files["ds_config.json"]), job.strategy
    assert deepspeed_launch(config, "a file", Run(), {}).values == {
        "micro_batch": 1,
        "global_batch": 16,
        "zero": chosen.zero,
    }
    assert config["gradient_accumulation_steps"] * chosen.dp == 16
    names: dict[str, Any] = {}
    exec(files["taut_stages.py"], names)
    assert names["STARTS"] == tuple(first for first, _ in chosen.stages)
    assert files["hostfile"] == "alpha slots=4\nbeta slots=4\n"
    assert "hostfile" not in deepspeed_files(shuffled(job, 1))


def test_flagscale_has_a_mesh_for_each_type() -> None:
    """Two types of devices: two meshes of [tp, cp, ep, dp, pp], layers of all stages, and a hostfile with types."""
    job = launched(types=2, pp=2, tp=2, micro_batch=1, schedule="1f1b", recompute="none")
    config = flagscale_config(job)
    assert config["system"]["hetero"] == {
        "enable_hetero": True,
        "hetero_pipeline_layer_split": list(job.layers),
        "hetero_process_meshes": [2, 1, 1, 2, 1, 2, 1, 1, 2, 1],
        "hetero_device_types": [f"gpu-{node % 2}" for node in job.node_order()],
    }
    assert config["model"]["hidden_size"] == 256
    files = flagscale_files(job)
    assert yaml.safe_load(files["train.yaml"]) == config
    assert set(files["hostfile"].splitlines()) == {"node-0 slots=4 type=gpu-0", "node-1 slots=4 type=gpu-1"}


def by_stage() -> Job:
    """A plan whose stages recompute in turn."""
    document = MEGATRON["uneven"]().plan.document
    return Job(taut.Plan(document | {"strategy": document["strategy"] | {"recompute": ["none", "full"] * 2}}))


REFUSED: dict[str, tuple[Callable[[Job], object], Made, str]] = {
    "schedule": (megatron_flags, ORDERS["zb-v"], "--stack megatron-core"),
    "recompute by stage": (megatron_flags, by_stage, "--fix recompute"),
    "zero": (torchtitan_files, partial(launched, pp=1, tp=1, micro_batch=1, zero=1), "--stack torchtitan"),
    "tensor ranks": (
        torchtitan_files,
        partial(launched, pp=1, tp=2, zero=0, sequence_parallel=False),
        "sequence_parallel=true",
    ),
    "contexts": (deepspeed_files, MEGATRON["contexts"], "--stack deepspeed"),
    "mixed stage": (flagscale_config, partial(launched, types=2, pp=1, tp=2, zero=1, recompute="none"), "megatron"),
}


@pytest.mark.parametrize(("make", "made", "nearest"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_run_is_refused_with_the_nearest_that_can(
    make: Callable[[Job], object], made: Made, nearest: str
) -> None:
    """One line with the reason, and what to plan with instead."""
    with pytest.raises(ExportError, match=nearest) as refusal:
        make(made())
    assert "\n" not in str(refusal.value)


def test_modules_of_recompute_are_written_and_read_back() -> None:
    """Megatron-LM's flag takes several words, Megatron-Bridge's setting a list; the core alone needs none."""
    experts = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 512}
    model = taut.ModelSpec.parse({**MODEL.model_dump(exclude_none=True), "experts": experts}, "small")
    fixed = {"pp": 2, "tp": 2, "micro_batch": 1, "schedule": "1f1b", "recompute": "selective"}
    job = launched_on(small_cluster(), model, **fixed, recompute_modules="moe_act+layernorm")
    flags = megatron_flags(job)
    assert flags["--recompute-modules"] == "layernorm moe_act"
    assert bridge_settings(job)["model.recompute_modules"] == ["layernorm", "moe_act"]
    assert launch_of_text(flags_text(flags)).values["recompute_modules"] == "layernorm+moe_act"
    alone = launched_on(small_cluster(), model, **fixed, recompute_modules="core_attn")
    assert "--recompute-modules" not in megatron_flags(alone)


@pytest.mark.parametrize("degrees", [{"ep": 4, "etp": 1}, {"ep": 2, "etp": 2}, {"ep": 1}])
def test_expert_degrees_are_written_and_read_back(degrees: dict[str, int]) -> None:
    """Megatron-LM's flags and Megatron-Bridge's settings have them; frameworks without such ranks refuse the plan."""
    experts = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 512}
    model = taut.ModelSpec.parse({**MODEL.model_dump(exclude_none=True), "experts": experts}, "small")
    fixed = {"pp": 2, "tp": 2, "micro_batch": 1, "schedule": "1f1b", "recompute": "none", "zero": 0}
    job = launched_on(small_cluster(), model, **fixed, **degrees)
    flags, settings = megatron_flags(job), bridge_settings(job)
    etp = degrees.get("etp", 2)
    assert flags["--expert-model-parallel-size"] == str(degrees["ep"])
    assert flags["--expert-tensor-parallel-size"] == str(etp)
    assert settings["model.expert_model_parallel_size"] == degrees["ep"]
    assert settings["model.expert_tensor_parallel_size"] == etp
    found = launch_of_text(flags_text(flags)).values
    assert {name: found[name] for name in degrees} == degrees
    if degrees["ep"] > 1:
        with pytest.raises(ExportError, match=r"expert ranks \(ep=.*, which torchtitan has not"):
            torchtitan_files(job)
        with pytest.raises(ExportError, match=r"expert ranks \(ep=.*, which DeepSpeed has not"):
            deepspeed_files(job)


def offloaded(fraction: float, **fix: Any) -> Job:
    """A plan with a share of its optimizer states in the hosts' memory."""
    job = launched(**fix)
    inputs = copy.deepcopy(job.plan.document["inputs"])
    inputs["memory_model"]["spec"]["optimizer_offload_fraction"] = fraction
    return Job(taut.Plan(job.plan.document | {"inputs": inputs}))


OFFLOADABLE: dict[str, Any] = {"pp": 2, "tp": 2, "micro_batch": 1, "zero": 1, "schedule": "1f1b", "recompute": "none"}


@pytest.mark.parametrize("fraction", [0.25, 1.0])
def test_states_on_hosts_are_written_and_read_back(fraction: float) -> None:
    """Flags of Megatron-LM, settings of Megatron-Bridge, keys of FlagScale."""
    job = offloaded(fraction, **OFFLOADABLE)
    flags = megatron_flags(job)
    assert flags["--optimizer-offload-fraction"] == f"{fraction:g}"
    assert {"--optimizer-cpu-offload", "--use-precision-aware-optimizer", "--use-distributed-optimizer"} <= set(flags)
    assert launch_of_text(flags_text(flags)).values["optimizer_offload_fraction"] == fraction
    assert bridge_settings(job)["optimizer.optimizer_offload_fraction"] == fraction
    assert flagscale_config(job)["system"]["optimizer_offload_fraction"] == fraction
    assert "--optimizer-cpu-offload" not in megatron_flags(offloaded(0.0, **OFFLOADABLE))


def test_deepspeed_has_states_on_hosts_beside_zero() -> None:
    """All of them beside any stage, a part beside ZeRO-3; the configuration is read back."""
    for fraction, zero in ((1.0, 2), (0.5, 3)):
        job = offloaded(fraction, pp=1, tp=1, micro_batch=1, zero=zero, recompute="none")
        config = json.loads(deepspeed_files(job)["ds_config.json"])
        assert config["zero_optimization"]["stage"] == zero
        assert deepspeed_launch(config, "a file", Run(), {}).values["optimizer_offload_fraction"] == fraction
    with pytest.raises(ExportError, match="a part of the optimizer states in the host's memory beside ZeRO-2"):
        deepspeed_files(offloaded(0.5, pp=1, tp=1, micro_batch=1, zero=2, recompute="none"))


@pytest.mark.parametrize(
    ("make", "zero", "words"),
    [
        (megatron_flags, 3, "with ZeRO-3, expected ZeRO-1"),
        (bridge_settings, 0, "with ZeRO-0, expected ZeRO-1"),
        (torchtitan_files, 3, "which torchtitan has not without weights and gradients"),
        (deepspeed_files, 0, "without ZeRO"),
    ],
)
def test_states_on_hosts_that_a_framework_has_not_are_refused(
    make: Callable[[Job], object], zero: int, words: str
) -> None:
    """One line with the reason and what to plan with instead."""
    with pytest.raises(ExportError, match=words):
        make(offloaded(1.0, pp=1, tp=1, micro_batch=1, zero=zero, recompute="none"))
