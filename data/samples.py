"""
Training configurations as rows of a CSV file, with or without a measured step time.

The columns are the fields of ``ConfigurationRow``; an empty cell takes the default. A wrong row keeps its place and
carries its complaint, so that it does not cost the others.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from taut.data.analytic.offload_modules import conflict
from taut.data.costs import Module, OffloadModule, Recompute, named_modules, named_offload_modules
from taut.data.device import QUANTIZED, Precision
from taut.data.layers.experts import USUAL_DISPATCH, Dispatcher, DispatchSpec, RouterFormat
from taut.data.loss import FusedLoss
from taut.data.memory import GradPrecision, OffloadFraction
from taut.data.read import MOST_CELLS, check_count, read_text, table_of
from taut.data.spec import MOST_ENTRIES, MOST_LAYERS, MOST_PARAMETERS, Positive, Spec, cell_counts, shorten
from taut.data.stack import ContextKind, Schedule
from taut.data.suggest import one_of
from taut.errors import DataError

Whole = Annotated[int, Field(gt=0, le=100_000_000)]
Layers = Annotated[int, Field(ge=0, le=MOST_LAYERS)]
Width = Annotated[int, Field(ge=0, le=10_000_000)]
CHANNELS_OF_A_HEAD = 128
DEFAULT_VOCABULARY = 51200
"""GPT-2's vocabulary as Megatron-LM pads it."""


class Apart(NamedTuple):
    """Marks a column that dense rows do not price; ``usual``: the value in rows that coefficients are fitted to."""

    usual: str = ""


OF_EXPERTS = (
    "overlap_moe_expert_parallel_comm",
    "moe_token_dispatcher",
    "fp8_dispatch",
    "moe_router_dtype",
    "imbalance",
)
"""Columns of how experts are reached, which say nothing of a dense row."""
EXPECTED = "a CSV file of configurations"
SETTING = "setting"
"""Marks columns that choose device, links, calibration or memory model, which rows share that are priced together."""


def beside_adam(name: object) -> object:
    """The optimizer of a row, None for Adam, which every row has unless it is stated."""
    return None if name == "adam" else name


