"""
Random command lines of Megatron-LM beside its own argument parser and validation.

``python -m benchmarks.launcher_lines draw > cases.json`` draws the lines (``draw further``: with some of ``FURTHER``),
``TAUT_MEGATRON_LM=CHECKOUT python -m tests.support.checkout_worker megatron_rules < cases.json > answers.txt`` asks the
checkout, and ``python -m benchmarks.launcher_lines compare cases.json answers.txt`` prints the table of the
documentation: for every kind of reason how often Megatron-LM gave it, how often taut gave it first, and how often taut
names it where Megatron-LM does.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from taut.launchers.megatron import flags_of
from taut.launchers.megatron_rules import broken
from taut.launchers.settings import Run

LINES, SEED = 300, 48
LACKING = "apply_rope_fusion is not available"
"""What Megatron-LM says last where Transformer Engine is not installed: no rule of the line is broken."""
KINDS = {
    "processes": (("world size (", "world_size ("), ("devices, expected a product",)),
    "batch": (("eval_global_batch_size", "global batch size ("), ("is no multiple of micro-batch",)),
    "layers by stages": (
        (
            "Number of layers should be divisible",
            "number of layers of the model must be divisible",
            "num_layers should be divisible",
            "should be divisible by config.pipeline",
            "number of middle layers",
            "num_layers: ",
            "number of layers at middle stage",
            "Mismatch: ",
            "layers must be divisible by pipeline",
        ),
        ("does not divide", "layers are left for", "with its ends"),
    ),
    "layers by chunks": (
        (
            "number of layers per pipeline stage must be divisible",
            "should be divisible by the virtual",
            "must be divisible by virtual",
            "divisible by vp",
            "on each pipeline rank",
            "virtual pipeline",
            "vp_size",
            "num_layers_per_pipeline_rank",
        ),
        ("expected a divisor of", "expected multiples"),
    ),
    "no words, or context ranks": (
        ("AssertionError", "a2a+p2p"),
        ("--fp16 with", "--hierarchical-context", "--cp-comm-type"),
    ),
    "routing": (
        ("moe_expert_capacity", "pre-softmax", "Expert bias for", "DeepEP backend", "router_num_groups", "delay_wgrad"),
        ("--moe-", "--delay-wgrad-compute"),
    ),
    "messages between stages": (("warmup and flush",), ("warmup-flush",)),
    "several divisions": (
        (
            "No more than one of",
            "cannot be set",
            "cannot beset",
            "please use --num-virtual",
            "set at the same time",
            "mutually exclusive",
        ),
        ("expected one of them", "expected --num-virtual"),
    ),
    "layout": (("layout", "decoder"), ("--pipeline-model-parallel-layout",)),
    "stages of chunks": (("interleaved schedule",), ("interleaved schedule has",)),
    "overlap of experts' exchanges": (
        ("overlap moe expert", "overlap_moe_expert_parallel_comm,", "when enabling overlap_moe"),
        ("--overlap-moe",),
    ),
    "biases of experts": (("Bias in Moe",), ("with biases",)),
    "experts": (("Number of experts should", "num_experts must be"), ("experts, expected", "no experts")),
    "heads": (("num_attention_heads",), ("heads, expected",)),
    "query groups": (("num_query_groups",), ("query groups",)),
    "sequence": (("seq-length should", "max_position_embeddings"), ("--seq-length", "--max-position")),
    "recompute": (("recompute", "recomput"), ("recompute",)),
    "activations on hosts": (("CPU offloading", "Pipeline parallelism with CPU"), ("--cpu-offloading",)),
    "states on hosts": (("optimizer cpu offload",), ("--optimizer-cpu-offload",)),
    "overlap of parameter gathers": (("--overlap-param-gather", "overlap-param"), ("--overlap-param-gather",)),
    "overlap of tensor ranks' exchanges": (("Tensor parallel communication/GEMM",), ("--tp-comm-overlap",)),
}
"""Kinds of reasons, by what Megatron-LM's messages and taut's say."""


def drawn(rng: np.random.Generator) -> dict[str, Any]:
    """A line with its number of processes."""

    def one(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    layers, heads = one(24, 32, 40, 46, 48, 60, 61, 64, 80, 94), one(16, 24, 32, 32, 64)
    tp, pp, cp = one(1, 2, 4, 8), one(1, 1, 2, 2, 3, 4, 4, 8), one(1, 1, 1, 2)
    words = ["--num-layers", layers, "--hidden-size", 4096, "--num-attention-heads", heads, "--kv-channels", 128]
    words += ["--seq-length", one(4096, 4096, 4100, 4098), "--max-position-embeddings", one(8192, 8192, 8192, 2048)]
    words += ["--position-embedding-type", "rope", "--no-rope-fusion", "--bf16", "--tensor-model-parallel-size", tp]
    words += ["--pipeline-model-parallel-size", pp, "--context-parallel-size", cp]
    words += ["--micro-batch-size", one(1, 1, 2, 4), "--global-batch-size", one(192, 768, 768, 1536, 100)]
    if groups := one(0, 0, 2, 8, 6):
        words += ["--group-query-attention", "--num-query-groups", groups]
    words += _division(one, layers, pp)
    if experts := one(0, 0, 8, 64, 60):
        words += ["--num-experts", experts, "--expert-model-parallel-size", one(1, 2, 8, 16)]
        words += one([], ["--expert-tensor-parallel-size", 1])
    elif rng.random() < 0.05:
        words += ["--expert-model-parallel-size", 2]
    words += one(
        [], [], ["--recompute-activations"], ["--recompute-granularity", "full"],
        ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", 1],
        ["--recompute-granularity", "selective", "--recompute-method", "block"],
        ["--recompute-granularity", "full", "--recompute-method", "block"],
    )  # fmt: skip
    words += one([], ["--sequence-parallel"])
    words += one([], [], [], ["--tp-comm-overlap"], ["--overlap-param-gather"], ["--use-distributed-optimizer"])
    words += one([], [], [], [], ["--cpu-offloading-num-layers", 2], ["--optimizer-cpu-offload"])
    return {"words": list(map(str, words)), "world": one(16, 32, 48, 64, 96)}


def _division(one: Any, layers: int, pp: int) -> list[Any]:
    """Flags of a division, some that suit the layers and some that do not."""
    each = max(layers // pp, 1)
    first, rest = each - 1, layers - each + 1
    layout = "|".join(["Et*" + str(each), *[f"t*{each}"] * (pp - 2), f"t*{layers - each * (pp - 1)}L"][:pp])
    layout = f"Et*{layers}L" if pp == 1 else layout
    kind = one("", "", "", "chunks", "chunks", "each", "ends", "first", "layout", "both")
    found: dict[str, list[Any]] = {
        "": [],
        "chunks": ["--num-virtual-stages-per-pipeline-rank", one(2, 3, 4, 5)],
        "each": ["--num-layers-per-virtual-pipeline-stage", one(1, 2, 3, 5)],
        "ends": one(
            ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"],
            ["--account-for-loss-in-pipeline-split"],
        ),
        "first": one(
            ["--decoder-first-pipeline-num-layers", max(first, 1)],
            ["--decoder-last-pipeline-num-layers", max(rest - (pp - 2) * each, 1)],
        ),
        "layout": ["--pipeline-model-parallel-layout", one(layout, layout, layout.replace("E", "Et|", 1))],
        "both": one(
            ["--num-virtual-stages-per-pipeline-rank", 2, "--num-layers-per-virtual-pipeline-stage", 2],
            ["--decoder-first-pipeline-num-layers", 2, "--account-for-loss-in-pipeline-split"],
            ["--decoder-first-pipeline-num-layers", 2, "--num-layers-per-virtual-pipeline-stage", 2],
        ),
    }
    return found[kind]


FURTHER: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *("--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"),
            *("--use-precision-aware-optimizer", "--distribute-saved-activations", "--no-overlap-p2p-communication"),
            *("--disable-bias-linear", "--swiglu", "--untie-embeddings-and-output-weights", "--fp16", "--qk-layernorm"),
            *("--multi-latent-attention", "--overlap-param-gather-with-optimizer-step", "--delay-wgrad-compute"),
            *("--overlap-p2p-communication-warmup-flush", "--moe-shared-expert-overlap", "--moe-grouped-gemm"),
            *("--overlap-moe-expert-parallel-comm", "--moe-pad-expert-input-to-capacity", "--moe-enable-deepep"),
            *("--moe-router-enable-expert-bias", "--moe-router-pre-softmax"),
        ),
        ("",),
    ),
    "--mtp-num-layers": ("1",),
    "--cp-comm-type": ("p2p", "a2a", "allgather", "a2a+p2p"),
    "--hierarchical-context-parallel-sizes": ("2 1", "2 2"),
    "--optimizer": ("adam", "sgd", "muon", "dist_muon"),
    "--microbatch-group-size-per-virtual-pipeline-stage": ("2", "4", "8"),
    "--moe-token-dispatcher-type": ("alltoall", "allgather", "flex"),
    "--moe-router-topk": ("1", "2", "8"),
    "--moe-shared-expert-intermediate-size": ("1024",),
    "--moe-router-num-groups": ("8 --moe-router-group-topk 4",),
    "--moe-expert-capacity-factor": ("1.0",),
    "--moe-router-load-balancing-type": ("aux_loss", "none", "sinkhorn", "seq_aux_loss"),
    "--moe-router-score-function": ("sigmoid", "softmax"),
}
"""Further flags of a line, each with its values; a line has one in ten of them."""


def further(rng: np.random.Generator) -> dict[str, Any]:
    """A line with some of ``FURTHER``; those of experts stand in lines with experts."""
    case = drawn(rng)
    words: list[str] = case["words"]
    for flag, values in FURTHER.items():
        suits = flag not in words and ("--num-experts" in words or not flag.startswith("--moe"))
        if rng.random() < 0.1 and suits:
            words += [flag, *values[int(rng.integers(len(values)))].split()]
    return case


def cases(draw: Callable[[np.random.Generator], dict[str, Any]] = drawn) -> list[dict[str, Any]]:
    """
    Lines, without those that groups of processes or the schedule of a running training refuse.

    Nine in ten random lines break some rule, so every second line is drawn until taut refuses it for none.
    """
    rng, found = np.random.default_rng(SEED), list[dict[str, Any]]()
    while len(found) < LINES:
        case = draw(rng)
        rules = list(broken(flags_of(case["words"]), Run(None, case["world"])))
        later = any("micro-batches" in rule or " x ep " in rule for rule in rules)
        if not later and not (rules and len(found) % 2):
            found.append(case)
    return found


def kind_of(message: str, theirs: bool) -> str:
    """The kind of a reason."""
    side = 0 if theirs else 1
    if not message or LACKING in message:
        return "accepted"
    for kind in (
        "no words, or context ranks",
        "recompute",
        "biases of experts",
        "overlap of experts' exchanges",
        "routing",
        "stages of chunks",
        "several divisions",
        *KINDS,
    ):
        phrases = KINDS[kind]
        if kind == "layers by stages" and not theirs and "layers" not in message.partition(", expected")[0]:
            continue
        if any(phrase.lower() in message.lower() for phrase in phrases[side]):
            return kind
    return "other"


def compare(given: list[dict[str, Any]], answers: list[dict[str, Any]]) -> list[tuple[str, int, int, int]]:
    """Rows of the table: a kind, how often Megatron-LM gave it, how often taut did, and how often taut names it."""
    theirs, ours, named = Counter[str](), Counter[str](), Counter[str]()
    for case, answer in zip(given, answers, strict=True):
        said = answer.get("refusal", "")
        rules = list(broken(flags_of(case["words"]), Run(None, case["world"])))
        kind, own = kind_of(said, True), [kind_of(rule, False) for rule in rules] or ["accepted"]
        theirs[kind] += 1
        ours[own[0]] += 1
        named[kind] += kind in own
        if kind not in own:
            print("differs:", kind, "|", said[:150], "|", rules, "|", " ".join(case["words"]), case["world"])
    kinds = sorted(set(theirs) | set(ours), key=lambda kind: (kind != "accepted", kind))
    return [(kind, theirs[kind], ours[kind], named[kind]) for kind in kinds]


def main(words: list[str]) -> None:
    """Draw lines, or compare what was said of them."""
    if words[0] == "draw":
        print(json.dumps(cases(further if words[1:] else drawn)))
        return
    answers = json.loads(Path(words[2]).read_text().splitlines()[-1])
    rows = compare(json.loads(Path(words[1]).read_text()), answers)
    print("| reason | Megatron-LM | taut, first | taut, named |\n|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")


if __name__ == "__main__":
    main(sys.argv[1:])
