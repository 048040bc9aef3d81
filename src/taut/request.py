"""From what a user names to the planning problem: specs, costs, memory model, calibration and space."""

from taut.data.analytic.layer_costs import analytic_costs
from taut.data.analytic.micro_batch_scaling import with_micro_batches
from taut.data.builtin import catalog_operators, memory_model_of
from taut.data.calibration import Calibration
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.device import Precision
from taut.data.load import load_calibration, load_cluster, load_costs, load_memory_model, load_model
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.errors import DataError
from taut.formulations.problem import LATENCY_MODELS, LatencyModel, PlanningProblem
from taut.formulations.schedules.plan_orders import ORDERED
from taut.formulations.space import (
    MOST_SEQUENCES,
    SCHEDULES,
    Schedule,
    StrategySpace,
    check_fixed,
    divisors,
    tensor_degrees,
)


def planning_problem(
    model: ModelSpec | str,
    cluster: ClusterSpec | str,
    *,
    global_batch: int,
    seq: int | None = None,
    profile: CostTable | str | None = None,
    memory_model: MemoryModel | str | None = None,
    latency_model: str = "pipette",
    calibration: Calibration | str | None = None,
    precision: str | None = None,
    fix: dict[str, int | str | bool] | None = None,
    max_tp: int | None = None,
    schedules: str | None = None,
) -> PlanningProblem:
    """
    The problem that ``plan`` solves; parameters as there.

    Raises
    ------
    DataError
        If an input is wrong or no candidate exists.
    """
    model = load_model(model, seq=seq) if isinstance(model, str) else model
    cluster = load_cluster(cluster) if isinstance(cluster, str) else cluster
    chosen = load_calibration(calibration) if isinstance(calibration, str) else calibration
    memory = _memory_model(memory_model, precision, cluster, chosen)
    fixed = dict(fix or {})
    if not 1 <= global_batch <= MOST_SEQUENCES:
        raise DataError(f"--global-batch {global_batch}: expected a number of sequences from 1 to {MOST_SEQUENCES}")
    check_fixed(fixed, global_batch, cluster)
    largest = max(group.gpus_per_node for group in cluster.nodes)
    space = StrategySpace(global_batch=global_batch, max_tp=max_tp or largest, fixed=fixed)
    space = _with_schedules(space, schedules)
    _check_priced(space, _known(latency_model), memory)
    if fixed.get("zero") in (2, 3):
        space = space.model_copy(update={"zero": [*space.zero, fixed["zero"]]})
    costs = _costs(profile, model, cluster, memory, space, chosen)
    problem = PlanningProblem(model, cluster, costs, memory, space, _known(latency_model), chosen)
    if not problem.candidates:
        raise DataError(_no_candidate(problem))
    return problem


def _with_schedules(space: StrategySpace, named: str | None) -> StrategySpace:
    """The space with the named schedules, or its own, and with what fixed values ask for."""
    chosen = list(space.schedules) if named is None else parse_schedules(named)
    schedule, vpp = space.fixed.get("schedule"), space.fixed.get("vpp", 1)
    several = isinstance(vpp, int) and vpp > 1
    if named is None:
        chosen += [kind for kind in SCHEDULES if kind == schedule and kind not in chosen]
        if several and schedule is None:
            chosen += ["interleaved-1f1b"]
    most = max(space.max_vpp, vpp) if isinstance(vpp, int) else space.max_vpp
    return space.model_copy(update={"schedules": chosen, "max_vpp": most})


def parse_schedules(text: str) -> list[Schedule]:
    """
    Schedules of a comma list, or ``all`` of them.

    Raises
    ------
    DataError
        If one is unknown or stands twice.
    """
    if text == "all":
        return list(SCHEDULES)
    found: list[Schedule] = []
    for name in (part.strip() for part in text.split(",")):
        known = next((kind for kind in SCHEDULES if kind == name), None)
        if known is None:
            raise DataError(f"--schedules {text}: {name!r}, expected all or some of {', '.join(SCHEDULES)}")
        if known in found:
            raise DataError(f"--schedules {text}: {name} stands twice, expected once")
        found.append(known)
    return found


