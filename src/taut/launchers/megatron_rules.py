r"""
The rules of a command line that Megatron-LM checks before it trains.

With W processes, L layers (the command line's, or the model's where it has none), a = 1 where the embedding counts as a
layer and b = 1 where the loss does, v chunks a stage, and m micro-batches of every pipeline, run in groups of g (pp
unless stated),

(1) :math:`tp \cdot pp \cdot cp` divides W; where there are experts, :math:`etp \cdot ep \cdot pp` divides W as well;
(2) the micro-batch times :math:`dp = W / (tp \, pp \, cp)` divides the global batch;
(3) pp divides L + a + b, unless a layout, or the layers of the first or the last stage, are stated;
(4) the layers of a chunk divide those of a stage, and v divides the layers of every stage;
(5) if v > 1, there are two stages at least (three without overlapped exchanges between them),
    :math:`pp \le g \le m`, and :math:`m \bmod g` is 0 or at least pp;
(6) if cp > 1, 2 cp divides the tokens of a sequence; these are at most the positions that are stated;
(7) ep divides the experts;
(8) tp divides the heads, and divides the query groups or is a multiple of them; of a model with latent attention only
    heads that the command line states are held to it. Layers without attention exchange heads among context ranks, so
    tp cp divides their heads;
(9) some flags ask for other flags, or exclude them: kinds of context ranks, sharding, number formats, exchanges that
    overlap computation, recompute, and activations or optimizer states on hosts.

They are tried in the order in which Megatron-LM comes to them, so that the first broken one is the reason that it
gives: (1), (2), the parts of (3) to (5) that need no configuration, (6), (7), expert ranks of (1), (8), parts of (9)
between these, divisions with ends or chunks of their own, and last what the schedule checks of (5).

Source: megatron/training/arguments.py (validate_args), megatron/core/model_parallel_config.py,
megatron/core/transformer/transformer_config.py, megatron/core/ssm/mamba_context_parallel.py,
megatron/core/parallel_state.py, megatron/core/num_microbatches_calculator.py and
megatron/core/pipeline_parallel/schedules.py of August 2026.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from math import prod

from taut.data.suggest import multiples_around
from taut.errors import DataError
from taut.exports.architecture import (
    CHUNK,
    CHUNKS,
    EMBEDDING,
    FIRST,
    LAST,
    LAYOUT,
    LOSS,
    count,
    layers_of,
    stated_division,
)
from taut.launchers.settings import Run, nearest

PIPELINE = "--pipeline-model-parallel-size"
MTP = "--mtp-num-layers"
EXPERTS, EXPERT_RANKS = "--num-experts", "--expert-model-parallel-size"
BALANCE, _LOSSES = "--moe-router-load-balancing-type", {"aux_loss", "seq_aux_loss", "global_aux_loss", "none"}
"""How a router balances experts, and the ways that go with a capacity of experts."""
Stated = Mapping[str, str | None]
"""Flags of a command line by name, None where a flag has no value."""


def broken(flags: Stated, run: Run) -> Iterator[str]:
    """Rules (1) to (9) that a line breaks, with the nearest values that keep them; what is not known breaks none."""
    tp, pp, cp = (count(flags, flag) for flag in ("--tensor-model-parallel-size", PIPELINE, "--context-parallel-size"))
    total, ranks = layers_in(flags, run), tp * pp * cp
    yield from chain(
        _processes(run, tp, pp, cp),
        _contexts(flags, cp),
        _batch(flags, run, ranks),
        _division(flags, total, pp),
        _chunks(flags, run, pp),
        _sharding(flags, pp, chunks_in(flags, run, pp)),
        _sequence(flags, cp),
        _exchanges(flags, tp),
        _experts(flags, run),
        _states_on_hosts(flags),
        _groups(flags),
        _warm_up(flags, chunks_in(flags, run, pp)),
        _expert_groups(flags, run, tp, pp),
        _heads(flags, run, tp),
        _mixers(run, tp, cp),
        _dispatch(flags),
        _activations(flags, total, pp),
        _built_division(flags, total, pp),
        _built_experts(flags, run, tp, pp),
        _routing(flags, run),
        _built_chunks(flags, total, pp),
        _micro_batches(flags, run, pp, ranks),
    )


def layers_in(flags: Stated, run: Run) -> int:
    """Layers of the command line, or of the model; 0 where neither states them."""
    return count(flags, "--num-layers") if "--num-layers" in flags else run.layers


def _processes(run: Run, tp: int, pp: int, cp: int) -> Iterator[str]:
    """Rule (1) of the dense degrees."""
    if run.devices and run.devices % (tp * pp * cp):
        yield (
            f"tp {tp} x pp {pp} x cp {cp} = {tp * pp * cp} does not divide {run.devices} devices, expected a product "
            f"of {nearest(run.devices, tp * pp * cp)}"
        )


def _contexts(flags: Stated, cp: int) -> Iterator[str]:
    """Rule (9) of context ranks: the sizes of hierarchical groups multiply to cp."""
    sizes = flags.get("--hierarchical-context-parallel-sizes")
    if sizes and prod(int(size) for size in sizes.split() if size.isdecimal()) != cp:
        yield f"--hierarchical-context-parallel-sizes {sizes}: expected a product of {cp} context ranks"
    if "a2a+p2p" in (flags.get("--cp-comm-type") or "").split() and not sizes:
        yield "--cp-comm-type a2a+p2p: expected --hierarchical-context-parallel-sizes with it"


def _batch(flags: Stated, run: Run, ranks: int) -> Iterator[str]:
    """Rule (2)."""
    if not run.devices or run.devices % ranks or "--global-batch-size" not in flags:
        return
    micro_batch, batch = count(flags, "--micro-batch-size"), count(flags, "--global-batch-size")
    dp = run.devices // ranks
    if batch % (micro_batch * dp):
        near = " or ".join(map(str, multiples_around(batch, micro_batch * dp)))
        other = f", or a micro-batch of {nearest(batch // dp, micro_batch)}" if batch % dp == 0 else ""
        what = f"micro-batch {micro_batch} x {dp} replicas"
        yield f"--global-batch-size {batch} is no multiple of {what}, expected {near}{other}"


def _ends(flags: Stated) -> tuple[list[str], list[str]]:
    """Flags of stages with layers of their own, and of what counts as a layer."""
    return [flag for flag in (FIRST, LAST) if flag in flags], [flag for flag in (EMBEDDING, LOSS) if flag in flags]


def _division(flags: Stated, total: int, pp: int) -> Iterator[str]:
    """Rules (3) and (4) as far as the arguments decide them; ``total``: layers, 0 where they are not known."""
    several = [flag for flag in (CHUNK, CHUNKS, LAYOUT) if flags.get(flag)]
    ends, counted = _ends(flags)
    if len(several) > 1:
        yield f"{several[0]} with {several[1]}: expected one of them"
    elif layout := flags.get(LAYOUT):
        if (chunks := len(layers_of(layout))) % pp:
            yield f"{LAYOUT} {layout}: {chunks} chunks, expected a multiple of {pp} stages"
    elif ends and CHUNK in flags:
        yield f"{CHUNK} with {ends[0]}: expected {CHUNKS}"
    elif total and not ends and CHUNKS not in flags:
        yield from _even(flags, total + len(counted), pp, f"{total} layers" + _counted(counted))


def _built_division(flags: Stated, total: int, pp: int) -> Iterator[str]:
    """Rules (3) and (4) of layouts and of stages with ends of their own."""
    ends, counted = _ends(flags)
    if ends and counted:
        yield f"{ends[0]} with {counted[0]}: expected one of them"
    elif layout := flags.get(LAYOUT):
        if ends or counted:
            yield f"{LAYOUT} with {(ends + counted)[0]}: expected one of them"
        elif total and (stated := sum(layers_of(layout))) != total:
            yield f"{LAYOUT} {layout}: {stated} layers, expected {total}"
        elif flags.get(MTP) not in (None, "0") and "m" not in layout:
            yield f"{LAYOUT} {layout}: no m, expected one for each of {MTP} {flags[MTP]}"
    elif total and ends and CHUNK not in flags:
        try:
            stated_division({**flags, "--num-layers": str(total)}, pp)
        except DataError as error:
            yield str(error)
    elif total and counted and CHUNKS in flags:
        yield from _even(flags, total + len(counted), pp, f"{total} layers" + _counted(counted))


def _built_chunks(flags: Stated, total: int, pp: int) -> Iterator[str]:
    """Rules (3) and (4) of equal stages in a stated number of chunks."""
    ends, counted = _ends(flags)
    if total and CHUNKS in flags and not (ends or counted or flags.get(LAYOUT) or CHUNK in flags):
        yield from _even(flags, total, pp, f"{total} layers")


def _counted(flags: list[str]) -> str:
    """What counts as a layer, in words behind the number of layers."""
    names = {EMBEDDING: "the embedding", LOSS: "the loss"}
    return " and " + " and ".join(names[flag] for flag in flags) if flags else ""


def _even(flags: Stated, total: int, pp: int, what: str) -> Iterator[str]:
    """Rules (3) and (4) of equal stages; ``total``: L + a + b, ``what``: the same in words."""
    if total % pp:
        yield (
            f"{PIPELINE} {pp} does not divide {what}, expected {nearest(total, pp)}, or {LAYOUT}, {FIRST}, {LAST}, "
            f"{EMBEDDING} or {LOSS}"
        )
        return
    each = total // pp
    for flag in (CHUNK, CHUNKS):
        if flag in flags and each % (value := count(flags, flag)):
            divided = f"{total} layers over {pp} stages"
            yield f"{flag} {value}: expected a divisor of {divided}, which is {each}, such as {nearest(each, value)}"


def chunks_in(flags: Stated, run: Run, pp: int) -> int:
    """Chunks v of a stage; 1 where the layers that decide it are not known."""
    total = layers_in(flags, run) + (EMBEDDING in flags) + (LOSS in flags)
    if layout := flags.get(LAYOUT):
        return max(len(layers_of(layout)) // pp, 1)
    if CHUNK in flags:
        return max(total // pp // count(flags, CHUNK), 1)
    return count(flags, CHUNKS)


def _chunks(flags: Stated, run: Run, pp: int) -> Iterator[str]:
    """Rule (5) on stages."""
    least = 3 if "--no-overlap-p2p-communication" in flags else 2
    if chunks_in(flags, run, pp) > 1 and pp < least:
        flag = next(flag for flag in (LAYOUT, CHUNK, CHUNKS) if flag in flags)
        yield f"{flag} with {PIPELINE} {pp}: an interleaved schedule has {least} stages at least"


def _micro_batches(flags: Stated, run: Run, pp: int, ranks: int) -> Iterator[str]:
    """Rule (5) on micro-batches."""
    if pp == 1 or chunks_in(flags, run, pp) == 1 or not run.devices or run.devices % ranks:
        return
    if "--global-batch-size" not in flags:
        return
    sequences = count(flags, "--micro-batch-size") * (run.devices // ranks)
    group = count(flags, "--microbatch-group-size-per-virtual-pipeline-stage", pp)
    micro_batches, rest = divmod(count(flags, "--global-batch-size"), sequences)
    if rest:
        return
    if group < pp:
        yield f"groups of {group} micro-batches over {pp} stages in chunks: expected {pp} at least"
    elif micro_batches < group:
        needed = f"expected {group} at least, a global batch of {group * sequences}"
        yield f"{micro_batches} micro-batches over {pp} stages in chunks: {needed}"
    elif 0 < micro_batches % group < pp:
        near = [each * sequences for each in multiples_around(micro_batches, group)]
        what = f"{pp} stages" if group == pp else f"their groups of {group}"
        yield (
            f"{micro_batches} micro-batches are no multiple of {what}, as an interleaved schedule has them, "
            f"expected a global batch of {' or '.join(map(str, near))}"
        )


def _sharding(flags: Stated, pp: int, chunks: int) -> Iterator[str]:
    """Rule (9) of sharding and number formats; ``chunks`` of a stage."""
    shards = {"--use-distributed-optimizer", "--use-megatron-fsdp"} & set(flags)
    if "--overlap-param-gather" in flags:
        if not shards and flags.get("--optimizer") != "dist_muon":
            yield "--overlap-param-gather: expected --use-distributed-optimizer with it"
        elif "--overlap-grad-reduce" not in flags:
            yield "--overlap-param-gather: expected --overlap-grad-reduce with it"
    if "--use-torch-fsdp2" in flags:
        if pp > 1:
            yield f"--use-torch-fsdp2 with {PIPELINE} {pp}: expected one stage"
        if count(flags, EXPERT_RANKS) > 1:
            yield f"--use-torch-fsdp2 with {EXPERT_RANKS} {flags[EXPERT_RANKS]}: expected no expert ranks"
        for flag in ("--use-distributed-optimizer", "--fp16"):
            if flag in flags:
                yield f"--use-torch-fsdp2 with {flag}: expected one of them"
    if (step := "--overlap-param-gather-with-optimizer-step") in flags:
        for flag in ("--use-distributed-optimizer", "--overlap-param-gather"):
            if flag not in flags:
                yield f"{step}: expected {flag} with it"
        if chunks == 1:
            yield f"{step}: expected several chunks a stage ({CHUNKS})"
    muon = flags.get("--optimizer") in ("muon", "dist_muon")
    for flag in ("--use-torch-fsdp2", "--use-megatron-fsdp"):
        if muon and flag in flags:
            yield f"{flag} with --optimizer {flags['--optimizer']}: expected one of them"
    for one, other in (("--fp16", "--bf16"), ("--fp8-format", "--fp4-format")):
        if one in flags and other in flags:
            yield f"{one} with {other}: expected one of them"


def _states_on_hosts(flags: Stated) -> Iterator[str]:
    """Rule (9) of optimizer states on hosts."""
    if "--optimizer-cpu-offload" in flags and "--use-precision-aware-optimizer" not in flags:
        yield "--optimizer-cpu-offload: expected --use-precision-aware-optimizer with it"


def _groups(flags: Stated) -> Iterator[str]:
    """Rule (9) of query groups: latent attention has none."""
    if "--multi-latent-attention" in flags and "--group-query-attention" in flags:
        yield "--multi-latent-attention with --group-query-attention: expected one of them"


def _warm_up(flags: Stated, chunks: int) -> Iterator[str]:
    """Rule (9) of messages between stages that overlap in warm-up and at the end."""
    flag = "--overlap-p2p-communication-warmup-flush"
    if flag in flags and (chunks == 1 or "--no-overlap-p2p-communication" in flags):
        yield f"{flag}: expected several chunks a stage ({CHUNKS}), and messages that overlap"


def _sequence(flags: Stated, cp: int) -> Iterator[str]:
    """Rule (6)."""
    if "--seq-length" not in flags:
        return
    tokens = count(flags, "--seq-length")
    if cp > 1 and tokens % (2 * cp):
        yield f"--seq-length {tokens} over {cp} context ranks: expected a multiple of {2 * cp}"
    if "--max-position-embeddings" in flags and count(flags, "--max-position-embeddings") < tokens:
        yield f"--max-position-embeddings {flags['--max-position-embeddings']}: expected {tokens} tokens at least"


def _experts(flags: Stated, run: Run) -> Iterator[str]:
    """Rule (7)."""
    ep, experts = count(flags, EXPERT_RANKS), _experts_in(flags, run)
    if ep > 1 and not experts:
        yield f"{EXPERT_RANKS} {ep}: {run.model.name if run.model else 'the line'} has no experts, expected 1"
    elif experts and experts % ep:
        yield f"{EXPERT_RANKS} {ep} does not divide {experts} experts, expected {nearest(experts, ep)}"


def _expert_groups(flags: Stated, run: Run, tp: int, pp: int) -> Iterator[str]:
    """Rule (1) of expert ranks."""
    ep, etp = count(flags, EXPERT_RANKS), count(flags, "--expert-tensor-parallel-size", tp)
    if run.devices and _experts_in(flags, run) and run.devices % (etp * ep * pp):
        yield (
            f"etp {etp} x ep {ep} x pp {pp} = {etp * ep * pp} does not divide {run.devices} devices, expected a "
            f"product of {nearest(run.devices, etp * ep * pp)}"
        )


def _dispatch(flags: Stated) -> Iterator[str]:
    """Rule (9) of how tokens go to experts."""
    kind = flags.get("--moe-token-dispatcher-type", "allgather")
    if "--moe-enable-deepep" in flags and kind != "flex":
        yield f"--moe-enable-deepep with --moe-token-dispatcher-type {kind}: expected flex"
    balance, capacity = flags.get(BALANCE, "aux_loss"), "--moe-expert-capacity-factor"
    if not (flags.get(capacity) or "-").startswith("-") and not {*(balance or "").split()} <= _LOSSES:
        yield f"{capacity} with {BALANCE} {balance}: expected {', '.join(sorted(_LOSSES))}"
    if "--moe-pad-expert-input-to-capacity" in flags and (flags.get(capacity) or "-").startswith("-"):
        yield f"--moe-pad-expert-input-to-capacity: expected {capacity} with it"


def _routing(flags: Stated, run: Run) -> Iterator[str]:
    """Rule (9) of routers."""
    score = flags.get("--moe-router-score-function", "softmax")
    if "--moe-router-enable-expert-bias" in flags and score not in ("sigmoid", "sqrtsoftplus"):
        yield f"--moe-router-enable-expert-bias with --moe-router-score-function {score}: expected sigmoid"
    plain = score == "softmax" and "--moe-router-pre-softmax" not in flags and flags.get(BALANCE) != "sinkhorn"
    if flags.get("--moe-router-topk") == "1" and plain:
        yield "--moe-router-topk 1: expected --moe-router-pre-softmax with it"
    groups, experts = count(flags, "--moe-router-num-groups"), _experts_in(flags, run)
    if flags.get("--moe-router-group-topk") and experts % groups:
        near = nearest(experts, groups)
        yield f"--moe-router-num-groups {groups} does not divide {experts} experts, expected {near}"
    if "--delay-wgrad-compute" in flags and "--overlap-moe-expert-parallel-comm" not in flags:
        yield "--delay-wgrad-compute: expected --overlap-moe-expert-parallel-comm with it"


def _built_experts(flags: Stated, run: Run, tp: int, pp: int) -> Iterator[str]:
    """Rule (9) of experts' biases and hidden exchanges."""
    ep, etp = count(flags, EXPERT_RANKS), count(flags, "--expert-tensor-parallel-size", tp)
    if flags.get(EXPERTS) not in (None, "0") and etp > 1 and "--disable-bias-linear" not in flags:
        yield f"{EXPERTS} {flags[EXPERTS]} with etp {etp}: expected --disable-bias-linear, or etp 1 with biases"
    if "--overlap-moe-expert-parallel-comm" in flags:
        yield from _hidden_exchanges(flags, run, pp, ep)


