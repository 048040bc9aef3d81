r"""
Columns: for every kind of job and number of GPUs the best plan, computed once.

A kind of job is a model with sequence and global batch, on one kind of node. For each number of GPUs

(1) the best plan of ``taut.plan`` on that many GPUs of the kind, with its proven bound on the step time; or
(2) with plans ``data-parallel`` the best one with the least tensor and pipeline degrees, tensor first within a node, at
    which one replica fits, with ZeRO up to 1: what a scheduler that scales data parallelism alone has.

The rate is 1 / step time, and no plan of the space is faster than 1 / lower bound. What does not fit has no column.
Results are kept in the user's cache folder, ``TAUT_CACHE`` names another, so another run, or one after a kill, plans
only what is missing. A plan is kept by

(3) key = SHA-256(version of taut, fields of the request, digest of the planning problem),

where the problem holds what prices the plan: model, cluster, cost table, calibration, memory model and space. So a
calibration, a memory model or a stack that has changed, in a file or in the catalog, is planned anew.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from taut.data.cluster import ClusterSpec, NetworkSpec, NodeSpec
from taut.data.model import ModelSpec
from taut.data.spec import Spec, digest
from taut.errors import DataError
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.processes import cores
from taut.solver.certificate.document import claim_of, inputs_of
from taut.sweeping.executors import run_here
from taut.sweeping.journal import Journal
from taut.sweeping.point import LOADERS, Point
from taut.sweeping.row import LOST, Row

Plans = Literal["best", "data-parallel"]
PLANS: tuple[Plans, ...] = ("best", "data-parallel")
GAP, SECONDS = 0.01, 60.0
"""A plan is good enough at a gap of 1 %, and searched for a minute at most."""
NO_CANDIDATE = "fix:"
"""How the error of fixed degrees begins that suit no candidate."""
Told = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of job on a kind of node, equal to another of the same content."""

    model: ModelSpec
    global_batch: int
    group: NodeSpec
    network: NetworkSpec

    @cached_property
    def key(self) -> str:
        """The content's name."""
        return digest([self.global_batch, *(part.digest() for part in (self.model, self.group, self.network))])

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and other.key == self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Steps per second of a kind on so many GPUs: of its plan, and of none in the space more than ``most``."""

    gpus: int
    rate: float
    most: float
    plan: str


def cache_folder() -> Path:
    """Where columns are kept: ``TAUT_CACHE``, or ``taut`` in the user's cache folder."""
    named = os.environ.get("TAUT_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else base / "taut"


def gpu_counts(gpus_per_node: int, nodes: int) -> list[int]:
    """Halves of a node down to one GPU, then nodes by powers of two, and all of them."""
    counts = {gpus_per_node * nodes}
    counts |= {gpus_per_node << k for k in range(nodes.bit_length()) if 1 << k <= nodes}
    part = gpus_per_node
    while part > 1 and part % 2 == 0:
        part //= 2
        counts.add(part)
    return sorted(counts)


def columns(
    wanted: dict[Kind, list[int]],
    *,
    plans: Plans = "best",
    pricing: Mapping[str, Any] | None = None,
    processes: int | None = None,
    told: Told | None = None,
) -> dict[Kind, list[Column]]:
    """The best plans of kinds of jobs at numbers of GPUs, (1) or (2), priced by options of ``taut.plan``."""
    priced = _loaded(pricing or {})
    with ExitStack() as stack:
        cache = _Cache(stack, processes or cores(), told)
        if plans == "best":
            points = {(kind, gpus): _point(kind, gpus, priced) for kind, counts in wanted.items() for gpus in counts}
        else:
            least = _least_degrees(wanted, priced, cache)
            points = {
                (kind, gpus): _point(kind, gpus, priced, _scaled(least[kind], gpus))
                for kind, counts in wanted.items()
                for gpus in counts
                if kind in least and gpus % (least[kind]["tp"] * least[kind]["pp"]) == 0
            }
        cache.fill((kind, point) for (kind, _), point in points.items())
        found: dict[Kind, list[Column]] = {kind: [] for kind in wanted}
        for (kind, gpus), point in points.items():
            if (column := _column(gpus, cache.rows[point.key])) is not None:
                found[kind].append(column)
    return found


class _Cache:
    """Results of points, a journal for each kind of job."""

    def __init__(self, stack: ExitStack, processes: int, told: Told | None) -> None:
        self.rows: dict[str, Row] = {}
        self._stack, self._processes, self._told = stack, processes, told
        self._journals: dict[str, Journal] = {}

    def fill(self, wanted: Iterable[tuple[Kind, Point]]) -> None:
        """Solve points that are not there yet."""
        points = {point.key: (kind, point) for kind, point in wanted}
        homes = {key: self._journal(kind) for key, (kind, _) in points.items()}
        self.rows |= {key: home.done[key] for key, home in homes.items() if key in home.done}
        left = [point for key, (_, point) in points.items() if key not in self.rows]

        def finished(point: Point, row: Row) -> None:
            if row["status"] != LOST:
                homes[point.key].add(point.key, row)
            self.rows[point.key] = row
            if self._told is not None:
                self._told(f"planned {sum(key in self.rows for key in points)} of {len(points)} columns")

        if left:
            run_here(left, finished, min(self._processes, len(left)))

    def _journal(self, kind: Kind) -> Journal:
        name = kind.key[:32]
        if name not in self._journals:
            folder = cache_folder() / "columns"
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DataError(f"{folder}: cannot be made ({error.strerror}), expected TAUT_CACHE=FOLDER") from None
            try:
                self._journals[name] = self._stack.enter_context(Journal(folder / f"{name}.journal"))
            except DataError as error:
                raise DataError(f"{error}; the folder is {folder}, TAUT_CACHE names another") from None
        return self._journals[name]


def _part(kind: Kind, gpus: int) -> ClusterSpec:
    """So many GPUs of a kind of node: whole nodes, or a part of one."""
    per_node = kind.group.gpus_per_node
    nodes, size = (gpus // per_node, per_node) if gpus >= per_node else (1, gpus)
    group = kind.group.model_copy(update={"count": nodes, "gpus_per_node": size})
    return ClusterSpec(name=f"{kind.group.device.name} x{gpus}", nodes=[group], network=kind.network)


def _loaded(pricing: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the specs that they name, so that what a key says of a file is what is planned with."""
    given = {name: value for name, value in pricing.items() if value is not None}
    return {name: value if isinstance(value, Spec) else LOADERS[name](value) for name, value in given.items()}


def _point(kind: Kind, gpus: int, pricing: dict[str, Any], fix: dict[str, Any] | None = None) -> Point:
    """The plan of a kind on so many GPUs, named by (3)."""
    fields = {
        "model": kind.model,
        "cluster": _part(kind, gpus),
        "global_batch": kind.global_batch,
        "gap": GAP,
        "time_limit": SECONDS,
        **pricing,
        **({"fix": fix} if fix else {}),
    }
    try:
        stated = planning_problem(PlanRequest(**fields))
        problem = str(claim_of(stated, inputs_of(stated))["problem_sha256"])
    except DataError as error:
        # Fixed degrees that suit no candidate make a row that says so; anything else is the caller's.
        if not str(error).startswith(NO_CANDIDATE):
            raise
        problem = str(error)
    return Point("plan", fields, fields, problem=problem)


def _column(gpus: int, row: Row) -> Column | None:
    """A column, or None where nothing fits; other errors are raised, as no bound is known then."""
    if row["status"] == "infeasible":
        return None
    if row["error"] or row["lower_bound_s"] is None:
        # A degree that does not divide the batch is no plan of the space.
        if str(row["error"]).startswith(NO_CANDIDATE):
            return None
        raise DataError(f"the plan on {gpus} GPUs: {row['error'] or 'has no bound'}")
    degrees = f"tp={row['tp']} pp={row['pp']} dp={row['dp']} micro_batch={row['micro_batch']} zero={row['zero']}"
    return Column(gpus=gpus, rate=1 / row["step_time_s"], most=1 / row["lower_bound_s"], plan=degrees)


def _scaled(least: dict[str, Any], gpus: int) -> dict[str, Any]:
    """Least degrees on so many GPUs: with several replicas, each keeps a part of the optimizer's state."""
    return {**least, "zero": 1} if gpus > least["tp"] * least["pp"] else least


def _replicas(kind: Kind, most: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Sizes of one replica with their degrees: tensor ranks first, within a node, then stages; powers of two."""
    size = 1
    while size <= most:
        tp = min(size, kind.group.gpus_per_node)
        yield size, {"tp": tp, "pp": size // tp}
        size *= 2


def _least_degrees(wanted: dict[Kind, list[int]], pricing: dict[str, Any], cache: _Cache) -> dict[Kind, dict[str, Any]]:
    """The least degrees (2) at which one replica fits, by kind; kinds without any are left out."""
    found: dict[Kind, dict[str, Any]] = {}
    for kind, counts in wanted.items():
        for size, degrees in _replicas(kind, max(counts, default=0)):
            point = _point(kind, size, pricing, degrees)
            cache.fill([(kind, point)])
            if _column(size, cache.rows[point.key]) is not None:
                found[kind] = degrees
                break
    return found
