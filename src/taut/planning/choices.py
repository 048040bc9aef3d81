r"""
What a user fixes or asks for, refused before anything is priced.

Values are refused where no candidate can have them, whatever else is chosen.
Mechanisms are refused where the latency model does not price them, a memory network does not know them, or the
framework of the plan has no part of them.

Where fixed values leave no candidate, ``broken_rule`` says which rule they break, and the nearest values that keep it.
With D devices, L layers, dp = D / (pp tp cp) where dp is not fixed, and m = batch / (dp micro_batch) micro-batches, the
rules are tried in this order, each only where the values in it are fixed or follow from fixed ones:

(1) the product of the fixed degrees divides D, and is D if all of pp, tp, cp and dp are fixed;
(2) tp divides the heads and the widths of every layer, divides the key-value heads or is a multiple of them (only
    divides them where the stack lets no ranks share one), is at most ``max_tp``, and fits the nodes;
(3) cp > 1 asks for plain attention in every layer: frameworks exchange heads of others (Megatron-LM, if tp cp divides
    them) or have no context ranks for them (torchtitan), and taut prices none;
(4) pp is at most L, and 1 if the head is the embedding and the stack has no pipelines of such models;
(5) dp divides the batch, and the micro-batch divides the sequences of a replica, unless batches may be uneven;
(6) the ZeRO stage is one that the stack has in pipelines, and with expert ranks;
(7) several chunks a device ask for a schedule that has them and for pp > 1; interleaved-1f1b asks for m to be a
    multiple of pp, and any other schedule is defined for pp and m;
(8) the stack can state some division of L layers into pp vpp chunks.

(9) If none of these is broken, the fixed values are released one at a time. The first without which there are
    candidates is named, with the values next to it that these candidates have.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from taut.data.cluster import ClusterSpec
from taut.data.device import HALF
from taut.data.suggest import adjacent, multiples_around, one_of
from taut.errors import FieldError
from taut.formulations.degrees import divides_kv, divisors, tensor_degrees
from taut.formulations.divisions import families
from taut.formulations.fields import Asked
from taut.formulations.mechanisms.muon import check_muon
from taut.formulations.mechanisms.offload import OF_ALL_STAGES as OFFLOAD
from taut.formulations.mechanisms.recompute import OF_ALL_STAGES as RECOMPUTE
from taut.formulations.mechanisms.shards import check_groups
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import is_defined
from taut.formulations.space import CHECKS as FIELD_CHECKS
from taut.formulations.space import FIXES, SEARCHED, fixable_value

OF_ALL_STAGES = RECOMPUTE | OFFLOAD
"""What may be fixed beside fields of a candidate: the recompute of every stage, and modules of it and of offload."""
NAMES = FIXES | OF_ALL_STAGES
"""What may be fixed."""


def check_fixed(fixed: Mapping[str, object], global_batch: int, cluster: ClusterSpec) -> None:
    """Refuse fixed values that no candidate can have, whatever else is chosen; ``FieldError`` names the value."""
    for name, value in fixed.items():
        if name not in NAMES:
            raise FieldError("fix", _shown(name, value), f"unknown name, expected {one_of(name, NAMES)}")
        if expected := NAMES[name].expected(value, global_batch, cluster.num_devices):
            raise FieldError("fix", _shown(name, value), f"expected {expected}")
    check_groups(fixed)


def _shown(name: str, value: object) -> str:
    """``name=value``; text in quotes where a number or a truth value was expected."""
    is_text = name in NAMES and NAMES[name].kind is str
    return f"{name}={value}" if is_text or not isinstance(value, str) else f"{name}={value!r}"


def _check_images(asked: Asked) -> None:
    """Refuse an encoder of images where the stack has none, or nothing prices it."""
    if asked.model.encoder is None:
        return
    precision, optimizer, reasons = asked.memory.precision, asked.memory.optimizer, dict[str, bool]()
    reasons[f"{asked.stack.name} has no encoder of images, expected megatron-core or any"] = not asked.stack.encoders
    reasons[f"precision is {precision}, expected bf16 or fp16 beside an encoder"] = precision not in HALF
    reasons["the matrices of an encoder are not priced under Muon, expected --optimizer adam"] = optimizer != "adam"
    words = f"{asked.memory.name} is a network, which knows no encoder, expected a memory model of terms"
    reasons[words] = not asked.memory.is_sum_of_terms
    if reason := next((words for words, holds in reasons.items() if holds), None):
        raise FieldError("model", asked.model.name, reason)


def _check_muon(asked: Asked) -> None:
    """Refuse a model, cluster or memory model that Muon is not priced for."""
    if asked.memory.optimizer == "muon":
        check_muon(asked.model, asked.cluster, asked.memory)


def _check_stack(asked: Asked) -> None:
    """Refuse a field that is fixed to true where the stack or the latency model lacks it."""
    for name in SEARCHED:
        if asked.fix.get(name) and not (getattr(asked.stack, name) and asked.latency.prices_mechanisms):
            reason = f"no part of {asked.stack.name} under {asked.latency.name}, expected false, or stack any and step"
            raise FieldError("fix", f"{name}=true", reason)


CHECKS = _check_muon, *FIELD_CHECKS, _check_stack, _check_images
"""What is refused of the job and of each field, in the order in which refusals are told."""


DEGREES = ("pp", "tp", "cp", "dp")
CHUNKED = "interleaved-1f1b"


def broken_rule(problem: PlanningProblem) -> str:
    """The first rule that a problem's fixed values break, (1) to (9), in words; empty where no value is to blame."""
    rules = (_product, _tensor, _context, _pipeline, _batch, _sharding, _schedule, _division)
    words = (word for rule in rules for word in rule(problem))
    return next(words, "") or _released(problem)


