"""
What a strategy space holds and leaves out, measured against what its stack runs.

A bound is a claim about its space S alone. By default S is the space R that the stack runs on the model and the cluster
(``taut.formulations.stack_space``), with nothing fixed. The reader of a bound is told, each in words:

(1) R (``held``). If the catalog does not have the stack, R is not known: S counts as R, and ``held`` says so;
(2) what R has and S lacks (``narrowed``): choices, degrees, chunks, mechanisms, divisions, and values that are fixed;
(3) degrees in S without candidates, and a recompute that saves nothing, as the cost table has no rows of them
    (``unpriced``);
(4) what S lacks though nobody took it away (``unsearched``), such as many unequal chunks a device;
(5) inputs that have a name of the catalog and other content (``renamed``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from taut.data.catalog.builtin import catalog_stack
from taut.data.catalog.devices import catalog_section
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.load import load_cluster, load_model
from taut.data.model import ModelSpec
from taut.data.spec import Spec
from taut.data.stack import ANY_DIVISION
from taut.errors import DataError
from taut.formulations.candidates import unpriced_degrees
from taut.formulations.mechanisms import offload
from taut.formulations.space import StrategySpace, Workload
from taut.formulations.stack_space import WHOLE_SPACE, stack_space
from taut.solver.certificate.document import DocumentFrame, PlanDocument

CHOICES = ("schedules", "zero", "sequence_parallel", "recompute", "cp_comm")
"""Fields of a space that list the values of one choice."""
STAGES = {"pipeline_zero": "in pipelines", "expert_zero": "beside expert ranks"}
"""Fields that list the ZeRO stages of some candidates, None for every stage, and these candidates in words."""
LARGEST = {"max_tp": "", "max_cp": "cp", "max_ep": "ep", "max_vpp": "", "max_even_vpp": "vpp"}
"""Fields of largest degrees, each with the degree that makes the limit void where it is fixed."""
PRICES = {"overlap_context"}
"""Truth values of a space that change prices alone."""
SWITCHES = [
    name for name, field in StrategySpace.model_fields.items() if field.annotation is bool and name not in PRICES
]
"""Mechanisms that a space has or has not."""
CHUNKED, CHUNKS = "interleaved-1f1b", ("max_vpp", "max_even_vpp")
"""The interleaved schedule, and the largest numbers of chunks, which mean nothing without it."""
MOST_NAMED = 8
"""Degrees without costs that are named one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceInWords:
    """The lines of a plan's space: (1) ``held``, (2) and (3) ``narrowed``, (4) ``unsearched``, (5) ``renamed``."""

    held: str
    narrowed: tuple[str, ...] = ()
    unsearched: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()


def space_in_words(
    document: DocumentFrame, model: ModelSpec, cluster: ClusterSpec, costs: CostTable | None
) -> SpaceInWords:
    """What the bound of a document is about, (1) to (5); None stands for costs that cannot be read."""
    space, known = document.certificate.space, document.certificate.prices_mechanisms
    lost = [*narrowed(space, model, cluster, mechanisms=known, meshes=not isinstance(document, PlanDocument))]
    lost += unpriced(space, model, cluster, costs) if costs and isinstance(document, PlanDocument) else []
    return SpaceInWords(
        held=held(space, mechanisms=known),
        narrowed=tuple(lost),
        unsearched=tuple(unsearched(space, layers=len(model.blocks), experts=model.has_experts)),
        renamed=tuple(renamed(document.inputs["model"].name, model, document.inputs["cluster"].name, cluster)),
    )


def held(space: Mapping[str, Any], *, mechanisms: bool = True) -> str:
    """The space R before anything was taken away, in a line, (1); no ``mechanisms`` in the latency model of a paper."""
    runs = _held(space, mechanisms=mechanisms)
    pipelines = space.get("pipeline_zero")
    in_pipelines = f" (in pipelines {_listed(pipelines)})" if pipelines is not None else ""
    recompute = _listed(runs["recompute"]) + (", of chunks' first layers" if space.get("block_recompute") else "")
    recompute += "" if space.get("recompute_by_stage", True) else ", one for all stages"
    parts = [
        f"schedules {_listed(runs['schedules'])}",
        f"ZeRO {_listed(runs['zero'])}{in_pipelines}",
        f"recompute {recompute}",
    ]
    if ANY_DIVISION not in (forms := space.get("divisions", [ANY_DIVISION])):
        parts.append(f"layers divided {_listed(forms)}")
    if not space.get("replicated_kv", True):
        parts.append("tensor degrees that divide the key-value heads")
    if not space.get("tied_pipelines", True):
        parts.append("one stage, as the embedding is the head")
    if dispatch := space.get("dispatch"):
        parts.append(f"exchanges of experts {_dispatched(dispatch)}")
    name = space.get("stack") or "taut"
    unknown = "" if _is_known(space) else ", by the plan alone, as the catalog has no such stack"
    return f"the space is what {name} runs{unknown}: {'; '.join(parts)}"


