"""
What is asked of the planner: model, cluster, batch, prices, what is fixed, and when to stop.

A ``PlanRequest`` is one frozen value. Each of its fields states the values that it accepts; defaults and meanings are
those of ``taut.planning.options``. The command line builds the same value. A wrong field is a ``FieldError``, which the
command line names by its flag.
"""

import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Unpack, cast, get_args, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from taut.data.calibration import Calibration
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.device import Precision
from taut.data.layers.experts import DISPATCHERS, ROUTER_FORMATS, Dispatcher, RouterFormat
from taut.data.load import load_cluster
from taut.data.loss import LOSSES, LossKind, as_loss
from taut.data.memory import GradPrecision, MemoryModel, Optimizer
from taut.data.model import ModelSpec
from taut.data.spec import Spec, shorten
from taut.data.stack import SCHEDULES, Schedule, Stack
from taut.data.suggest import nearest, one_of
from taut.errors import DataError, FieldError
from taut.formulations.mechanisms.latency_models import LATENCY_MODELS, SIMULATED, LatencyModel, LatencyName, prices_of
from taut.formulations.mechanisms.offload import SHARES
from taut.formulations.space import MOST_SEQUENCES
from taut.planning.options import DEFAULTS, Name, PlanOptions, reference
from taut.solver.result import OPTIMALITY_GAP, Limits

MOST_SEED = 2**31 - 1
"""The largest seed that every part of a search takes."""
ModelInput = ModelSpec | Name | Mapping[str, Any]
ClusterInput = ClusterSpec | Name | Mapping[str, Any]


def whole(expected: str, least: int = 1, most: float = math.inf) -> Callable[[object], int]:
    """Accept a whole number within limits; numpy's are whole numbers as well, truth values are not."""

    def accept(value: object) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise ValueError(expected)
        number = operator.index(value)
        if not least <= number <= most:
            raise ValueError(expected)
        return number

    return accept


def number(expected: str, holds: Callable[[float], bool]) -> Callable[[object], float]:
    """Accept a number that holds; not a number holds nothing."""

    def accept(value: object) -> float:
        if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__") or not holds(float(value)):
            raise ValueError(expected)
        return float(value)

    return accept


def one_of_names(known: Iterable[str]) -> Callable[[object], str]:
    """Accept one of some names."""
    names = tuple(known)

    def accept(value: object) -> str:
        if value not in names:
            raise ValueError(f"expected {one_of(str(value), names)}")
        return str(value)

    return accept


def flag(value: object) -> bool:
    """Accept a truth value alone."""
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def optional(accept: Callable[[object], object]) -> BeforeValidator:
    """Accept None beside what a function accepts."""
    return BeforeValidator(lambda value: None if value is None else accept(value))


S = TypeVar("S", bound=Spec)


def _spec(kind: type[S], role: str) -> Callable[[object], S | str]:
    """Accept a spec, its plain values, a catalog name or a path."""

    def accept(value: object) -> S | str:
        if isinstance(value, kind):
            return value
        if isinstance(value, Mapping):
            return kind.parse({"name": role, **value}, role)
        if isinstance(value, str | PathLike):
            return str(value)
        raise ValueError(f"expected a catalog name, a file or a {kind.__name__}")

    return accept


