r"""
Which rule fixed values break, and the nearest values that keep it.

(1) Rules on degrees, batch, sharding, schedule and layers are tried one by one, each where the values that it speaks of
    are fixed or follow from fixed ones. With D devices and degrees that are all fixed, dp = D / (pp tp cp), and the
    micro-batches are m = batch / (dp micro-batch).
(2) If none of them is broken, a fixed value is let go, one after the other. The first that leaves candidates is told
    with the values next to it that they have.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from taut.formulations.degrees import divides_kv, tensor_degrees
from taut.formulations.divisions import families
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.plan_orders import is_defined
from taut.formulations.space import FIXES, fixable_value

DEGREES = ("pp", "tp", "cp", "dp")
CHUNKED = "interleaved-1f1b"


def broken_rule(problem: PlanningProblem) -> str:
    """The rule that a problem's fixed values break, (1) or (2), in words; empty where none of them is to blame."""
    rules = (_product, _tensor, _context, _pipeline, _batch, _sharding, _schedule, _division)
    words = (word for rule in rules for word in rule(problem))
    return next(words, "") or _one_let_go(problem)


def near(values: Sequence[int], value: int) -> str:
    """The values next to one, in words."""
    below, above = [each for each in values if each < value], [each for each in values if each > value]
    return " or ".join(str(each) for each in [*below[-1:], *above[:1]]) or "none"


def _fixed(problem: PlanningProblem, name: str) -> int | None:
    """A number that is fixed."""
    value = problem.space.fixed.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _stack(problem: PlanningProblem) -> str:
    return problem.space.stack or "this space"


def _divisors(total: int) -> list[int]:
    return [each for each in range(1, total + 1) if total % each == 0]


def _product(problem: PlanningProblem) -> Iterator[str]:
    """Fixed degrees divide the devices."""
    given = {name: value for name in DEGREES if (value := _fixed(problem, name)) is not None}
    whole, devices = prod(given.values()), problem.cluster.num_devices
    exact = len(given) == len(DEGREES)
    if devices % whole or (exact and whole != devices):
        shown = " x ".join(f"{name} {value}" for name, value in given.items())
        what = f"{devices}" if exact else near(_divisors(devices), whole)
        yield f"{shown} = {whole} is no part of {devices} devices: a product of {what} is"


def _context(problem: PlanningProblem) -> Iterator[str]:
    """Context ranks share attention, whose keys and values are passed; nothing else that mixes tokens is priced."""
    cp = _fixed(problem, "cp")
    if cp is None or cp == 1:
        return
    for layer in problem.model.kinds.values():
        if layer.mixer or not layer.is_usual:
            part = "no attention" if layer.mixer or not layer.mixes else "parts beside plain attention"
            yield f"cp {cp}: layers {layer.kind!r} have {part}, which taut prices without context ranks: cp 1"
            return


def _tensor(problem: PlanningProblem) -> Iterator[str]:
    """The tensor degree divides every layer and the nodes."""
    tp, space, model = _fixed(problem, "tp"), problem.space, problem.model
    if tp is None:
        return
    every = tensor_degrees(model, problem.cluster, space.max_tp, replicated_kv=space.replicated_kv)
    if tp in every:
        return
    nearest = f"the nearest: tp={near(every, tp)}"
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
    """A stage has a layer."""
    pp, layers = _fixed(problem, "pp"), len(problem.model.blocks)
    if pp is not None and pp > layers:
        yield f"pp {pp} is above {layers} layers: pp={near([*_divisors(problem.cluster.num_devices)], layers + 1)}"


def _replicas(problem: PlanningProblem) -> int | None:
    """Replicas that are fixed, or that follow from degrees."""
    if (dp := _fixed(problem, "dp")) is not None:
        return dp
    tp, pp = _fixed(problem, "tp"), _fixed(problem, "pp")
    cp = _fixed(problem, "cp") or (1 if problem.space.max_cp == 1 else None)
    if tp is None or pp is None or cp is None or problem.cluster.num_devices % (tp * pp * cp):
        return None
    return problem.cluster.num_devices // (tp * pp * cp)


