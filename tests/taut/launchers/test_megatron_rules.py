"""Megatron-LM's rules on command lines, each case with what validate_args or the configuration said of it."""

import pytest

import taut
from taut.errors import DataError
from taut.launchers.megatron import flags_of
from taut.launchers.megatron_rules import broken
from taut.launchers.read import launch_of_text
from taut.launchers.settings import Run

DENSE = {"hidden": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 16384, "seq": 4096, "vocab": 50304}


def model(layers: int = 48, experts: int = 0) -> taut.ModelSpec:
    """Layers of 32 heads in 8 groups, with some experts."""
    routed = {"experts": {"num_experts": experts, "experts_per_token": 2, "expert_ffn_hidden": 1024}} if experts else {}
    return taut.ModelSpec.parse({"name": "m", "layers": layers, **DENSE, **routed}, "m")


SHORT = {
    "-tp": "--tensor-model-parallel-size", "-pp": "--pipeline-model-parallel-size", "-cp": "--context-parallel-size",
    "-mbs": "--micro-batch-size", "-gbs": "--global-batch-size", "-ep": "--expert-model-parallel-size",
    "-etp": "--expert-tensor-parallel-size", "-vpp": "--num-virtual-stages-per-pipeline-rank",
    "-each": "--num-layers-per-virtual-pipeline-stage", "-first": "--decoder-first-pipeline-num-layers",
    "-last": "--decoder-last-pipeline-num-layers", "-emb": "--account-for-embedding-in-pipeline-split",
    "-loss": "--account-for-loss-in-pipeline-split", "-layout": "--pipeline-model-parallel-layout",
    "-gran": "--recompute-granularity", "-n": "--num-layers",
    "-group": "--microbatch-group-size-per-virtual-pipeline-stage",
}  # fmt: skip


def rules(line: str, layers: int, devices: int = 64, experts: int = 0) -> list[str]:
    """What a line in short flags breaks."""
    words = [SHORT.get(word, word) for word in line.split()]
    return list(broken(flags_of(words), Run(model(layers, experts), devices)))