def _hidden_exchanges(flags: Stated, run: Run, pp: int, ep: int) -> Iterator[str]:
    """Rule (9) of exchanges between expert ranks that overlap another micro-batch's computation."""
    flag = "--overlap-moe-expert-parallel-comm"
    if pp > 1 and chunks_in(flags, run, pp) == 1:
        yield f"{flag} with {PIPELINE} {pp}: expected several chunks a stage ({CHUNKS})"
    if ep == 1:
        yield f"{flag}: expected {EXPERT_RANKS} above 1 with it"
    if flags.get("--moe-token-dispatcher-type", "allgather") not in ("alltoall", "flex"):
        yield f"{flag}: expected --moe-token-dispatcher-type alltoall or flex with it"
    if flags.get("--recompute-granularity") == "full":
        yield f"{flag} with --recompute-granularity full: expected none or selective"
    if "--moe-shared-expert-overlap" in flags:
        yield f"{flag} with --moe-shared-expert-overlap: expected one of them"


def _experts_in(flags: Stated, run: Run) -> int:
    """Experts of the command line, or of the model; 0 where neither states them."""
    if flags.get(EXPERTS) not in (None, "0"):
        return count(flags, EXPERTS)
    blocks = run.model.blocks if run.model is not None else []
    return max((block.experts.num_experts for block in blocks if block.experts), default=0)