class ConfigurationRow(Spec):
    """
    One run: device, model shape, degrees, batch, schedule, and the stack whose calibration applies.

    ``stages`` holds the layers of every stage, or chunk in their order; else they divide evenly. The first may have the
    embedding alone, and the last the head. Of full recompute every chunk has its first ``recompute_layers``, or all.
    ``cluster`` is the catalog's whose links stand for the run's.
    ``measured_s`` is the seconds of a step, ``measured_bytes`` the most
    memory that a device took: one of the given stage, or of all. Experts are those of every layer but the first
    ``dense_layers``; their ranks are ``ep`` and ``etp``. Under ZeRO-2 and 3 all replicas share one copy, or every
    ``dp_shard`` of them have one. ``cp_comm`` is how context ranks share attention, if not the stack's first way.
    ``fused_loss`` says how the loss is computed (``taut.data.loss``); else it is as the stack has it.
    ``cuda_graphs`` says that passes are recorded once and launched as CUDA graphs, whose launch takes some microseconds
    whatever their number of kernels (NVIDIA, "Constant Time Launch for Straight-Line CUDA Graphs", 2024). Tensor and
    context ranks still wait for each other (``taut.data.analytic.layer_work``, (4)). Biases and
    activation of experts are then part of their products' kernels, as in recipes of whole steps. With
    ``fp8_param_gather`` ZeRO-1 gathers updated weights in fp8, in mxfp8 in bf16, and not in the format of gradients.
    """

    gpu: Annotated[str, SETTING]
    n_gpus: Whole
    gpus_per_node: Annotated[Whole, SETTING] = 8
    hidden: Whole
    layers: Annotated[int, Field(gt=0, le=MOST_LAYERS)]
    heads: Whole | None = None
    kv_heads: Whole | None = None
    ffn_hidden: Whole | None = None
    gated_mlp: bool | None = None
    seq: Whole = 2048
    vocab: Width = DEFAULT_VOCABULARY
    tp: Whole = 1
    pp: Whole = 1
    dp: Whole = 1
    cp: Whole = 1
    cp_comm: ContextKind | None = None
    ep: Whole = 1
    etp: Whole | None = None
    vpp: Whole = 1
    micro_batch: Whole = 1
    global_batch: Whole
    schedule: Schedule = "1f1b"
    stages: Annotated[list[Layers], BeforeValidator(cell_counts)] | None = None
    recompute: Recompute = "none"
    recompute_modules: Annotated[list[Module], BeforeValidator(named_modules), Apart()] = []
    recompute_layers: Annotated[Whole | None, Apart("all of a chunk")] = None
    zero: Annotated[int, Field(ge=0, le=3)] = 0
    dp_shard: Annotated[Whole | None, Apart("none")] = None
    sequence_parallel: bool | None = None
    tied_embedding: bool = False
    dropout: bool | None = None
    overlap_grad_reduce: bool | None = None
    overlap_moe_expert_parallel_comm: bool | None = None
    moe_token_dispatcher: Dispatcher | None = None
    fp8_dispatch: bool | None = None
    moe_router_dtype: RouterFormat | None = None
    imbalance: Annotated[float, Field(ge=1, le=1000)] | None = None
    cuda_graphs: Annotated[bool, SETTING] = False
    fp8_param_gather: Annotated[bool, SETTING] = False
    precision: Annotated[Precision | None, SETTING] = None
    grad_precision: Annotated[GradPrecision | None, SETTING] = None
    fused_loss: Annotated[FusedLoss | None, SETTING] = None
    optimizer: Annotated[Literal["muon"] | None, BeforeValidator(beside_adam), SETTING, Apart("adam")] = None
    optimizer_offload_fraction: Annotated[OffloadFraction, SETTING, Apart("0")] = 0.0
    activation_offload_fraction: Annotated[OffloadFraction, SETTING, Apart("0")] = 0.0
    offload_modules: Annotated[list[OffloadModule], BeforeValidator(named_offload_modules)] = []
    stack: Annotated[str, SETTING] = ""
    cluster: Annotated[str, SETTING] = ""
    measured_s: Positive | None = None
    measured_bytes: Positive | None = None
    stage: Annotated[int, Field(ge=0)] | None = None
    num_experts: Annotated[Whole | None, Apart("a dense model")] = None
    experts_per_token: Whole | None = None
    expert_ffn_hidden: Whole | None = None
    shared_ffn_hidden: Width = 0
    dense_layers: Layers = 0
    router_num_groups: Whole | None = None
    router_group_topk: Whole | None = None

    @model_validator(mode="before")
    @classmethod
    def _named_modules(cls, values: Any) -> Any:
        """``selective:moe_act+layernorm`` names modules of recompute; of ``offload_modules`` all go by default."""
        if isinstance(values, dict) and values.get("offload_modules"):
            values = {"activation_offload_fraction": 1.0, **values}
        kind = values.get("recompute") if isinstance(values, dict) else None
        if not isinstance(kind, str) or ":" not in kind:
            return values
        name, _, modules = kind.partition(":")
        return {**values, "recompute": name, "recompute_modules": modules}

    @model_validator(mode="after")
    def _consistent(self) -> "ConfigurationRow":
        if (degrees := self.tp * self.pp * self.dp * self.cp) != self.n_gpus:
            raise ValueError(f"n_gpus is {self.n_gpus}, expected tp*pp*dp*cp = {degrees}")
        if self.cp > 1 and self.seq % (2 * self.cp):
            raise ValueError(f"cp is {self.cp}, expected 2*cp to divide seq {self.seq}")
        if self.fp8_param_gather and (self.zero != 1 or self.precision not in QUANTIZED):
            raise ValueError("fp8_param_gather is true, expected zero 1 and a precision of fp8 or narrower with it")
        if self.global_batch % (self.dp * self.micro_batch):
            raise ValueError(
                f"global_batch is {self.global_batch}, expected a multiple of dp*micro_batch = "
                f"{self.dp * self.micro_batch}"
            )
        if (self.stage or 0) >= self.pp:
            raise ValueError(f"stage is {self.stage}, expected one below pp = {self.pp}")
        self._check_copies()
        self._check_experts()
        self._check_contexts()
        self._check_division()
        if self.recompute_modules and self.recompute != "selective":
            raise ValueError(f"recompute is {self.recompute}, expected selective with modules")
        if (first := self.recompute_layers) and self.recompute != "full":
            raise ValueError(f"recompute is {self.recompute}, expected full with recompute_layers")
        if first and first * self.pp * self.vpp >= self.layers:
            raise ValueError(f"recompute_layers is {first}, expected fewer than an even chunk has, or none for all")
        if words := conflict(self.offload_modules, self.recompute_modules):
            raise ValueError(f"offload_modules: {words}")
        if self.run_schedule == "interleaved-1f1b" and (self.pp == 1 or self.num_micro_batches % self.pp):
            raise ValueError(f"vpp is {self.vpp}, expected 1 unless pp > 1 divides the micro-batches")
        heads, kv_heads, ffn_hidden = self.attention_heads, self.key_value_heads, self.ffn_hidden or 4 * self.hidden
        if self.hidden % heads or heads % kv_heads:
            raise ValueError(f"heads is {heads}, expected a divisor of hidden and a multiple of kv_heads")
        self._check_size()
        if heads % self.tp or ffn_hidden % self.tp:
            raise ValueError(f"tp is {self.tp}, expected a divisor of heads and ffn_hidden")
        return self

    def _check_size(self) -> None:
        """Refuse a model, or a micro-batch of it, that no device will ever hold."""
        hidden, ffn, heads = float(self.hidden), self.ffn_hidden or 4 * self.hidden, self.attention_heads
        weights = 2 * hidden * hidden * (1 + self.key_value_heads / heads) + 3 * hidden * ffn
        parameters = self.layers * weights + 2 * hidden * self.vocab
        if parameters > MOST_PARAMETERS:
            raise ValueError(f"the model has {parameters:.3g} parameters, expected at most {MOST_PARAMETERS:.3g}")
        entries = self.layers * (4 * hidden + 2 * ffn + heads * self.seq + self.vocab)
        if entries * self.micro_batch * self.seq > MOST_ENTRIES:
            words = f"seq is {self.seq} and micro_batch {self.micro_batch}"
            raise ValueError(f"{words}, expected fewer tokens of a micro-batch")

    def _check_copies(self) -> None:
        """Refuse copies that replicas do not divide into, or that nothing is shared in."""
        if self.dp_shard is None:
            return
        if not self.zero or self.cp > 1:
            has = f"cp {self.cp}" if self.zero else "zero 0"
            raise ValueError(f"dp_shard is {self.dp_shard} with {has}, expected zero 1 to 3 and cp 1, or none")
        held = self.ep * self.expert_tp if self.ep > 1 else 1
        if self.dp_shard == 1 or self.dp % self.dp_shard or self.dp_shard * self.tp % held:
            wanted = f"a divisor of dp = {self.dp} from 2 on"
            wanted += f" whose copies hold whole groups of {held} expert ranks" if held > 1 else ""
            raise ValueError(f"dp_shard is {self.dp_shard}, expected {wanted}")

    def _check_experts(self) -> None:
        """Refuse experts that are half stated, and their ranks without experts."""
        missing = [name for name in ("experts_per_token", "expert_ffn_hidden") if getattr(self, name) is None]
        if self.num_experts is None:
            stated = [name for name in ("experts_per_token", "expert_ffn_hidden") if name not in missing]
            names = ("shared_ffn_hidden", "dense_layers", "router_num_groups", "router_group_topk")
            stated += [name for name in names if getattr(self, name)]
            stated += ["ep"] * (self.ep > 1) + ["etp"] * (self.etp is not None)
            stated += [name for name in OF_EXPERTS if getattr(self, name) is not None]
            if stated:
                raise ValueError(f"{stated[0]} is {getattr(self, stated[0])}, expected num_experts with it")
        elif missing:
            raise ValueError(f"{missing[0]}: missing, expected it with num_experts")
        elif self.num_experts % self.ep or self.expert_tp not in (1, self.tp):
            raise ValueError(
                f"ep is {self.ep} and etp {self.expert_tp}, expected a divisor of the {self.num_experts} experts, "
                f"and 1 or tp = {self.tp}"
            )
        if conflict := self.dispatch().conflict:
            raise ValueError(f"moe_token_dispatcher is {self.moe_token_dispatcher}, {conflict}")

    def _check_contexts(self) -> None:
        """Refuse ways to share attention without context ranks, and all-to-alls among which heads do not divide."""
        if self.cp_comm is not None and self.cp == 1:
            raise ValueError(f"cp_comm is {self.cp_comm}, expected cp above 1 with it")
        here = max(min(self.cp, self.gpus_per_node // self.tp), 1)
        each = self.tp * {"a2a": self.cp, "a2a+p2p": here}.get(self.cp_comm or "", 1)
        if each > self.tp and math.gcd(self.attention_heads, self.key_value_heads) % each:
            raise ValueError(f"cp_comm is {self.cp_comm}, expected heads and kv_heads in multiples of {each}")
        if self.cp_comm == "a2a+p2p" and here in (1, self.cp):
            raise ValueError("cp_comm is a2a+p2p, expected several nodes, and context ranks on each")

    def _check_division(self) -> None:
        """Refuse stages that do not hold the layers."""
        chunks = self.pp * self.vpp
        if self.stages is None:
            if self.layers < chunks:
                name = "pp*vpp" if self.vpp > 1 else "pp"
                raise ValueError(f"layers is {self.layers}, expected at least {name} = {chunks}")
        elif len(self.stages) != chunks or sum(self.stages) != self.layers:
            found = f"{len(self.stages)} of {sum(self.stages)} layers"
            raise ValueError(f"stages is {found}, expected {chunks} of {self.layers} layers, such as 2|3|3|2")
        elif not all(self.stages[1:-1]) or (self.has_empty_ends and not (self.vocab and self.pp > 1)):
            shown = "|".join(map(str, self.stages))
            raise ValueError(f"stages is {shown}, expected layers, but at an end with a vocab and pp > 1")

    @property
    def has_empty_ends(self) -> bool:
        """Whether the first or the last stage or chunk is stated to have no layers."""
        return self.stages is not None and not (self.stages[0] and self.stages[-1])

    @property
    def run_schedule(self) -> Schedule:
        """The schedule; 1F1B of several chunks is the interleaved one."""
        return "interleaved-1f1b" if self.schedule == "1f1b" and self.vpp > 1 else self.schedule

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches of a pipeline and step."""
        return self.global_batch // self.dp // self.micro_batch

    @property
    def expert_tp(self) -> int:
        """Tensor ranks that share an expert: unless stated one, or all where every replica has all experts."""
        return self.etp or (self.tp if self.ep == 1 else 1)

    def dispatch(self, usual: DispatchSpec = USUAL_DISPATCH) -> DispatchSpec:
        """How expert ranks exchange tokens, where the row does not say as usual."""
        said: dict[str, Any] = {"dispatcher": self.moe_token_dispatcher, "fp8": self.fp8_dispatch}
        said |= {"overlap": self.overlap_moe_expert_parallel_comm, "imbalance": self.imbalance}
        said |= {"router_dtype": self.moe_router_dtype}
        return usual.model_copy(update={name: value for name, value in said.items() if value is not None})

    @property
    def attention_heads(self) -> int:
        """Heads; unless stated, of the counts that suit hidden, tp and kv_heads the nearest to one per 128 channels."""
        if self.heads is not None:
            return self.heads
        step = math.lcm(self.tp, self.kv_heads or 1)
        # Divisors come in pairs, of which one is at most the root.
        small = [count for count in range(1, math.isqrt(self.hidden) + 1) if self.hidden % count == 0]
        counts = sorted(each for count in small for each in {count, self.hidden // count} if each % step == 0)
        return min(counts, key=lambda count: abs(count - self.hidden / CHANNELS_OF_A_HEAD), default=step)

    @property
    def key_value_heads(self) -> int:
        """Heads of keys and values; all heads unless stated."""
        return self.kv_heads or self.attention_heads

    @property
    def gated(self) -> bool:
        """Whether layers are gated: as stated, or if ``ffn_hidden`` is stated and not four times the hidden size."""
        return self.ffn_hidden not in (None, 4 * self.hidden) if self.gated_mlp is None else self.gated_mlp


SHARED = tuple(name for name, field in ConfigurationRow.model_fields.items() if SETTING in field.metadata)
"""Columns that choose a setting, beside whether a row takes one node or many and whether it has experts."""
APART = {
    name: mark.usual
    for name, field in ConfigurationRow.model_fields.items()
    for mark in field.metadata
    if isinstance(mark, Apart)
}
"""Columns that the closed form of dense rows does not price, with what rows have to which coefficients are fitted."""
SCALED = ("n_gpus", "dp", "dp_shard", "global_batch", "measured_s", "measured_bytes")
"""Columns in which runs of one plan with as many micro-batches may differ."""


@dataclass(frozen=True, slots=True)
class SampleLine:
    """One line of the file: its cells, and the row they make or the complaint."""

    cells: dict[str, str]
    row: ConfigurationRow | None
    error: str


def read_samples(path: Path) -> list[SampleLine]:
    """Configurations, a line for each row, right or wrong; ``DataError`` for wrong columns or too many rows."""
    text = read_text(path, EXPECTED)
    check_count(text, path, EXPECTED, MOST_CELLS)
    return list(sample_lines(text, path)[1])


def sample_lines(text: str, path: Path) -> tuple[list[str], Iterator[SampleLine]]:
    """Columns of a file of configurations, and its lines, each when it is asked for. Errors as of ``read_samples``."""
    columns, lines = table_of(text, path, EXPECTED)
    for column in columns:
        if column not in ConfigurationRow.model_fields:
            known = one_of(column, ConfigurationRow.model_fields)
            raise DataError(f"{path}: column {shorten(column)} is unknown, expected {known}")
    for name, field in ConfigurationRow.model_fields.items():
        if field.is_required() and name not in columns:
            raise DataError(f"{path}: column {name} is missing, expected {', '.join(ConfigurationRow.model_fields)}")
    return columns, (_line(cells, columns, number) for number, cells in enumerate(lines, start=1))


def _line(cells: dict[str, str], columns: list[str], number: int) -> SampleLine:
    known = {name: text for name, text in cells.items() if name in columns}
    if list(cells) != columns:
        return SampleLine(known, None, f"row {number}: has another number of cells than the header")
    try:
        filled = {name: text.strip() for name, text in known.items() if text.strip()}
        return SampleLine(known, ConfigurationRow.parse_cells(filled, f"row {number}"), "")
    except DataError as error:
        return SampleLine(known, None, str(error))