ACCEPTED = [
    ("-tp 8 -pp 4 -mbs 1 -gbs 64", 48, 0),
    ("-tp 8 -pp 4 -mbs 1 -gbs 64 -emb -loss", 46, 0),
    ("-tp 8 -pp 4 -mbs 1 -gbs 64 -emb -loss -each 3", 46, 0),
    ("-tp 8 -pp 4 -mbs 1 -gbs 64 -first 10 -last 12", 46, 0),
    ("-tp 8 -pp 4 -mbs 1 -gbs 64 -layout Et*11|t*12|t*12|t*11L", 46, 0),
    ("-tp 8 -pp 4 -mbs 1 -gbs 64 -each 5", 80, 0),
    ("-tp 8 -pp 4 -mbs 1 -gbs 64 -vpp 4", 80, 0),
    ("-tp 8 -pp 2 -mbs 1 -gbs 64 -ep 4 -etp 1 --sequence-parallel", 48, 32),
    ("-tp 16 -pp 1 -mbs 1 -gbs 64", 48, 0),
    ("-tp 1 -pp 1 -mbs 1 -gbs 64 -gran full --recompute-method uniform --recompute-num-layers 1", 48, 0),
    ("-tp 1 -pp 1 -mbs 1 -gbs 64 -gran selective", 48, 0),
    ("-tp 2 -pp 1 -cp 4 -mbs 1 -gbs 64 --seq-length 8192", 48, 0),
]
STEP = "-tp 2 -pp 2 -mbs 1 -gbs 64 --overlap-param-gather-with-optimizer-step"
GATHER = "--overlap-param-gather --overlap-grad-reduce"
FULL, METHOD = "-tp 2 -pp 1 -mbs 1 -gbs 64 -gran full", "--recompute-method uniform --recompute-num-layers 1"
CAPACITY = "-tp 1 -pp 1 -mbs 1 -gbs 64 --moe-expert-capacity-factor 1.0"
REFUSED = [
    ("-tp 8 -pp 4 -mbs 1 -gbs 64", 46, 0, "does not divide 46 layers, expected 2 or 23"),
    ("-tp 8 -pp 8 -mbs 1 -gbs 64", 60, 0, "does not divide 60 layers, expected 6 or 10"),
    ("-tp 8 -pp 4 -mbs 1 -gbs 64 -emb", 46, 0, "46 layers and the embedding"),
    ("-tp 8 -pp 2 -mbs 1 -gbs 64 -vpp 12", 40, 0, "divisor of 40 layers over 2 stages, which is 20, such as 10 or 20"),
    ("-tp 4 -pp 16 -mbs 1 -gbs 64 -each 2", 80, 0, "divisor of 80 layers over 16 stages"),
    ("-tp 8 -pp 1 -mbs 1 -gbs 64 -vpp 2", 48, 0, "an interleaved schedule has 2 stages at least"),
    ("-tp 8 -pp 2 -mbs 1 -gbs 64 -vpp 2 --no-overlap-p2p-communication", 48, 0, "has 3 stages at least"),
    ("-tp 2 -pp 4 -mbs 1 -gbs 48 -vpp 2", 48, 0, "6 micro-batches are no multiple of 4 stages"),
    ("-tp 2 -pp 4 -mbs 1 -gbs 48 -vpp 2", 48, 0, "expected a global batch of 32 or 64"),
    ("-tp 2 -pp 4 -mbs 1 -gbs 16 -vpp 2", 48, 0, "2 micro-batches over 4 stages in chunks: expected 4 at least"),
    ("-tp 2 -pp 4 -mbs 1 -gbs 48 -vpp 2 -group 8", 48, 0, "expected 8 at least, a global batch of 64"),
    ("-tp 2 -pp 4 -mbs 1 -gbs 48 -vpp 2 -group 2", 48, 0, "groups of 2 micro-batches over 4 stages in chunks"),
    ("-tp 2 -pp 4 -mbs 1 -gbs 64 -vpp 2 -group 5", 48, 0, "8 micro-batches are no multiple of their groups of 5"),
    ("-tp 8 -pp 4 -mbs 1 -gbs 64 -vpp 2 -each 6", 48, 0, "expected one of them"),
    ("-tp 8 -pp 4 -mbs 1 -gbs 64 -first 10 -loss", 48, 0, "expected one of them"),
    ("-tp 8 -pp 4 -mbs 1 -gbs 64 -layout Et*11|t*12|t*12|t*12L", 46, 0, "47 layers, expected 46"),
    ("-tp 8 -pp 4 -mbs 1 -gbs 64 -layout Et*23|t*22|tL", 46, 0, "3 chunks, expected a multiple of 4 stages"),
    ("-tp 8 -pp 3 -mbs 1 -gbs 64", 48, 0, "= 24 does not divide 64 devices, expected a product of 16 or 32"),
    ("-tp 8 -pp 1 -mbs 3 -gbs 64", 48, 0, "is no multiple of micro-batch 3 x 8 replicas, expected 48 or 72"),
    ("-tp 6 -pp 1 -mbs 1 -gbs 64", 48, 0, "does not divide 64 devices"),
    ("-tp 8 -pp 1 -mbs 1 -gbs 64 -ep 12", 48, 128, "does not divide 128 experts, expected 8 or 16"),
    ("-tp 8 -pp 1 -mbs 1 -gbs 64 -ep 16", 48, 128, "etp 8 x ep 16 x pp 1 = 128 does not divide 64 devices"),
    ("-tp 8 -pp 1 -mbs 1 -gbs 64 -ep 2", 48, 0, "m has no experts"),
    ("-tp 1 -pp 1 -mbs 1 -gbs 64 -gran full", 48, 0, "--recompute-method uniform or block"),
    ("-tp 1 -pp 1 -mbs 1 -gbs 64 -gran full --recompute-method uniform", 48, 0, "--recompute-num-layers with it"),
    ("-tp 1 -pp 1 -mbs 1 -gbs 64 -gran selective --recompute-method uniform", 48, 0, "selective"),
    ("-tp 2 -pp 1 -cp 4 -mbs 1 -gbs 64 --seq-length 4100", 48, 0, "expected a multiple of 8"),
    ("-tp 2 -pp 2 -mbs 1 -gbs 64 --cpu-offloading-num-layers 2", 48, 0, "expected one stage"),
    ("-tp 1 -pp 2 -mbs 1 -gbs 64 --use-torch-fsdp2", 48, 0, "expected one stage"),
    ("-tp 2 -pp 1 -mbs 1 -gbs 64 --tp-comm-overlap", 48, 0, "expected --sequence-parallel"),
    ("-tp 2 -pp 1 -mbs 1 -gbs 64 --overlap-param-gather", 48, 0, "expected --use-distributed-optimizer"),
    ("-tp 1 -pp 4 -mbs 1 -gbs 64 -ep 4 --overlap-moe-expert-parallel-comm", 48, 8, "expected several chunks"),
    ("-tp 2 -pp 2 -mbs 1 -gbs 64 --overlap-p2p-communication-warmup-flush", 48, 0, "expected several chunks a stage"),
    ("-tp 8 -pp 2 -mbs 1 -gbs 64 -layout Et*24|t*24L --mtp-num-layers 1", 48, 0, "no m, expected one for each of"),
    (STEP, 48, 0, "with-optimizer-step: expected --use-distributed-optimizer with it"),
    (f"{STEP} --use-distributed-optimizer", 48, 0, "with-optimizer-step: expected --overlap-param-gather with it"),
    (f"{STEP} --use-distributed-optimizer {GATHER}", 48, 0, "with-optimizer-step: expected several chunks a stage"),
    (f"{FULL} --distribute-saved-activations", 48, 0, "expected tensor ranks, and full recompute by a method"),
    (f"{FULL} {METHOD} --distribute-saved-activations --sequence-parallel", 48, 0, "expected one of them"),
    ("-tp 1 -pp 1 -mbs 1 -gbs 64 --moe-enable-deepep", 48, 8, "type allgather: expected flex"),
    ("-tp 1 -pp 1 -mbs 1 -gbs 64 --moe-pad-expert-input-to-capacity", 48, 8, "expected --moe-expert-capacity-factor"),
    (f"{CAPACITY} --moe-router-load-balancing-type sinkhorn", 48, 8, "type sinkhorn: expected aux_loss, global_aux"),
    ("-tp 1 -pp 1 -mbs 1 -gbs 64 --moe-router-enable-expert-bias", 48, 8, "function softmax: expected sigmoid"),
    ("-tp 1 -pp 1 -mbs 1 -gbs 64 --moe-router-topk 1", 48, 8, "expected --moe-router-pre-softmax with it"),
    ("-tp 1 -pp 1 -mbs 1 -gbs 64 --moe-router-num-groups 3 --moe-router-group-topk 2", 48, 8, "expected 2 or 4"),
    ("-tp 1 -pp 1 -mbs 1 -gbs 64 --delay-wgrad-compute", 48, 8, "expected --overlap-moe-expert-parallel-comm"),
]


