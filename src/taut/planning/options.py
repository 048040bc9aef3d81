"""
The options of a request, each stated once: its name, the values that a user may give, its default, and its meaning.

Keyword arguments of ``taut.plan``, ``taut.pareto`` and their kin, fields of ``PlanRequest``, flags of the command line
with their help, and the reference page of options follow from the records. ``PlanRequest`` adds what a value must be.

The command line reads this module before it knows the verb, so the module loads nothing else of ``taut``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Required, SupportsIndex, TypedDict, get_args, get_origin

if TYPE_CHECKING:
    from taut.data.calibration import Calibration
    from taut.data.costs import CostTable
    from taut.data.memory import MemoryModel
    from taut.data.stack import Stack

Name = str | PathLike[str]
"""A catalog name or a file."""
Fixed = Mapping[str, SupportsIndex | str]


@dataclass(frozen=True, slots=True)
class Option:
    """
    An option of a request: its meaning in a line, and what Python's documentation says more.

    ``verbs`` are the verbs of the command line that take the option, beside ``plan`` and ``pareto``. An option that
    ``is_current`` is a part of what runs today, so ``taut.compare`` takes it from the current configuration as well.
    """

    help: str
    more: str = ""
    default: Any = None
    verbs: tuple[str, ...] = ()
    is_current: bool = False


class PlanOptions(TypedDict, total=False):
    """Keyword arguments of ``taut.plan`` and ``taut.pareto``, with the record of each."""

    global_batch: Annotated[Required[int], Option("Sequences per step.", verbs=("compare", "simulate"))]
    seq: Annotated[
        int | None,
        Option(
            "Sequence length in tokens; default: the model's, of a config.json its longest up to 8192.",
            verbs=("compare", "simulate"),
        ),
    ]
    mtp_layers: Annotated[
        int | None,
        Option(
            "Multi-token prediction: further tokens, each with layers of its own next to the head.",
            "By default the model's file says; files of Hugging Face leave them out.",
            verbs=("compare",),
        ),
    ]
    profile: Annotated[
        "CostTable | Name | None",
        Option(
            "Measured layer costs: catalog name or CSV file.",
            "Without it costs are analytic.",
            verbs=("compare", "simulate"),
        ),
    ]
    memory_model: Annotated[
        "MemoryModel | Name | Mapping[str, Any] | None",
        Option(
            "Catalog name, YAML file, or JSON of a network.",
            "Without it the model of a device's memory is the one fitted for the calibration's stack, or the analytic "
            "one.",
            verbs=("compare", "simulate", "jobs"),
        ),
    ]
    latency_model: Annotated[
        str,
        Option(
            "step, pipette, pipette-printed or amp; for plan also simulated, as with --method.",
            "``simulated`` is method ``simulated`` at the prices of ``step``.",
            default="step",
        ),
    ]
    overlap_grad_reduce: Annotated[
        bool,
        Option(
            "Reduce gradients during the last backward pass.",
            "``step`` alone prices it.",
            default=False,
            verbs=("simulate",),
        ),
    ]
    overlap_moe_expert_parallel_comm: Annotated[
        bool,
        Option(
            "Hide all-to-alls of experts behind another micro-batch.",
            default=False,
            verbs=("compare",),
            is_current=True,
        ),
    ]
    moe_token_dispatcher: Annotated[
        str | None,
        Option(
            "Dispatcher of expert ranks: flex (DeepEP, HybridEP; default), alltoall or allgather.",
            verbs=("compare",),
            is_current=True,
        ),
    ]
    fp8_dispatch: Annotated[
        bool, Option("Dispatch tokens to experts in fp8, forward.", default=False, verbs=("compare",), is_current=True)
    ]
    moe_router_dtype: Annotated[
        str | None,
        Option(
            "Format of router scores, in which allgather sums outputs: fp32 or fp64.",
            verbs=("compare",),
            is_current=True,
        ),
    ]
    imbalance: Annotated[
        float | None,
        Option("Tokens of the fullest expert rank over the mean; default: 1, even routing.", verbs=("compare",)),
    ]
    calibration: Annotated[
        "Calibration | Name | Mapping[str, Any] | None",
        Option(
            "Fitted coefficients: catalog name or YAML file.",
            "They are fitted on measured runs. Without them and without a stack that brings some, the stated "
            "efficiencies hold.",
            verbs=("compare", "simulate", "jobs"),
        ),
    ]
    stack: Annotated[
        "Stack | Name | Mapping[str, Any] | None",
        Option(
            "Framework: catalog name or YAML file; default: megatron-core.",
            "The framework that is to run the plan (``taut catalog stacks``) limits the space and brings a "
            "calibration. Under the papers' latency models the default is ``any``.",
            verbs=("compare", "simulate", "jobs"),
        ),
    ]
    precision: Annotated[
        str | None,
        Option(
            "bf16, fp16, fp32, fp8, fp8-blockwise, mxfp8 or nvfp4.",
            "By default the first of bf16, fp16 and fp32 in which every device computes.",
            verbs=("compare", "simulate"),
        ),
    ]
    grad_precision: Annotated[
        str | None,
        Option(
            "Format in which gradients are kept and summed: bf16, fp16 or fp32; default: by precision.",
            "It is fp16 where ``precision`` is, and fp32 elsewhere.",
            verbs=("compare", "simulate"),
        ),
    ]
    fused_loss: Annotated[
        bool | str | None,
        Option(
            "How the loss is computed: none, native or te; default: as the stack has it.",
            "``native`` is Megatron-LM's fused loss and keeps single precision beside a copy, as ``none`` does there. "
            "``te``, or true, is Transformer Engine's, which writes the logits' gradient in their place.",
            verbs=("compare", "simulate"),
        ),
    ]
    optimizer: Annotated[
        str | None,
        Option(
            "adam, or muon (default: adam): its states, its Newton-Schulz products and who runs them.",
            "Muon is Megatron-LM's, with ZeRO-1 its layer-wise distributed optimizer. ``step`` alone prices it.",
            verbs=("compare", "simulate"),
            is_current=True,
        ),
    ]
    optimizer_offload_fraction: Annotated[
        float | str | Iterable[float] | None,
        Option(
            "Share of the optimizer states in the host's memory, 0 to 1, several, or auto; default: none.",
            "The host updates their weights. Several shares, or ``auto`` for quarters from 0 to 1, are a choice of "
            "the plan.",
            verbs=("compare", "simulate"),
            is_current=True,
        ),
    ]
    activation_offload_fraction: Annotated[
        float | str | Iterable[float] | None,
        Option(
            "Share of the activations in the host's memory, 0 to 1, several, or auto; default: none.",
            "They come back for the backward pass. Several shares, or ``auto``, are a choice of the plan.",
            verbs=("compare", "simulate"),
            is_current=True,
        ),
    ]
    block_recompute: Annotated[
        bool,
        Option(
            "Also plans that recompute the first layers of every chunk and keep the others.",
            "Megatron-LM's ``--recompute-method block``. Every number of layers up to an even chunk's is a choice.",
            default=False,
            verbs=("compare",),
        ),
    ]
    fix: Annotated[
        Fixed | None,
        Option(
            "Values that must hold, such as tp=8,pp=4,schedule=1f1b.",
            'In Python degrees and choices by name, such as ``{"tp": 8, "schedule": "1f1b"}``.',
            verbs=("simulate",),
        ),
    ]
    seen: Annotated[
        bool,
        Option(
            "Only plans within all runs of the calibration.",
            "A calibration says what its runs have been, field by field (``Calibration.seen``).",
            default=False,
            verbs=("compare",),
        ),
    ]
    risk: Annotated[
        float | None,
        Option(
            "Minimise this quantile of the step time, such as 0.9; default: the likeliest prices.",
            "Every coefficient of the calibration is at its quantile, as if all errors rose and fell together. Bound "
            "and certificate hold at these prices.",
            verbs=("compare",),
        ),
    ]
    max_tp: Annotated[
        int | None, Option("Largest tensor degree; default: the node size.", "Of several sizes it is the largest.")
    ]
    max_cp: Annotated[
        int | None,
        Option(
            "Largest context degree; default: 4096 tokens a rank.",
            "It is 1 outside ``step``, and for stacks without context ranks.",
        ),
    ]
    max_ep: Annotated[
        int | None,
        Option(
            "Largest expert degree; default: the experts of a layer.",
            "An expert group of more GPUs than a node, which is what NVLink spans, fills several.",
        ),
    ]
    schedules: Annotated[
        str | Iterable[str] | None,
        Option(
            "A list, such as 1f1b,zb-v; default: all that the stack runs.",
            "The papers' latency models and memory networks have 1f1b, gpipe and any fixed by default. ``all`` is all "
            "that the stack runs there too.",
            verbs=("compare",),
        ),
    ]
    time_limit: Annotated[
        float | None,
        Option(
            "Seconds of a search, or none for no limit.",
            "In Python None is no limit. Several searches of a verb share the seconds.",
            default=60.0,
            verbs=("compare",),
        ),
    ]
    work_limit: Annotated[int | None, Option("Refinements of a search: deterministic work.", verbs=("compare",))]
    gap: Annotated[
        float,
        Option(
            "Relative gap at which a search stops, such as 0.01; 0: at the proven optimum.",
            "A plan counts as optimal at a gap of at most 1e-6, from where no search goes on.",
            default=1e-3,
            verbs=("compare",),
        ),
    ]
    seed: Annotated[int, Option("Seed of the annealing.", default=0)]
    workers: Annotated[int, Option("Threads; the plan does not depend on them.", default=2)]


OPTIONS: dict[str, Option] = {name: hint.__metadata__[0] for name, hint in PlanOptions.__annotations__.items()}
"""Records of the options by name."""
DEFAULTS = {name: OPTIONS[name].default for name in OPTIONS if name in PlanOptions.__optional_keys__}
"""Defaults of the options that may be left out."""
CURRENT = tuple(name for name, option in OPTIONS.items() if option.is_current)
"""Options that are a part of what runs today."""
PLAIN = (int, float, bool, str, int | None, float | None, bool | None)
"""Types that the command line reads as they are; it reads others as text."""


def type_of(name: str) -> Any:
    """Type of an option on the command line, where a specification is a name and a list is a text with commas."""
    hint = PlanOptions.__annotations__[name].__origin__
    hint = get_args(hint)[0] if get_origin(hint) is Required else hint
    return hint if hint in PLAIN else str | None


def reference() -> str:
    """The options as a list, a line each: name, default and meaning."""
    shown = {name: f"; default {option.default!r}" if option.default else "" for name, option in OPTIONS.items()}
    return "\n".join(
        f"- ``{name}``{shown[name]}: {' '.join(filter(None, (option.help, option.more)))}"
        for name, option in OPTIONS.items()
    )