def narrowed(
    space: Mapping[str, Any], model: ModelSpec, cluster: ClusterSpec, *, mechanisms: bool = True, meshes: bool = False
) -> Iterator[str]:
    """Name what was taken away from the space, (2), each in a line; meshes are compared in the choices they have."""
    given = _read(space)
    usual, fixed = given, given.fixed
    if _is_known(space):
        stack = catalog_stack(given.stack or WHOLE_SPACE)
        usual = stack_space(stack, model, cluster, given.global_batch, mechanisms=mechanisms)
    yield from _choices(given, usual, CHOICES[:-1] if meshes else CHOICES)
    yield from () if meshes else _stages(given, usual)
    if model.has_experts and given.max_ep == 1:
        yield "experts: split over tensor ranks, all on every replica (left out: expert parallelism, ep > 1)"
    yield from _degrees(given, usual, ["max_tp"] if meshes else [*LARGEST])
    for switch in () if meshes else SWITCHES:
        if getattr(usual, switch) and not getattr(given, switch) and _matters(switch, given):
            yield f"{switch}: false, not true"
    fewer = [form for form in usual.divisions if form not in given.divisions]
    if fewer and ANY_DIVISION not in given.divisions:
        yield f"divisions: {_listed(given.divisions)} (left out: {', '.join(fewer)})"
    if given.seen:
        yield "seen: plans within all runs of the calibration (left out: what lies beyond them)"
    if fixed:
        yield "fixed: " + ", ".join(f"{name}={_word(value)}" for name, value in fixed.items())


def _choices(given: StrategySpace, usual: StrategySpace, names: Iterable[str]) -> Iterator[str]:
    """Choices of which the given space lacks values, with what is kept and what is left out."""
    for name in names:
        kept, every = getattr(given, name), getattr(usual, name)
        left_out = [_word(value) for value in every if value not in kept]
        if left_out and not (name == "cp_comm" and given.max_cp == 1):
            yield f"{name}: {', '.join(map(_word, kept)) or 'nothing'} (left out: {', '.join(left_out)})"


def _stages(given: StrategySpace, usual: StrategySpace) -> Iterator[str]:
    """ZeRO stages that the given space has in general, and lacks in pipelines or beside expert ranks."""
    for name, where in STAGES.items():
        kept, every = getattr(given, name), getattr(usual, name) or usual.zero
        left_out = [_word(zero) for zero in every if kept is not None and zero in given.zero and zero not in kept]
        if left_out and (name != "expert_zero" or given.max_ep > 1):
            yield f"zero {where}: {_listed(kept) or 'none'} (left out: {', '.join(left_out)})"


def _degrees(given: StrategySpace, usual: StrategySpace, names: Iterable[str]) -> Iterator[str]:
    """Largest degrees that are smaller than the stack's, unless a fixed degree says more."""
    for name in names:
        most, every, degree = getattr(given, name), getattr(usual, name), LARGEST[name]
        if most >= every or degree in given.fixed or (name in CHUNKS and CHUNKED not in given.schedules):
            continue
        if name != "max_ep" or most > 1:
            yield f"{name}: at most {most}, not {every}"


def unpriced(space: Mapping[str, Any], model: ModelSpec, cluster: ClusterSpec, costs: CostTable) -> Iterator[str]:
    """Name degrees without costs, which have no candidates, (3), in a line, and a recompute without, in another."""
    lacking, priced = unpriced_degrees(Workload(_read(space), model, cluster), costs)
    named = list[str]()
    for place, name in enumerate(("tp", "cp", "ep", "micro_batch")):
        some = {each[place] for each in priced}
        without = sorted({each[place] for each in lacking} - some)
        named += [f"{name} {', '.join(map(str, without))}"] if without else []
        # What is missing on account of this degree is not said again.
        lacking = {each for each in lacking if each[place] in some}
    words = [f"tp {tp} cp {cp} ep {ep} micro_batch {size}" for tp, cp, ep, size in sorted(lacking)]
    more = [f"{len(words) - MOST_NAMED} others"] if len(words) > MOST_NAMED else []
    if named or words:
        yield f"costs: no rows of {'; '.join([*named, *words[:MOST_NAMED], *more])}, which have no candidates"
    if (
        costs.rows
        and "selective" in space.get("recompute", [])
        and all(row.recompute != "selective" for row in costs.rows)
    ):
        yield "costs: no rows of selective recompute, which is none there"


def _read(space: Mapping[str, Any]) -> StrategySpace:
    """A space from its plain values, of which a plan of meshes or an older one has only some."""
    return StrategySpace.model_validate({"global_batch": 1, "max_tp": 1, **space})


def _is_known(space: Mapping[str, Any]) -> bool:
    """Whether the catalog has the space's stack."""
    return (space.get("stack") or WHOLE_SPACE) in catalog_section("stacks")


