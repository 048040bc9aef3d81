"""
A model's shape and the division of its layers in Megatron-LM's flags.

What a plan does not know is left to the user: tokenizer, position embedding, normalization's constants, the rates of
dropout. A plan that counts no dropout masks switches dropout off, which Megatron-LM has on.

Expert ranks exchange tokens by a dispatcher. A plan's ``flex`` dispatcher is Megatron-LM's with
the backend that the plan's nodes ask for: DeepEP in nodes of up to eight GPUs, HybridEP in NVLink domains of more,
which no other backend spans, and NCCL EP where rows are dispatched in fp8, which it alone can, in the fused products of
mxfp8. A single expert rank exchanges nothing, and has a dispatcher that every installation has. A command line that
names none has Megatron-LM's default, a gather of all tokens. The format of the router's scores is written where the
plan states one. Source: megatron/core/transformer/transformer_config.py of August 2026.

A division of the layers over pp ranks with vpp chunks each that is even needs at most the layers of a chunk. Any other
is a layout, unless the plan is for a stack without layouts. There

(1) embedding, loss or both count as a layer (``--account-for-...-in-pipeline-split``), and all chunks but for these
    have as many; or
(2) the first and the last rank have layers of their own, spread evenly over their chunks, and the others share the
    rest.

Source: megatron/training/arguments.py and megatron/core/transformer/transformer_layer.py of August 2026.

In a layout, ``--pipeline-model-parallel-layout``, a letter is a part of the model:
``E`` the embedding, ``t`` a transformer layer, ``m`` a further token's prediction, ``L`` final norm, head and loss.
``|`` separates chunks, in the order in which a micro-batch visits them; chunk i lies on pipeline rank i mod pp. ``t*3``
is ``ttt``, and ``(t*2|)*3`` is ``t*2|t*2|t*2|``. Source: megatron/core/transformer/pipeline_parallel_layer_layout.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import groupby, product
from typing import Any

import yaml

from taut.data.layers.experts import DISPATCHERS
from taut.data.layers.layer import LayerSpec
from taut.errors import DataError
from taut.exports.job import Job

TYPE, BACKEND = "--moe-token-dispatcher-type", "--moe-flex-dispatcher-backend"
DEEPEP = "--moe-enable-deepep"
"""The switch of DeepEP before there were other backends."""
FORMAT, NARROW = "--moe-dispatch-fwd-dtype", "mxfp8"
SCORES = "--moe-router-dtype"
FUSED = "--use-transformer-engine-op-fuser"
OVERLAP = "--overlap-moe-expert-parallel-comm"
NODE, HYBRID = 8, "hybridep"
"""GPUs of a node that DeepEP spans, and the backend of ``flex`` in larger NVLink domains."""
UNSAID = "allgather"
"""The dispatcher of a command line that names none."""


def dispatcher_of(job: Job) -> tuple[str, str]:
    """The dispatcher of a plan and the backend of ``flex``, else empty; refuses what Megatron-LM has not."""
    dispatch, fp8, precision = job.dispatch, job.dispatch.fp8 and job.strategy.ep > 1, job.memory.precision
    narrow = (
        f"dispatch in fp8 by {dispatch.dispatcher} in {precision}, which Megatron-LM has for flex in {NARROW} alone"
    )
    hidden, way, further = "exchanges of experts are hidden", f"plan without {OVERLAP}", job.model.mtp_layers
    tokens = f"{hidden} with {further} layers of further tokens, of which Megatron-LM has one then; {way}"
    job.refuse(
        {
            f"{narrow}; plan without --fp8-dispatch": fp8 and (dispatch.dispatcher != "flex" or precision != NARROW),
            f"{hidden} in fp32, which Megatron-LM refuses; {way}": job.hides_exchange and precision == "fp32",
            tokens: job.hides_exchange and further > 1,
        }
    )
    if dispatch.dispatcher != "flex":
        return dispatch.dispatcher, ""
    backend = backend_of(job)
    return "flex" if backend else "alltoall", backend


def backend_of(job: Job) -> str:
    """The backend of ``flex`` on the plan's nodes; empty for another dispatcher and for a single expert rank."""
    if job.dispatch.dispatcher != "flex" or job.strategy.ep == 1:
        return ""
    wide = max(node.gpus_per_node for node in job.cluster.nodes) > NODE
    return "ncclep" if job.dispatch.fp8 else HYBRID if wide else "deepep"