def _heads(flags: Stated, run: Run, tp: int) -> Iterator[str]:
    """Rule (8)."""
    heads, groups = _shape(flags, run)
    if heads and heads % tp:
        yield f"--tensor-model-parallel-size {tp} does not divide {heads} heads, expected {nearest(heads, tp)}"
    elif groups and groups % tp and tp % groups:
        yield (
            f"--tensor-model-parallel-size {tp} neither divides {groups} query groups nor is a multiple of them, "
            f"expected {nearest(groups, tp)}"
        )


def _mixers(run: Run, tp: int, cp: int) -> Iterator[str]:
    """Rule (8) of layers without attention."""
    for layer in run.model.kinds.values() if run.model is not None and cp > 1 else ():
        for part in layer.together:
            if part.mixer and not part.mixer.attends and part.heads % (tp * cp):
                yield f"tp {tp} x cp {cp} = {tp * cp} does not divide {part.heads} heads of layers {layer.kind!r}"


def _shape(flags: Stated, run: Run) -> tuple[int, int]:
    """Heads and query groups of the command line, or of the model; 0 where neither states them, (8)."""
    layer = run.model.blocks[-1] if run.model is not None else None
    heads = layer.heads if layer is not None and layer.latent is None else 0
    groups = layer.key_value_heads if layer is not None and layer.latent is None else 0
    if "--num-attention-heads" in flags:
        heads = groups = count(flags, "--num-attention-heads")
    if flags.get("--num-query-groups"):
        groups = count(flags, "--num-query-groups")
    return heads, groups