@pytest.mark.parametrize(("line", "layers", "experts"), ACCEPTED)
def test_what_megatron_runs(line: str, layers: int, experts: int) -> None:
    """Nothing is broken."""
    assert rules(line, layers, experts=experts) == []


@pytest.mark.parametrize(("line", "layers", "experts", "words"), REFUSED)
def test_what_megatron_refuses(line: str, layers: int, experts: int, words: str) -> None:
    """The first broken rule, with the nearest values that keep it."""
    assert any(words in rule for rule in rules(line, layers, experts=experts)), rules(line, layers, experts=experts)


def test_heads_are_the_lines_own() -> None:
    """Groups of a line that states other heads than the model, and of one that states none."""
    run = Run(model(), 96)
    line = "--tensor-model-parallel-size 12 --micro-batch-size 1"
    assert "does not divide 32 heads, expected 8 or 16" in next(broken(flags_of(line.split()), run))
    own = f"{line} --num-attention-heads 24 --num-query-groups 8"
    assert "neither divides 8 query groups" in next(broken(flags_of(own.split()), run))


def test_context_ranks_exchange_heads_of_layers_without_attention() -> None:
    """Four context ranks of two tensor ranks have heads of their own of 16, and none of 12; torchtitan has no such."""
    mixer = {"key_dim": 16, "value_dim": 64, "made": 1600, "chunk": 64}
    for heads, words in ((16, []), (12, ["tp 2 x cp 4 = 8 does not divide 12 heads of layers 'mamba'"])):
        sizes = {"hidden": 768, "heads": heads, "mixer": mixer, "ffn_hidden": 3072, "seq": 256}
        layers = [{"kind": "mamba", "count": 2, **sizes}]
        mixed = taut.ModelSpec.parse({"name": "mixed", "vocab": 1024, "layers": layers}, "mixed")
        line = "--tensor-model-parallel-size 2 --context-parallel-size 4 --micro-batch-size 1 --global-batch-size 64"
        assert list(broken(flags_of(line.split()), Run(mixed, 64))) == words
    with pytest.raises(DataError, match="context_parallel_degree 2 with layers 'mamba' without attention, expected 1"):
        launch_of_text("--parallelism.context_parallel_degree 2 --training.local_batch_size 1", Run(mixed, 64))


def test_the_first_reason_is_megatrons() -> None:
    """Of several broken rules, in the order of the validation and then of the configuration."""
    line = "-tp 1 -pp 3 -mbs 1 -gbs 216 --seq-length 4096 --max-position-embeddings 2048 -gran full "
    said = rules(line + "--num-experts 8 -ep 3 -vpp 5", 80, devices=72)
    found = ["--max-position-embeddings", "does not divide 8 experts", "--recompute-method uniform", "80 layers"]
    assert all(words in rule for words, rule in zip(found, said, strict=True)), said
    said = rules("-tp 2 -pp 2 -mbs 1 -gbs 64 --num-experts 8 -ep 2 --sequence-parallel", 48, experts=8)
    assert said == ["--num-experts 8 with etp 2: expected --disable-bias-linear, or etp 1 with biases"]


def test_a_line_without_layers_has_the_models() -> None:
    """Eighty layers on four stages in chunks of five are four chunks; 48 layers have no chunks of five."""
    line = "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --micro-batch-size 1 " + (
        "--num-layers-per-virtual-pipeline-stage 5"
    )
    assert launch_of_text(line, Run(model(80), 64)).values["vpp"] == 4
    with pytest.raises(DataError, match=r"Megatron-LM refuses it: .* 5: expected a divisor of 48 layers over 4 stages"):
        launch_of_text(line, Run(model(48), 64))
    with pytest.raises(DataError, match="expected --num-layers with it"):
        launch_of_text(line)