def dispatch_flags(job: Job) -> Iterator[tuple[str, str | None]]:
    """The plan's dispatcher, its format, and overlap with another micro-batch where the plan counts on it."""
    kind, backend = dispatcher_of(job)
    yield TYPE, kind
    if backend:
        yield BACKEND, backend
    if backend == "ncclep":
        yield FORMAT, NARROW
        yield FUSED, None
    if job.dispatch.router_dtype:
        yield SCORES, job.dispatch.router_dtype
    if job.hides_exchange:
        yield OVERLAP, None


def stated_dispatch(flags: Mapping[str, str | None]) -> dict[str, Any]:
    """What a command line says of exchanges, as options of ``taut.plan``."""
    kind = flags.get(TYPE, UNSAID)
    if kind not in DISPATCHERS:
        raise DataError(f"{TYPE} {kind or ''}: expected one of {', '.join(DISPATCHERS)}, which are priced")
    found: dict[str, Any] = {"moe_token_dispatcher": kind}
    if scores := flags.get(SCORES):
        found["moe_router_dtype"] = scores
    if flags.get(FORMAT) == NARROW:
        found["fp8_dispatch"] = True
    if OVERLAP in flags:
        found["overlap_moe_expert_parallel_comm"] = True
    return found


Flags = dict[str, str | None]
"""Values by flag, None for a switch."""
SETTINGS: dict[str, Any] = yaml.safe_load((files("taut.exports") / "features.yaml").read_text("utf-8"))
"""Settings of what made releases faster, by the name that a calibration states: ``flags``, or those of ``bridge``."""
FEATURES: dict[str, Flags] = {name: each["flags"] for name, each in SETTINGS.items() if "flags" in each}
GROUPS = {"router_num_groups": "--moe-router-num-groups", "router_group_topk": "--moe-router-group-topk"}
"""Flags of the groups of experts that a router keeps to, by field of ``ExpertsSpec``."""


def architecture_flags(job: Job) -> Flags:
    """The flags of a model."""
    job.plain_layers("Megatron-LM")
    model, layer = job.model, job.model.blocks[-1]
    flags: Flags = {
        "--num-layers": str(len(model.blocks)),
        "--hidden-size": str(layer.hidden),
        "--ffn-hidden-size": str(layer.ffn),
        "--num-attention-heads": str(layer.heads),
        "--seq-length": str(job.sequence),
        "--max-position-embeddings": str(job.sequence),
    }
    flags |= dict(_attention(job, layer))
    for feature in job.features:
        flags |= FEATURES.get(feature, {})
    if layer.gated_mlp:
        flags |= {"--swiglu": None, "--disable-bias-linear": None, "--normalization": "RMSNorm"}
    if not layer.masks:
        flags |= {"--attention-dropout": "0.0", "--hidden-dropout": "0.0"}
    if not model.tied_embedding:
        flags["--untie-embeddings-and-output-weights"] = None
    if model.mtp_layers:
        # Learned positions, Megatron-LM's default, do not go with the prediction of further tokens.
        flags |= {"--mtp-num-layers": str(model.mtp_layers), "--position-embedding-type": "rope"}
    return flags | dict(_experts(job, layer))


