"""Refusals of fixed values: the rule that is broken, and the nearest values that keep it."""

from typing import Any

import pytest

import taut
from taut.data.catalog.builtin import catalog_stack
from taut.errors import DataError
from taut.exports.export import launch_files
from taut.exports.job import ExportError, Job
from taut.formulations.degrees import divides_kv, tensor_degrees
from taut.formulations.stack_space import stack_space
from tests.support.launches import small_cluster

SHAPE: dict[str, Any] = {"layers": 12, "hidden": 768, "heads": 12, "ffn_hidden": 3072, "seq": 256, "vocab": 1024}
MODEL = taut.ModelSpec.parse({"name": "grouped", **SHAPE, "kv_heads": 2}, "grouped")
CASES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("product", {"pp": 4, "tp": 4}, {}, "pp 4 x tp 4 = 16 is no part of 8 devices: a product of 8 is"),
    ("heads", {"tp": 8}, {"max_tp": 8}, "tp 8 does not divide 12 heads; the nearest: tp=4"),
    ("batch", {"pp": 1, "tp": 1, "cp": 1}, {"global_batch": 12}, "8 replicas do not divide a global batch of 12"),
    (
        "micro",
        {"dp": 4, "micro_batch": 8},
        {},
        "micro-batch 8 does not divide the 4 sequences of a replica: micro_batch=4",
    ),
    (
        "keys",
        {"tp": 4},
        {"stack": "torchtitan"},
        "tp 4 does not divide 2 key-value heads, which no ranks of torchtitan",
    ),
    ("zero", {"pp": 4, "zero": 2}, {"stack": "deepspeed"}, "deepspeed has ZeRO-0 and ZeRO-1 in pipelines, not ZeRO-2"),
    (
        "interleaved",
        {"pp": 4, "tp": 1, "dp": 2, "vpp": 3, "micro_batch": 1, "schedule": "interleaved-1f1b"},
        {"global_batch": 12},
        "6 micro-batches are no multiple of 4 stages, which interleaved-1f1b needs: a global batch of 8 or 16 has one",
    ),
    ("chunks", {"vpp": 2, "schedule": "1f1b", "pp": 2}, {}, "schedule 1f1b has one chunk a device, not vpp 2"),
]


@pytest.mark.parametrize(("fix", "options", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_broken_rule_is_named(fix: dict[str, Any], options: dict[str, Any], words: str) -> None:
    """One of nine rules, with what keeps it."""
    with pytest.raises(DataError) as refusal:
        taut.plan(MODEL, small_cluster(), **{"global_batch": 16, "fix": fix, "precision": "bf16", **options})
    assert words in str(refusal.value), str(refusal.value)


def test_more_stages_than_layers_are_told_the_most_that_divide_the_devices() -> None:
    """Sixteen stages of twelve layers: eight, and not the refused number again."""
    with pytest.raises(DataError, match=r"pp 16 is above 12 layers: pp=8(\D|$)"):
        taut.plan(MODEL, small_cluster(4), global_batch=16, fix={"pp": 16}, precision="bf16")


def test_no_ranks_of_torchtitan_share_key_value_heads() -> None:
    """Two key-value heads: two tensor ranks at most, in the space, its check, and the plan; Megatron-LM has four."""
    cluster = small_cluster()
    assert tensor_degrees(MODEL, cluster, 4) == [1, 2, 4]
    assert tensor_degrees(MODEL, cluster, 4, replicated_kv=False) == [1, 2]
    assert divides_kv(MODEL, 2) and not divides_kv(MODEL, 4)
    plan = taut.plan(MODEL, cluster, global_batch=2, stack="torchtitan", max_cp=1, precision="bf16", time_limit=20)
    assert plan.strategy.tp <= 2
    assert not plan.document["certificate"]["space"]["replicated_kv"]
    assert taut.verify(plan).holds
    widest = taut.plan(MODEL, cluster, global_batch=2, max_cp=1, precision="bf16", time_limit=20, fix={"tp": 4})
    assert "replicated_kv" not in widest.document["certificate"]["space"]


def test_no_stages_of_torchtitan_share_an_embedding() -> None:
    """A head that is the embedding: one stage, in the space, its check, and the plan; Megatron-LM has several."""
    tied, cluster = MODEL.model_copy(update={"tied_embedding": True}), small_cluster()
    options: dict[str, Any] = {"global_batch": 4, "max_cp": 1, "precision": "bf16"}
    plan = taut.plan(tied, cluster, stack="torchtitan", time_limit=20, **options)
    assert plan.strategy.pp == 1 and not plan.document["certificate"]["space"]["tied_pipelines"]
    assert taut.verify(plan).holds
    for model, stack in ((MODEL, "torchtitan"), (tied, "megatron-core")):
        assert stack_space(catalog_stack(stack), model, cluster, 4).tied_pipelines
    with pytest.raises(DataError, match="pp 2: torchtitan has no pipelines of a model whose head is its embedding"):
        taut.plan(tied, cluster, stack="torchtitan", fix={"pp": 2}, **options)
    several = taut.plan(tied, cluster, fix={"pp": 2, "tp": 1, "zero": 0, "micro_batch": 1}, time_limit=20, **options)
    with pytest.raises(ExportError, match="2 stages of a model whose head is its embedding, which torchtitan refuses"):
        launch_files(Job(several), ["torchtitan"])


def test_context_ranks_that_layers_without_attention_cannot_have_are_refused_by_name() -> None:
    """Heads that do not divide, a stack without such ranks, and keys that an indexer chooses are named."""
    sizes = {"hidden": 768, "heads": 12, "ffn_hidden": 3072, "seq": 256}
    mixer = {"key_dim": 16, "value_dim": 64, "made": 1600, "chunk": 64}
    layers = [{"kind": "mamba", "mixer": mixer, **sizes}, {"kind": "plain", **sizes}] * 2
    model = taut.ModelSpec.parse({"name": "mixed", "vocab": 1024, "layers": layers}, "mixed")
    with pytest.raises(DataError, match=r"have no attention, torchtitan has no context ranks for them: cp 1"):
        taut.plan(model, small_cluster(), global_batch=16, fix={"cp": 2}, precision="bf16", stack="torchtitan")
    with pytest.raises(DataError, match=r"tp 2 x cp 4 does not divide their 12 heads, which context ranks exchange"):
        taut.plan(model, small_cluster(), global_batch=16, fix={"cp": 4, "tp": 2}, precision="bf16")
    latent = {"kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
    chosen = {"kind": "sparse", "latent": latent | {"index_heads": 2, "index_dim": 16}, **sizes}
    sparse = taut.ModelSpec.parse({"name": "sparse", "vocab": 1024, "layers": [chosen] * 4}, "sparse")
    with pytest.raises(DataError, match=r"gather keys where an indexer chooses tokens: cp_comm=all_gather"):
        taut.plan(sparse, small_cluster(), global_batch=16, fix={"cp": 2, "cp_comm": "p2p"}, precision="bf16")