def _fixed(problem: PlanningProblem, name: str) -> int | None:
    """The whole number to which a name is fixed; None where it is free or no number."""
    value = problem.space.fixed.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _stack(problem: PlanningProblem) -> str:
    return problem.space.stack or "this space"


def _product(problem: PlanningProblem) -> Iterator[str]:
    """Rule (1)."""
    given = {name: value for name in DEGREES if (value := _fixed(problem, name)) is not None}
    whole, devices = prod(given.values()), problem.cluster.num_devices
    exact = len(given) == len(DEGREES)
    if devices % whole or (exact and whole != devices):
        shown = " x ".join(f"{name} {value}" for name, value in given.items())
        what = f"{devices}" if exact else adjacent(divisors(devices), whole)
        yield f"{shown} = {whole} is no part of {devices} devices: a product of {what} is"


def _context(problem: PlanningProblem) -> Iterator[str]:
    """Rule (3): context ranks exchange the heads of layers without attention, and the keys that an indexer chooses."""
    cp, tp, space = _fixed(problem, "cp"), _fixed(problem, "tp") or 1, problem.space
    if cp is None or cp == 1:
        return
    for layer in problem.model.kinds.values():
        named = f"cp {cp}: layers {layer.kind!r}"
        for heads, mixer in layer.mixers:
            if not space.mixer_contexts:
                yield f"{named} have no attention, {space.stack} has no context ranks for them: cp 1"
            elif mixer.attends:
                yield f"{named} have attention with matrices of its own, which taut prices without context ranks: cp 1"
            elif heads % (tp * cp):
                yield f"{named}: tp {tp} x cp {cp} does not divide their {heads} heads, which context ranks exchange"
        chosen = any(part.latent and part.latent.index_heads for part in layer.attending)
        if chosen and "all_gather" not in {*space.cp_comm} & {space.fixed.get("cp_comm", "all_gather")}:
            yield f"{named}: context ranks gather keys where an indexer chooses tokens: cp_comm=all_gather, or cp 1"


def _tensor(problem: PlanningProblem) -> Iterator[str]:
    """Rule (2)."""
    tp, space, model = _fixed(problem, "tp"), problem.space, problem.model
    if tp is None:
        return
    every = tensor_degrees(model, problem.cluster, space.max_tp, replicated_kv=space.replicated_kv)
    if tp in every:
        return
    nearest = f"the nearest: tp={adjacent(every, tp)}"
    for layer in model.kinds.values():
        if layer.mixes and layer.heads % tp:
            yield f"tp {tp} does not divide {layer.heads} heads; {nearest}"
        if layer.mixes and layer.key_value_heads % tp and tp % layer.key_value_heads:
            yield f"tp {tp} neither divides {layer.key_value_heads} key-value heads nor is a multiple; {nearest}"
    if not space.replicated_kv and not divides_kv(model, tp):
        heads = min(layer.key_value_heads for layer in model.kinds.values() if layer.mixes)
        yield f"tp {tp} does not divide {heads} key-value heads, which no ranks of {_stack(problem)} share; {nearest}"
    if not model.splits(tp):
        yield f"tp {tp} does not divide the widths of every layer; {nearest}"
    if tp > space.max_tp:
        yield f"tp {tp} is above {space.max_tp} (max_tp, by default the devices of a node); {nearest}"
    yield f"tp {tp} does not divide the nodes; {nearest}"


def _pipeline(problem: PlanningProblem) -> Iterator[str]:
    """Rule (4)."""
    pp, layers = _fixed(problem, "pp"), len(problem.model.blocks)
    if pp is not None and pp > layers:
        most = max(each for each in divisors(problem.cluster.num_devices) if each <= layers)
        yield f"pp {pp} is above {layers} layers: pp={most}"
    if pp not in (None, 1) and problem.model.tied_embedding and not problem.space.tied_pipelines:
        yield f"pp {pp}: {_stack(problem)} has no pipelines of a model whose head is its embedding: pp=1"