def _batch(problem: PlanningProblem) -> Iterator[str]:
    """Replicas times micro-batch divide the batch."""
    dp, each, batch = _replicas(problem), _fixed(problem, "micro_batch"), problem.space.global_batch
    if dp is None or problem.space.uneven_batch:
        return
    if batch % dp:
        yield f"{dp} replicas do not divide a global batch of {batch}: {near(_multiples(dp, batch), batch)} is divided"
    elif each is not None and batch // dp % each:
        yield (
            f"micro-batch {each} does not divide the {batch // dp} sequences of a replica: "
            f"micro_batch={near(_divisors(batch // dp), each)}"
        )


def _multiples(of: int, value: int) -> list[int]:
    return [each for each in (value // of * of, (value // of + 1) * of) if each and each != value]


def _sharding(problem: PlanningProblem) -> Iterator[str]:
    """The ZeRO stage is one that pipelines have."""
    pp, zero, space = _fixed(problem, "pp"), _fixed(problem, "zero"), problem.space
    if zero is None:
        return
    if pp is not None and pp > 1 and space.pipeline_zero is not None and zero not in space.pipeline_zero:
        shown = " and ".join(f"ZeRO-{stage}" for stage in space.pipeline_zero) or "no sharding"
        yield f"{_stack(problem)} has {shown} in pipelines, not ZeRO-{zero} with pp {pp}"
    ep = _fixed(problem, "ep")
    if ep is not None and ep > 1 and space.expert_zero is not None and zero not in space.expert_zero:
        shown = " and ".join(f"ZeRO-{stage}" for stage in space.expert_zero)
        yield f"{_stack(problem)} has {shown} with expert ranks, not ZeRO-{zero} with ep {ep}"


def _schedule(problem: PlanningProblem) -> Iterator[str]:
    """The schedule suits the stages, chunks and micro-batches."""
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
        batches = _multiples(pp * sequences, space.global_batch)
        yield (
            f"{several} micro-batches are no multiple of {pp} stages, which {CHUNKED} needs: "
            f"a global batch of {' or '.join(map(str, batches))} has one"
        )
    elif isinstance(schedule, str) and schedule != CHUNKED and not is_defined(schedule, pp, several):
        yield f"schedule {schedule} is not defined for {several} micro-batches over {pp} stages"


def _division(problem: PlanningProblem) -> Iterator[str]:
    """The layers have a division that the stack states."""
    pp, vpp, space = _fixed(problem, "pp"), _fixed(problem, "vpp"), problem.space
    if pp is None or (vpp is None and space.fixed.get("schedule") not in ("1f1b", "gpipe")):
        return
    layers, chunks = len(problem.model.blocks), vpp or 1
    stated = families(space.divisions, layers, CHUNKED if chunks > 1 else "1f1b", pp, chunks)
    if stated is not None and not len(stated):
        words = " or ".join(space.divisions)
        yield f"{layers} layers have no division over {pp} stages of {chunks} chunks that is {words}"


def _one_let_go(problem: PlanningProblem) -> str:
    """The first fixed value without which there are candidates, and what they have next to it, (2)."""
    fixed = problem.space.fixed
    for name, value in fixed.items():
        rest = {other: each for other, each in fixed.items() if other != name}
        others = replace(problem, space=problem.space.model_copy(update={"fixed": rest})).candidates
        if not others:
            continue
        found = {fixable_value(candidate, name) for candidate in others} - {None} if name in FIXES else set()
        if isinstance(value, int) and not isinstance(value, bool):
            words = near(sorted(each for each in found if isinstance(each, int)), value)
        else:
            words = " or ".join(sorted(str(each).lower() for each in found)) or "another"
        beside = ", ".join(f"{other}={each}" for other, each in rest.items()) or "anything else"
        return f"{name}={value} goes with no plan of {beside}: {name}={words} does"
    return ""