def _exchanges(flags: Stated, tp: int) -> Iterator[str]:
    """Rule (9) of what tensor ranks exchange, and of the method of selective recompute."""
    method = flags.get("--recompute-method")
    if "--distribute-saved-activations" in flags:
        kind = flags.get("--recompute-granularity")
        if tp == 1 or kind != "full" or not method:
            yield "--distribute-saved-activations: expected tensor ranks, and full recompute by a method"
    if _is_selective(flags) and method:
        yield f"--recompute-method {method} with selective recompute: expected full"
    if "--tp-comm-overlap" in flags and ("--sequence-parallel" not in flags or tp == 1):
        yield "--tp-comm-overlap: expected --sequence-parallel and several tensor ranks with it"


def _is_selective(flags: Stated) -> bool:
    return "--recompute-activations" in flags or flags.get("--recompute-granularity") == "selective"


def _activations(flags: Stated, layers: int, pp: int) -> Iterator[str]:
    """Rule (9) of activations on hosts and of recompute."""
    kind, method = flags.get("--recompute-granularity"), flags.get("--recompute-method")
    moved, each = flags.get("--cpu-offloading-num-layers"), "--recompute-num-layers"
    if moved not in (None, "0"):
        if layers and count(flags, "--cpu-offloading-num-layers") >= layers:
            yield f"--cpu-offloading-num-layers {moved}: expected fewer than {layers} layers"
        if pp > 1:
            yield f"--cpu-offloading-num-layers {moved} with {PIPELINE} {pp}: expected one stage"
        if _is_selective(flags) or kind:
            yield f"--cpu-offloading-num-layers {moved} with recompute: expected none"
    if kind not in (None, "full", "selective"):
        yield f"--recompute-granularity {kind}: expected full or selective"
    elif _is_selective(flags) and flags.get(each) and not method:
        yield f"{each} {flags[each]} with selective recompute: expected full"
    elif "--distribute-saved-activations" in flags and "--sequence-parallel" in flags:
        yield "--distribute-saved-activations with --sequence-parallel: expected one of them"
    elif kind == "full" and not _is_selective(flags) and method not in ("uniform", "block"):
        yield "--recompute-granularity full: expected --recompute-method uniform or block with it"
    elif kind == "full" and not _is_selective(flags) and not flags.get(each):
        yield f"--recompute-granularity full: expected {each} with it, 1 to {max(layers // pp, 1)}"