def _replicas(problem: PlanningProblem) -> int | None:
    """dp, fixed or from the other degrees; None where these do not decide it."""
    if (dp := _fixed(problem, "dp")) is not None:
        return dp
    tp, pp = _fixed(problem, "tp"), _fixed(problem, "pp")
    cp = _fixed(problem, "cp") or (1 if problem.space.max_cp == 1 else None)
    if tp is None or pp is None or cp is None or problem.cluster.num_devices % (tp * pp * cp):
        return None
    return problem.cluster.num_devices // (tp * pp * cp)


def _batch(problem: PlanningProblem) -> Iterator[str]:
    """Rule (5)."""
    dp, each, batch = _replicas(problem), _fixed(problem, "micro_batch"), problem.space.global_batch
    if dp is None or problem.space.uneven_batch:
        return
    if batch % dp:
        nearest = adjacent(multiples_around(batch, dp), batch)
        yield f"{dp} replicas do not divide a global batch of {batch}: {nearest} is divided"
    elif each is not None and batch // dp % each:
        yield (
            f"micro-batch {each} does not divide the {batch // dp} sequences of a replica: "
            f"micro_batch={adjacent(divisors(batch // dp), each)}"
        )


def _sharding(problem: PlanningProblem) -> Iterator[str]:
    """Rule (6)."""
    pp, zero, space = _fixed(problem, "pp"), _fixed(problem, "zero"), problem.space
    if zero is None:
        return
    if zero not in space.zero:
        yield f"{_stack(problem)} has ZeRO {', '.join(map(str, space.zero))}, not ZeRO-{zero}"
    if pp is not None and pp > 1 and space.pipeline_zero is not None and zero not in space.pipeline_zero:
        shown = " and ".join(f"ZeRO-{stage}" for stage in space.pipeline_zero) or "no sharding"
        yield f"{_stack(problem)} has {shown} in pipelines, not ZeRO-{zero} with pp {pp}"
    ep = _fixed(problem, "ep")
    if ep is not None and ep > 1 and space.expert_zero is not None and zero not in space.expert_zero:
        shown = " and ".join(f"ZeRO-{stage}" for stage in space.expert_zero)
        yield f"{_stack(problem)} has {shown} with expert ranks, not ZeRO-{zero} with ep {ep}"


def _schedule(problem: PlanningProblem) -> Iterator[str]:
    """Rule (7)."""
    space = problem.space
    pp, vpp, each, dp = (*(_fixed(problem, name) for name in ("pp", "vpp", "micro_batch")), _replicas(problem))
    schedule = space.fixed.get("schedule")
    if vpp is not None and vpp > 1 and schedule is not None and schedule not in (CHUNKED, "zb-v", "v-half", "v-min"):
        yield f"schedule {schedule} has one chunk a device, not vpp {vpp}: schedule={CHUNKED}"
    if vpp is not None and vpp > 1 and pp == 1:
        yield f"vpp {vpp} with pp 1: several chunks need several stages"
    chunked = schedule == CHUNKED or (vpp is not None and vpp > 1 and schedule is None)
    if pp is None or pp == 1 or each is None or dp is None or space.global_batch % (dp * each):
        return
    several, sequences = space.global_batch // dp // each, dp * each
    if chunked and several % pp:
        batches = multiples_around(space.global_batch, pp * sequences)
        yield (
            f"{several} micro-batches are no multiple of {pp} stages, which {CHUNKED} needs: "
            f"a global batch of {' or '.join(map(str, batches))} has one"
        )
    elif isinstance(schedule, str) and schedule != CHUNKED and not is_defined(schedule, pp, several):
        yield f"schedule {schedule} is not defined for {several} micro-batches over {pp} stages"


def _division(problem: PlanningProblem) -> Iterator[str]:
    """Rule (8)."""
    pp, vpp, space = _fixed(problem, "pp"), _fixed(problem, "vpp"), problem.space
    if pp is None or (vpp is None and space.fixed.get("schedule") not in ("1f1b", "gpipe")):
        return
    layers, chunks = len(problem.model.blocks), vpp or 1
    stated = families(space.divisions, layers, CHUNKED if chunks > 1 else "1f1b", pp, chunks)
    if stated is not None and not len(stated):
        words = " or ".join(space.divisions)
        yield f"{layers} layers have no division over {pp} stages of {chunks} chunks that is {words}"


def _released(problem: PlanningProblem) -> str:
    """The first fixed value without which there are candidates, and what these have in its place, (9)."""
    fixed = problem.space.fixed
    for name, value in fixed.items():
        rest = {other: each for other, each in fixed.items() if other != name}
        others = replace(problem, space=problem.space.model_copy(update={"fixed": rest})).candidates
        if not others:
            continue
        found = {fixable_value(candidate, name) for candidate in others} - {None} if name in FIXES else set()
        if isinstance(value, int) and not isinstance(value, bool):
            words = adjacent((each for each in found if isinstance(each, int)), value)
        else:
            words = " or ".join(sorted(str(each).lower() for each in found)) or "another"
        beside = ", ".join(f"{other}={each}" for other, each in rest.items()) or "anything else"
        return f"{name}={value} goes with no plan of {beside}: {name}={words} does"
    return ""