def _fixed(value: object) -> dict[str, int | str | bool]:
    """Accept a mapping of names to values; what they may be depends on the cluster (``check_fixed``)."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError("expected names with values, such as {'tp': 8, 'schedule': '1f1b'}")
    return {str(name): _plain(each) for name, each in value.items()}


def _plain(value: object) -> int | str | bool:
    """Numpy's whole numbers as Python's; anything else as it is, for ``check_fixed`` to judge."""
    if isinstance(value, bool | str) or not hasattr(value, "__index__"):
        return cast("str", value)
    return operator.index(value)


def _schedules(value: object) -> tuple[Schedule, ...]:
    """Accept ``all``, a comma list or several names."""
    if value == "all":
        return SCHEDULES
    if not isinstance(value, str | Iterable):
        raise ValueError("expected all, or names of schedules")
    names = [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)
    found: list[Schedule] = []
    for name in names:
        known = next((kind for kind in SCHEDULES if kind == name), None)
        if known is None:
            raise ValueError(
                f"{name!r}, expected all or some of {one_of(str(name), SCHEDULES).removeprefix('one of ')}"
            )
        if known in found:
            raise ValueError(f"{name} stands twice, expected once")
        found.append(known)
    if not found:
        raise ValueError("expected at least one schedule")
    return tuple(found)


def _shares(value: object) -> float | tuple[float, ...]:
    """Accept a share, ``auto``, a comma list or several shares; one alone as a number."""
    accept = number("expected a share from 0 to 1, several with commas between, or auto", lambda share: 0 <= share <= 1)
    if value == "auto":
        return SHARES
    parts: Iterable[object] = value.split(",") if isinstance(value, str) else value if _several(value) else [value]
    try:
        given = [float(each) if isinstance(each, str) else each for each in parts]
    except ValueError:
        given = [""]
    found = sorted({accept(each) for each in given or [""]})
    return found[0] if len(found) == 1 else tuple(found)


def _several(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, Iterable) and getattr(value, "ndim", 1) > 0


Positive = whole("expected a whole number above 0")


class PlanRequest(BaseModel):
    """
    A checked request: every option of ``taut.plan``, with its default where it is left out.

    Raises
    ------
    FieldError
        For the first field that is wrong: its name, its value, what was expected.

    Examples
    --------
    >>> import taut
    >>> request = taut.PlanRequest("gpt2-345m", "dgx-a100", global_batch=32, fix={"tp": 2})
    >>> request.gap, request.schedules
    (0.001, None)
    >>> taut.PlanRequest("gpt2-345m", "dgx-a100", global_batch=0)
    Traceback (most recent call last):
    taut.errors.FieldError: global_batch: 0, expected a number of sequences from 1 to 10000000
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True)

    model: Annotated[ModelSpec | str, BeforeValidator(_spec(ModelSpec, "model"))]
    cluster: Annotated[ClusterSpec | str, BeforeValidator(_spec(ClusterSpec, "cluster"))]
    global_batch: Annotated[
        int, BeforeValidator(whole(f"expected a number of sequences from 1 to {MOST_SEQUENCES}", most=MOST_SEQUENCES))
    ]
    seq: Annotated[int | None, optional(whole("expected a number of tokens above 0"))]
    mtp_layers: Annotated[int | None, optional(whole("expected 1 to 100 further tokens", most=100))]
    profile: Annotated[CostTable | str | None, optional(_spec(CostTable, "profile"))]
    memory_model: Annotated[MemoryModel | str | None, optional(_spec(MemoryModel, "memory_model"))]
    latency_model: Annotated[
        LatencyName | Literal["simulated"], BeforeValidator(one_of_names((*LATENCY_MODELS, SIMULATED)))
    ]
    overlap_grad_reduce: Annotated[bool, BeforeValidator(flag)]
    overlap_moe_expert_parallel_comm: Annotated[bool, BeforeValidator(flag)]
    moe_token_dispatcher: Annotated[Dispatcher | None, optional(one_of_names(DISPATCHERS))]
    fp8_dispatch: Annotated[bool, BeforeValidator(flag)]
    moe_router_dtype: Annotated[RouterFormat | None, optional(one_of_names(ROUTER_FORMATS))]
    imbalance: Annotated[
        float | None, optional(number("expected a factor of 1 to 1000", lambda factor: 1 <= factor <= 1000))
    ]
    calibration: Annotated[Calibration | str | None, optional(_spec(Calibration, "calibration"))]
    stack: Annotated[Stack | str | None, optional(_spec(Stack, "stack"))]
    precision: Annotated[Precision | None, optional(one_of_names(get_args(Precision)))]
    grad_precision: Annotated[GradPrecision | None, optional(one_of_names(get_args(GradPrecision)))]
    fused_loss: Annotated[LossKind | None, optional(lambda value: one_of_names(LOSSES)(as_loss(value)))]
    optimizer: Annotated[Optimizer | None, optional(one_of_names(get_args(Optimizer)))]
    optimizer_offload_fraction: Annotated[float | tuple[float, ...] | None, optional(_shares)]
    activation_offload_fraction: Annotated[float | tuple[float, ...] | None, optional(_shares)]
    block_recompute: Annotated[bool, BeforeValidator(flag)]
    fix: Annotated[dict[str, Any], BeforeValidator(_fixed)]
    seen: Annotated[bool, BeforeValidator(flag)]
    risk: Annotated[
        float | None, optional(number("expected a quantile above 0.5 and below 1, such as 0.9", lambda q: 0.5 < q < 1))
    ]
    max_tp: Annotated[int | None, optional(Positive)]
    max_cp: Annotated[int | None, optional(Positive)]
    max_ep: Annotated[int | None, optional(Positive)]
    schedules: Annotated[tuple[Schedule, ...] | None, optional(_schedules)]
    time_limit: Annotated[float | None, optional(number("expected a number above 0", lambda s: s > 0))]
    work_limit: Annotated[int | None, optional(Positive)]
    gap: Annotated[
        float, BeforeValidator(number("expected a share from 0 to 1, such as 0.01", lambda gap: 0 <= gap < 1))
    ]
    seed: Annotated[
        int, BeforeValidator(whole(f"expected a whole number from 0 to {MOST_SEED}", least=0, most=MOST_SEED))
    ]
    workers: Annotated[int, BeforeValidator(Positive)]

    def __init__(self, model: ModelInput, cluster: ClusterInput, **options: Unpack[PlanOptions]) -> None:
        try:
            super().__init__(model=model, cluster=cluster, **{**DEFAULTS, **options})
        except ValidationError as error:
            raise _refusal(error) from None

    @property
    def latency(self) -> LatencyModel:
        """What is priced: by the latency model, at whose prices the plan is found."""
        return prices_of(self.latency_model)

    @property
    def cluster_spec(self) -> ClusterSpec:
        """The cluster, read where its name or file was given."""
        return load_cluster(self.cluster) if isinstance(self.cluster, str) else self.cluster

    @property
    def is_simulated(self) -> bool:
        """Whether plans are ranked by their simulated time."""
        return self.latency_model == SIMULATED

    def at_own_prices(self) -> "PlanRequest":
        """The request at the prices at which plans are found, whatever ranks them."""
        return self.model_copy(update={"latency_model": self.latency.name})

    def refuse_simulation(self) -> None:
        """Refuse to rank plans by their simulated time, which ``taut.plan`` alone does."""
        if self.is_simulated:
            reason = f"scores plans of taut.plan alone, expected one of {', '.join(LATENCY_MODELS)}"
            raise FieldError("latency_model", SIMULATED, reason)

    @property
    def limits(self) -> Limits:
        """When the search stops, at the latest where its plan is optimal, and on how many threads it runs."""
        gap = max(self.gap, OPTIMALITY_GAP)
        return Limits(
            time_limit=self.time_limit, work_limit=self.work_limit, gap=gap, seed=self.seed, workers=self.workers
        )