def _check_priced(space: StrategySpace, latency_model: LatencyModel, memory: MemoryModel) -> None:
    """Refuse schedules that are priced by their order where nothing prices them."""
    ordered = [kind for kind in space.schedules if kind in ORDERED]
    if not ordered:
        return
    if latency_model != "pipette":
        raise DataError(f"--latency-model {latency_model}: does not price {ordered[0]}, expected pipette")
    if memory.network is not None:
        name = memory.network.name
        raise DataError(f"--memory-model: the network {name} does not know {ordered[0]}, expected a sum of terms")


def _known(latency_model: str) -> LatencyModel:
    for known in LATENCY_MODELS:
        if latency_model == known:
            return known
    raise DataError(f"--latency-model {latency_model}: expected one of {', '.join(LATENCY_MODELS)}")


def _memory_model(
    given: MemoryModel | str | None, precision: str | None, cluster: ClusterSpec, calibration: Calibration | None
) -> MemoryModel:
    """The given memory model, or the one fitted for the calibration's stack, or the analytic one."""
    memory = load_memory_model(given) if isinstance(given, str) else given
    if memory is None:
        common = MemoryModel.parse({"precision": precision or _common(cluster)}, "--precision").precision
        devices = list(cluster.devices.values())
        return memory_model_of(calibration.stack if calibration else "", devices[0], common)
    if precision is None:
        return memory
    return MemoryModel.parse({**memory.model_dump(), "precision": precision}, "--precision")


def _common(cluster: ClusterSpec) -> Precision:
    """The first usual precision in which every device computes; fp16 where there is none."""
    usual: tuple[Precision, ...] = ("bf16", "fp16", "fp32")
    computed = [spec.peak_tflops for spec in cluster.devices.values()]
    return next((precision for precision in usual if all(precision in peaks for peaks in computed)), "fp16")


def _costs(
    profile: CostTable | str | None,
    model: ModelSpec,
    cluster: ClusterSpec,
    memory: MemoryModel,
    space: StrategySpace,
    calibration: Calibration | None,
) -> CostTable:
    """The profile, extended where it has micro-batch 1 alone, or analytic costs over the keys of the space."""
    devices, micro_batches, operators = cluster.devices.values(), divisors(space.global_batch), catalog_operators()
    if profile is not None:
        measured = load_costs(profile) if isinstance(profile, str) else profile
        return with_micro_batches(
            measured,
            model,
            devices,
            memory.precision,
            micro_batches,
            operators=operators,
            calibration=calibration,
        )
    return analytic_costs(
        model,
        devices,
        precision=memory.precision,
        tensor_degrees=tensor_degrees(model, cluster, space.max_tp),
        micro_batches=micro_batches,
        operators=operators,
        fused_attention=memory.fused_attention,
        calibration=calibration,
    )


def wider_costs(problem: PlanningProblem, profile: CostTable | str | None, max_tp: int) -> CostTable:
    """Costs of a problem for tensor degrees up to the given one."""
    space = problem.space.model_copy(update={"max_tp": max_tp})
    return _costs(profile, problem.model, problem.cluster, problem.memory, space, problem.calibration)


def _no_candidate(problem: PlanningProblem) -> str:
    """Why the space is empty, in one line."""
    space, devices = problem.space, problem.cluster.num_devices
    rule = (
        f"pp*tp*dp = {devices} devices, dp divides the global batch {space.global_batch}, "
        f"pp is at most {len(problem.model.blocks)} layers, tp divides the heads, ffn and node size"
    )
    if space.fixed:
        fixed = ",".join(f"{field}={value}" for field, value in space.fixed.items())
        return f"--fix {fixed}: no candidate has these values, expected {rule}"
    if not problem.costs.basis.startswith("analytic"):
        return (
            f"{problem.costs.name}: prices no candidate, expected costs for every layer kind at one (tp, micro_batch)"
        )
    return f"no candidate exists, expected {rule}"