def _held(space: Mapping[str, Any], *, mechanisms: bool) -> dict[str, list[Any]]:
    """The values of every choice that the space's stack has, or of these the ones that a paper's model prices."""
    given = _read(space)
    if not _is_known(space):
        return {choice: getattr(given, choice) for choice in CHOICES}
    stack = catalog_stack(given.stack or WHOLE_SPACE)
    every = StrategySpace(global_batch=1, max_tp=1)
    known: dict[str, list[Any]] = {choice: list(getattr(stack, choice)) for choice in CHOICES}
    if mechanisms:
        return known
    closed = {c: [value for value in getattr(every, c) if value in known[c]] for c in ("schedules", "zero")}
    return {**known, **closed}


def _matters(switch: str, given: StrategySpace) -> bool:
    """Whether a mechanism would add candidates to the given space, so that its absence is told."""
    if switch == "expert_tensor":
        return given.max_ep > 1
    if switch == "hybrid_sharding":
        return not {*given.zero} <= {0, 1}
    if switch == "recompute_by_stage":
        return len(given.recompute) > 1
    return switch != "empty_ends" or CHUNKED in given.schedules


def renamed(name: str, model: ModelSpec, of_cluster: str, cluster: ClusterSpec) -> Iterator[str]:
    """Name inputs that have a name of the catalog and other content, (5). The length of sequences may differ."""
    if name in catalog_section("models"):
        lengths = {layer.seq for layer in model.kinds.values()}
        length = lengths.pop() if len(lengths) == 1 else None
        yield from _apart("model", name, model, partial(load_model, name, seq=length))
    if of_cluster.partition(":")[0] in catalog_section("clusters"):
        yield from _apart("cluster", of_cluster, cluster, partial(load_cluster, of_cluster))


def _apart(kind: str, name: str, given: Spec, load: Callable[[], Spec]) -> Iterator[str]:
    """Fields in which an input differs from the catalog's of its name; none where the catalog has no such."""
    try:
        own = load()
    except DataError:
        # Such as a cluster with less memory, whose name goes on behind the number of its nodes.
        return
    fields = [field for field in type(own).model_fields if getattr(own, field) != getattr(given, field)]
    if fields:
        yield f"its {kind} {name} is not the catalog's: {', '.join(fields)} differ{'s' * (len(fields) == 1)}"


def unsearched(space: Mapping[str, Any], *, layers: int, experts: bool = False) -> Iterator[str]:
    """Name what is not searched though nobody took it away, (4), each in a line."""
    default = StrategySpace(global_batch=1, max_tp=1)
    if CHUNKED in space.get("schedules", default.schedules) and not {"vpp", "schedule"} & set(space.get("fixed", {})):
        most, even = space.get("max_vpp", default.max_vpp), space.get("max_even_vpp", 0)
        yield f"vpp above {max(most, even)}" if even < layers else f"vpp above {most} unless all chunks can be equal"
    if not space.get("hybrid_sharding", True) and not set(space.get("zero", [])) <= {0, 1}:
        yield "dp_shard: all replicas share one copy, unless it is fixed"
    if modules := space.get("recompute_modules"):
        yield f"selective recompute of modules other than {', '.join(modules)}"
    if "full" in space.get("recompute", []) and not space.get("block_recompute") and _runs_blocks(space):
        yield "recompute of the first layers of every chunk alone, unless block_recompute asks for it"
    yield from offload.left_out(space)
    if experts and space.get("max_ep", 1) > 1:
        yield _of_expert_ranks(space)
    if adapted := len(space.get("orders", [])):
        yield f"orders: the schedules' own and {adapted} adapted, not every order"


def _runs_blocks(space: Mapping[str, Any]) -> bool:
    """Whether the catalog's stack of a space may recompute some layers of every chunk."""
    return _is_known(space) and catalog_stack(space.get("stack") or WHOLE_SPACE).block_recompute


def _of_expert_ranks(space: Mapping[str, Any]) -> str:
    """How experts are not split over ranks of their own."""
    named = space.get("expert_zero")
    lacking = [] if named is None else [f"ZeRO-{zero}" for zero in space.get("zero", []) if zero not in named]
    shared = "1 or tp" if space.get("expert_tensor", True) else "1"
    return f"{''.join(f'{each}, ' for each in lacking)}etp other than {shared}, with ep > 1"


def _dispatched(dispatch: Mapping[str, Any]) -> str:
    """How tokens are dispatched, in words."""
    words = [str(dispatch.get("dispatcher", "flex"))]
    words += ["dispatched in fp8"] * bool(dispatch.get("fp8"))
    words += [f"scores in {dispatch.get('router_dtype')}"] * bool(dispatch.get("router_dtype"))
    factor = float(dispatch.get("imbalance", 1.0))
    words += [f"imbalance factor {factor:g}"] * (factor > 1)
    words += ["hidden behind another micro-batch where passes alternate"] * bool(dispatch.get("overlap"))
    return ", ".join(words)


def _listed(values: object) -> str:
    return ", ".join(map(_word, values)) if isinstance(values, list) else str(values)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