PlanRequest.__doc__ = f"{inspect.cleandoc(PlanRequest.__doc__ or '')}\n\nOptions\n-------\n{reference()}\n"


def request_of(
    model: ModelInput | PlanRequest, cluster: ClusterInput | None, options: Mapping[str, Any]
) -> PlanRequest:
    """The request itself, or one made from model, cluster and options; both together raise ``FieldError``."""
    if not isinstance(model, PlanRequest):
        if cluster is None:
            raise FieldError("cluster", None, "missing, expected a catalog name, a file or a ClusterSpec")
        return PlanRequest(model, cluster, **cast("PlanOptions", options))
    if beside := ["cluster"] * (cluster is not None) + list(options):
        raise FieldError(beside[0], None, "given together with a PlanRequest, expected nothing that the request holds")
    return model


def check_search(**given: Any) -> None:
    """Refuse limits of a search (time, work, gap, seed, workers) out of range, by the rules of ``PlanRequest``."""
    PlanRequest("", "", global_batch=1, **given)


def _refusal(error: ValidationError) -> DataError:
    """The first complaint, by its field; what is wrong inside a spec says so itself."""
    first = error.errors(include_url=False)[0]
    inner = first.get("ctx", {}).get("error")
    if isinstance(inner, DataError):
        return inner
    field, value = str(first["loc"][0]), first.get("input")
    if first["type"] == "missing":
        return FieldError(field, None, "missing, expected a value")
    if first["type"] == "extra_forbidden":
        near = nearest(field, PlanRequest.model_fields)
        return FieldError(field, None, "unknown field" + (f"; did you mean {near}?" if near else ""))
    text = isinstance(value, str) and str in _accepted(field)
    shown = str(value) if text else f"{value:g}" if isinstance(value, float) else shorten(value)
    return FieldError(field, shown, first["msg"].removeprefix("Value error, "))


def _accepted(field: str) -> set[object]:
    """Types that an option may be of, as ``PlanOptions`` states them."""
    hint = get_type_hints(PlanOptions, globals()).get(field, str)
    return {str} if hint is str else set(get_args(hint))