def _attention(job: Job, layer: LayerSpec) -> Iterator[tuple[str, str | None]]:
    if layer.qk_norm or layer.latent:
        # Of heads, or of what latent attention is projected down to.
        yield "--qk-layernorm", None
    if latent := layer.latent:
        yield "--multi-latent-attention", None
        if latent.q_lora_rank:
            yield "--q-lora-rank", str(latent.q_lora_rank)
        yield "--kv-lora-rank", str(latent.kv_lora_rank)
        yield "--qk-head-dim", str(latent.qk_nope_head_dim)
        yield "--qk-pos-emb-head-dim", str(latent.qk_rope_head_dim)
        yield "--v-head-dim", str(latent.v_head_dim)
        return
    if layer.key_value_heads != layer.heads:
        yield "--group-query-attention", None
        yield "--num-query-groups", str(layer.key_value_heads)
    if layer.query_hidden != layer.hidden:
        yield "--kv-channels", str(layer.query_hidden // layer.heads)
    if window := job.model.attention_window:
        yield "--window-size", f"({window - 1},0)"
        if job.model.full_attention_period:
            yield "--window-attn-skip-freq", str(job.model.full_attention_period)


def _experts(job: Job, layer: LayerSpec) -> Iterator[tuple[str, str | None]]:
    experts = layer.experts
    if experts is None:
        job.refuse({"the last layer has no experts, expected them there for Megatron-LM": job.model.has_experts})
        return
    yield "--num-experts", str(experts.num_experts)
    yield "--moe-router-topk", str(experts.experts_per_token)
    if experts.router_group_topk < experts.router_num_groups:
        yield from ((flag, str(getattr(experts, name))) for name, flag in GROUPS.items())
    yield "--moe-ffn-hidden-size", str(experts.expert_ffn_hidden)
    if experts.shared_ffn_hidden:
        yield "--moe-shared-expert-intermediate-size", str(experts.shared_ffn_hidden)
    pattern = [int(block.experts is not None) for block in job.model.blocks]
    # Megatron-LM has no biases of experts that several tensor ranks share, and the plan counts none.
    yield "--disable-bias-linear", None
    if not all(pattern):
        yield "--moe-layer-freq", "([" + ",".join(map(str, pattern)) + "])"
    # Products of all experts of a rank in one kernel, as they are priced and as recompute of moe_act asks for.
    yield "--moe-grouped-gemm", None
    yield from dispatch_flags(job)
    # Megatron-LM takes the tensor degree where no other is given; it is written so that a change of default is seen.
    yield "--expert-tensor-parallel-size", str(job.strategy.etp or job.strategy.tp)
    yield "--expert-model-parallel-size", str(job.strategy.ep)


REPEATED = re.compile(r"\(([^()]*)\)\*(\d+)|([EtmL])\*(\d+)")
MOST_LETTERS = 100_000
"""Letters beyond which a layout is no model's."""


def layout_of(layers: tuple[int, ...], further: int = 0) -> str:
    """
    The layout of chunks with some layers each, embedding first, loss last, and ``further`` predicted tokens.

    Examples
    --------
    >>> layout_of((19, 21, 21, 19))
    'Et*19|(t*21|)*2t*19L'
    >>> layout_of((4, 4, 0), 1)
    'Et*4|t*4|mL'
    >>> layout_of((3,))
    'Et*3L'
    """
    if len(layers) == 1:
        return f"E{_letters(layers[0])}{_letters(further, 'm')}L"
    parts = [f"E{_letters(layers[0])}|"]
    for size, run in groupby(layers[1:-1]):
        count = len(list(run))
        chunk = f"{_letters(size)}|"
        parts.append(f"({chunk})*{count}" if count > 1 else chunk)
    return "".join(parts) + f"{_letters(layers[-1])}{_letters(further, 'm')}L"


def _letters(size: int, letter: str = "t") -> str:
    return {0: "", 1: letter}.get(size, f"{letter}*{size}")


def layers_of(layout: str) -> tuple[int, ...]:
    """
    Layers of every chunk of a layout; ``DataError`` if the text is none.

    Examples
    --------
    >>> layers_of("Et*4|(t*4|)*2tmL")
    (4, 4, 4, 1)
    """
    text = layout.replace(",", "").replace(" ", "")
    while found := REPEATED.search(text):
        group, times, letter, count = found.groups()
        repeated = (group or letter) * int(times or count)
        if len(text) + len(repeated) > MOST_LETTERS:
            raise DataError(f"layout {layout[:40]!r}: more than {MOST_LETTERS} letters, expected one for each layer")
        text = text[: found.start()] + repeated + text[found.end() :]
    if not re.fullmatch(r"E?[tm|]*L?", text) or "t" not in text:
        raise DataError(f"layout {layout!r}: expected E, t, m, L, counts such as t*3, groups, and | between chunks")
    return tuple(chunk.count("t") for chunk in text.split("|"))


LAYOUT = "--pipeline-model-parallel-layout"
CHUNK, CHUNKS = "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"
FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
EMBEDDING, LOSS = "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"


def division_flags(layers: tuple[int, ...], pp: int, forms: Sequence[str] = ("layout",), further: int = 0) -> Flags:
    """
    The flags of a division of layers by chunk, in the ``forms`` that the stack states, with ``further`` tokens.

    Examples
    --------
    >>> division_flags((3, 4, 4, 3), 4, ["with-ends"])
    {'--account-for-embedding-in-pipeline-split': None, '--account-for-loss-in-pipeline-split': None}
    >>> division_flags((2, 3, 2, 3), 2, ["even", "first-last"])["--decoder-last-pipeline-num-layers"]
    '6'
    """
    vpp = len(layers) // pp
    if len(set(layers)) == 1:
        return {CHUNK: str(layers[0])} if vpp > 1 else {}
    chunks: Flags = {CHUNKS: str(vpp)} if vpp > 1 else {}
    ends = _ends_that_count(layers) if "with-ends" in forms else ()
    if "layout" not in forms and ends:
        return dict.fromkeys(ends) | chunks
    if "layout" not in forms and "first-last" in forms:
        return {FIRST: str(sum(layers[::pp])), LAST: str(sum(layers[pp - 1 :: pp]))} | chunks
    return {LAYOUT: layout_of(layers, further)}


def _ends_that_count(layers: tuple[int, ...]) -> tuple[str, ...]:
    """Which of embedding and loss count as a layer, (1); none where no choice makes all chunks alike."""
    first, *between, last = layers
    for embedding, loss in product((1, 0), repeat=2):
        if len({first + embedding, *between, last + loss}) == 1:
            return (EMBEDDING,) * embedding + (LOSS,) * loss
    return ()


def stated_division(flags: Mapping[str, str | None], pp: int, total: int = 0) -> tuple[int, tuple[int, ...]]:
    """Chunks of a stage, and layers of every uneven chunk; ``total`` layers where no flag says, 0: unknown."""
    if layout := flags.get(LAYOUT):
        layers = layers_of(layout)
        if len(layers) % pp:
            raise DataError(f"{LAYOUT} {layout}: {len(layers)} chunks, expected a multiple of {pp} stages")
        return len(layers) // pp, layers
    total = count(flags, "--num-layers") if "--num-layers" in flags else total
    if not total and (asking := {CHUNK, FIRST, LAST, EMBEDDING, LOSS} & set(flags)):
        raise DataError(f"{min(asking)}: expected --num-layers with it")
    vpp, ends = count(flags, CHUNKS), (EMBEDDING in flags) + (LOSS in flags)
    if CHUNK in flags:
        each = count(flags, CHUNK)
        if (total + ends) % (pp * each):
            raise DataError(f"{CHUNK} {each}: expected a divisor of {total + ends} layers over {pp} stages")
        vpp = (total + ends) // (pp * each)
    return vpp, tuple(_uneven(flags, pp, vpp, total)) if {FIRST, LAST, EMBEDDING, LOSS} & set(flags) else ()


def _uneven(flags: Mapping[str, str | None], pp: int, vpp: int, total: int) -> Iterator[int]:
    """Layers of every chunk, (1) or (2)."""
    if {EMBEDDING, LOSS} & set(flags):
        ends, chunks = (int(EMBEDDING in flags), int(LOSS in flags)), pp * vpp
        each, rest = divmod(total + sum(ends), chunks)
        if rest:
            raise DataError(f"--num-layers {total}: {total + sum(ends)} with its ends, expected a multiple of {chunks}")
        yield from (each - ends[0] * (c == 0) - ends[1] * (c == chunks - 1) for c in range(chunks))
        return
    by_rank = _own_ends(flags, pp, total)
    if any(layers % vpp for layers in by_rank):
        raise DataError(f"{CHUNKS} {vpp}: ranks have {', '.join(map(str, by_rank))} layers, expected multiples")
    yield from (layers // vpp for _ in range(vpp) for layers in by_rank)


def _own_ends(flags: Mapping[str, str | None], pp: int, total: int = 0) -> tuple[int, ...]:
    """Layers of ranks where the first or last one has a number of its own, and the others share the rest."""
    own = [count(flags, flag) if flag in flags else None for flag in (FIRST, LAST)]
    middle = pp - sum(size is not None for size in own)
    rest = total - sum(size or 0 for size in own)
    if rest if middle == 0 else middle < 0 or rest <= 0 or rest % middle:
        raise DataError(f"--num-layers {total}: {rest} layers are left for {middle} stages, expected a multiple")
    first, last = ([size] if size else [] for size in own)
    return (*first, *[rest // max(middle, 1)] * middle, *last)


def count(flags: Mapping[str, str | None], flag: str, usual: int = 1) -> int:
    """A number above 0 that a flag states."""
    text = flags.get(flag, str(usual))
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 9 or int(text) == 0:
        unknown = ", which the words do not state" if text and "$" in text else ""
        raise DataError(f"{flag} {text!r:.60}: expected a whole number above 0{unknown}")
    return int(text)
