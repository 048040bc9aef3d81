"""
One step, event by event: its time, where it goes on every stream, memory over time, every event, and words.

The trace is in the format of Chrome and Perfetto: a process a device, a thread a stream, a slice a task. Times are
microseconds. Tasks of no duration are left out; memory is a counter of its device. Open the file at
https://ui.perfetto.dev or in ``chrome://tracing``.

Of a plan of meshes (``taut.formulations.meshes.step_time``) every pipeline and stage is one device that stands for all
its ranks. Its step is passes with tensor traffic, the reduction of its gradients, the optimizer, the calibration's
constant, and waiting, which is the rest.

The graph of the step is built from the evaluator's own prices (``taut.formulations.simulation.graph``) and swept once.
The strategy is a plan's, or the one that fixed values state (``taut.planning.stated``). Both are simulated by the
prices of the latency model ``step``.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.units import GIB, KIB, MICROSECOND
from taut.errors import DataError, FieldError
from taut.files import write_atomically
from taut.formulations.latency import memory_bytes, step_time, violations
from taut.formulations.meshes.step_time import MeshPlan, MeshTimeline, mesh_step, mesh_timeline
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.recurrence import FORWARD
from taut.formulations.simulation.graph import operator_graph
from taut.formulations.simulation.operator_graph import ACTIVITIES, Held, OperatorGraph, activity_seconds, memory_curves
from taut.formulations.simulation.passes import KINDS, STREAMS
from taut.formulations.strategy import Strategy
from taut.formulations.tables.memory import stage_memory
from taut.planning.options import PlanOptions
from taut.planning.plan import Plan, load_plan
from taut.planning.request import ClusterInput, ModelInput, PlanRequest, request_of
from taut.planning.stated import stated_configuration
from taut.solver.certificate.document import devices_of, mesh_plan_of, problem_of, strategy_of
from taut.words import grid, report

if TYPE_CHECKING:
    from networkx import DiGraph
    from rich.table import Table


@dataclass(frozen=True, eq=False, repr=False)
class Simulation:
    """
    One training step, event by event.

    Parameters
    ----------
    problem, strategy, workers
        What was simulated, and the device of every worker (pp, dp, tp cp).
    graph
        Tasks of the step and what each waits for.
    start
        Seconds at which each task starts (tasks,).
    wall_s
        Seconds that building the graph and the sweep took.
    share_links
        Whether flows that meet on a node's cards slowed each other.

    Examples
    --------
    >>> import taut
    >>> found = taut.simulate("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> sorted(found.exposed_s)
    ['context_parallel', 'data_parallel', 'expert_parallel', 'pipeline_transfers', 'sharding', 'tensor_parallel']
    """

    problem: PlanningProblem
    strategy: Strategy
    workers: Ints
    graph: OperatorGraph
    start: Floats
    wall_s: float
    share_links: bool = False

    @cached_property
    def step_time_s(self) -> float:
        """Seconds of the step: the end of the last task, and a calibration's constant."""
        return float(self.end.max()) + self.problem.constant_of(self.strategy.candidate)

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return self.graph.tasks

    @cached_property
    def end(self) -> Floats:
        """Seconds at which each task ends (tasks,)."""
        return self.start + self.graph.seconds

    @cached_property
    def closed_form_s(self) -> float:
        """Seconds of the step by the evaluator that plans are made with (``taut.formulations.latency``)."""
        return float(step_time(self.problem, self.strategy, self.workers).total)

    @cached_property
    def activity_s(self) -> Floats:
        """Seconds of every activity and of idleness by simulated device (devices, activities + 1)."""
        return activity_seconds(self.graph, self.start)

    @cached_property
    def breakdown_s(self) -> dict[str, float]:
        """Seconds of the average device of the job: computation, exposed communication by kind, bubble, constant."""
        mean = self._weights @ self.activity_s
        named = dict(zip((*ACTIVITIES, "bubble"), mean.tolist(), strict=True))
        return {**named, "constant": self.problem.constant_of(self.strategy.candidate)}

    @property
    def exposed_s(self) -> dict[str, float]:
        """Seconds for which the average device waits for communication that nothing hides, by kind."""
        return {name: self.breakdown_s[name] for name in ACTIVITIES[1:]}

    @property
    def bubble(self) -> float:
        """Share of the step in which the average device neither computes nor waits for communication under way."""
        return _share(self.breakdown_s["bubble"], self.step_time_s)

    @cached_property
    def utilisation(self) -> dict[str, list[float]]:
        """Share of the step in which each stream is busy, by simulated device."""
        devices = self.graph.devices
        busy = np.bincount(self.graph.stream, weights=self.graph.seconds, minlength=devices * len(STREAMS))
        shares = busy[: devices * len(STREAMS)].reshape(devices, -1) / max(self.step_time_s, np.finfo(float).tiny)
        return {name: shares[:, k].tolist() for k, name in enumerate(STREAMS)}

    @cached_property
    def memory_bytes(self) -> list[int]:
        """Most bytes of one device of every pipeline rank."""
        return memory_bytes(self.problem, self.strategy)

    @cached_property
    def memory(self) -> list[Held]:
        """Bytes over time of one device of every pipeline rank, of the first simulated pipeline."""
        return memory_curves(self.problem, self.strategy, self.graph, self.start)

    @cached_property
    def capacity_bytes(self) -> list[int]:
        """Bytes that the smallest device of every pipeline rank has, the margin kept free."""
        types = self.problem.type_of_node[self.problem.links.node_of[self.workers]]
        budget = stage_memory(self.problem, self.strategy.candidate).budget[types]
        return [int(least) // KIB * KIB for least in budget.min(axis=(1, 2))]

    @property
    def fits(self) -> bool:
        """Whether every device has the memory."""
        return all(need <= free for need, free in zip(self.memory_bytes, self.capacity_bytes, strict=True))

    def device_name(self, device: int) -> str:
        """Which worker a simulated device stands for."""
        pipeline, rank = divmod(device, self.graph.ranks)
        replica = int(self.graph.replicas.simulated[pipeline])
        copies = int(np.count_nonzero(self.graph.replicas.like == pipeline))
        chosen = self.strategy.candidate
        kind = "replica" if chosen.pipelines == chosen.dp else "expert group"
        words = f"stage {rank}" + (f", {kind} {replica}" if chosen.pipelines > 1 else "")
        return words + (f" (stands for {copies} {kind}s)" if copies > 1 else "")

    def trace_events(self) -> Iterator[dict[str, Any]]:
        """When every task runs, as events of a trace."""
        graph, devices = self.graph, self.graph.devices
        for device in range(devices):
            yield named("process_name", device, 0, self.device_name(device))
            yield {**named("process_sort_index", device, 0, ""), "args": {"sort_index": device}}
            yield from (named("thread_name", device, k, name) for k, name in enumerate(STREAMS))
        yield named("process_name", devices, 0, "whole job")
        for task in np.flatnonzero(graph.seconds > 0).tolist():
            device, stream = divmod(int(graph.stream[task]), len(STREAMS))
            yield {
                "name": graph.name(task),
                "cat": self.kinds[task],
                "ph": "X",
                "ts": float(self.start[task]) / MICROSECOND,
                "dur": float(graph.seconds[task]) / MICROSECOND,
                "pid": device,
                "tid": stream,
            }
        for rank, (moment, held) in enumerate(self.memory):
            for second, size in zip((moment / MICROSECOND).tolist(), (held / GIB).tolist(), strict=True):
                yield {"name": "memory (GiB)", "ph": "C", "ts": second, "pid": rank, "tid": 0, "args": {"held": size}}

    def to_networkx(self) -> "DiGraph[int]":
        """The graph of a small step, with the start of every task."""
        graph = self.graph.to_networkx()
        for task, begin in enumerate(self.start.tolist()):
            graph.nodes[task]["start"] = begin
        return graph

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        names = ("step_time_s", "tasks", "wall_s", "bubble", "memory_bytes", "capacity_bytes", "fits", "closed_form_s")
        figures = {name: getattr(self, name) for name in (*names, "breakdown_s", "exposed_s", "utilisation")}
        return figures | {
            "strategy": {
                **self.strategy.candidate.as_dict(),
                "stages": [list(stage) for stage in self.strategy.layer_stages],
                "recompute": list(self.strategy.recompute),
            },
            "simulated_replicas": self.graph.replicas.simulated.tolist(),
            "share_links": self.share_links,
        }

    def __repr__(self) -> str:
        """One line: strategy, step time, tasks, bubble."""
        words = f"{self.step_time_s:.4g} s a step, {self.tasks} tasks, bubble {self.bubble:.1%}"
        return f"<Simulation {self.strategy.candidate}, {words}>"

    @cached_property
    def _weights(self) -> Floats:
        """Share of the job's pipelines that each simulated device stands for, (devices,)."""
        counts = np.bincount(self.graph.replicas.like, minlength=len(self.graph.replicas.simulated))
        return np.asarray(np.repeat(counts / counts.sum(), self.graph.ranks) / self.graph.ranks)

    @cached_property
    def kinds(self) -> list[str]:
        """What every task does, in words."""
        return [KINDS[kind] for kind in self.graph.kind.tolist()]


MOST_SLICES = 2_000_000
"""Slices of a trace: about 300 MB of JSON, as much as the viewers read."""


def write_trace(found: "Simulation | MeshSimulation", path: str | Path) -> None:
    """Write a trace of at most ``MOST_SLICES`` tasks, whole or not at all."""
    if found.tasks > MOST_SLICES:
        raise DataError(f"{path}: {found.tasks} tasks, expected at most {MOST_SLICES} for a trace")
    lines = ",\n".join(json.dumps(event) for event in found.trace_events())
    write_atomically(Path(path), f'{{"displayTimeUnit": "ms", "traceEvents": [\n{lines}\n]}}\n')


def named(kind: str, device: int, thread: int, name: str) -> dict[str, Any]:
    """The name of a process or thread."""
    return {"name": kind, "ph": "M", "pid": device, "tid": thread, "args": {"name": name}}


@dataclass(frozen=True, eq=False, repr=False)
class MeshSimulation:
    """
    One step of a plan of meshes, pass by pass.

    Parameters
    ----------
    plan, problem, chosen
        What was simulated.
    timeline
        When every pass runs.
    wall_s
        Seconds that it took.
    """

    plan: Plan
    problem: PlanningProblem
    chosen: MeshPlan
    timeline: MeshTimeline
    wall_s: float

    @property
    def step_time_s(self) -> float:
        """Seconds of the step."""
        return self.timeline.total

    @cached_property
    def closed_form_s(self) -> float:
        """Seconds of the step by the evaluator that plans are made with."""
        return mesh_step(self.problem, self.chosen).total

    @property
    def tasks(self) -> int:
        """Passes of all pipelines and stages."""
        return 2 * len(self.timeline.pipelines) * self.chosen.choice.pp * self.chosen.choice.num_micro_batches

    @cached_property
    def breakdown_s(self) -> dict[str, float]:
        """Seconds of the average device of the job by part."""
        ranks = np.array([stage["tp"] * stage["dp"] for stage in self.plan.stages], dtype=np.float64)
        of = ranks / ranks.sum()
        m, after = self.chosen.choice.num_micro_batches, self.timeline.after
        passes = [m * (each.forward + each.input_gradient + each.weight_gradient) for each in self.timeline.pipelines]
        parts = {
            "passes": float(of @ np.mean(passes, axis=0)),
            "data_parallel": float(of @ after.reductions),
            "optimizer": float(of @ after.optimizer),
            "constant": self.problem.constant_seconds,
        }
        return {**parts, "waiting": self.step_time_s - sum(parts.values())}

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "step_time_s": self.step_time_s,
            "closed_form_s": self.closed_form_s,
            "tasks": self.tasks,
            "wall_s": self.wall_s,
            "bubble": _share(self.breakdown_s["waiting"], self.step_time_s),
            "breakdown_s": self.breakdown_s,
            "passes_end_s": self.timeline.ended.tolist(),
            "memory_bytes": self.plan.sections.predicted.memory_bytes,
            "capacity_bytes": self.plan.sections.predicted.capacity_bytes,
        }

    def trace_events(self) -> Iterator[dict[str, Any]]:
        """When every pass of every pipeline runs, as events of a trace."""
        stages, several = self.plan.stages, len(self.timeline.pipelines) > 1
        for c, times in enumerate(self.timeline.times):
            for x, stage in enumerate(stages):
                device = c * len(stages) + x
                words = f"stage {x} on {stage['device']}" + (f", pipeline {c}" if several else "")
                yield named("process_name", device, 0, words)
                rows = zip(self.timeline.schedule.orders[x].tolist(), times.start[x], times.end[x], strict=True)
                for (kind, _, batch), start, end in rows:
                    name = "forward" if kind == FORWARD else "backward"
                    span = {"ts": float(start) / MICROSECOND, "dur": float(end - start) / MICROSECOND}
                    yield {"name": f"{name} {batch}", "cat": name, "ph": "X", **span, "pid": device, "tid": 0}

    def __repr__(self) -> str:
        """One line."""
        return f"<MeshSimulation {self.step_time_s:.4g} s a step, {self.tasks} passes>"


def simulate_meshes(plan: Plan, *, share_links: bool = False) -> MeshSimulation:
    """Run one step of a plan of meshes, pass by pass; a ``DataError`` refuses broken rules and shared links."""
    document = plan.meshed
    if share_links:
        reason = f"{plan.source} is a plan of meshes, expected a plan of one degree for all stages"
        raise FieldError("share_links", None, reason)
    began, problem = perf_counter(), problem_of(document, plan.source)
    chosen = mesh_plan_of(document, problem, plan.source)
    timeline = mesh_timeline(problem, chosen)
    return MeshSimulation(plan, problem, chosen, timeline, perf_counter() - began)


WORDS = {
    "compute": "computation",
    "tensor_parallel": "tensor groups",
    "context_parallel": "context rings",
    "expert_parallel": "expert ranks",
    "sharding": "shards",
    "data_parallel": "gradients",
    "pipeline_transfers": "messages",
    "bubble": "bubble",
    "passes": "passes",
    "optimizer": "optimizer",
    "waiting": "bubble and messages",
    "constant": "constant",
}
"""Parts of a step in words; communication counts where nothing hides it."""


def _share(part: float, whole: float) -> float:
    """Seconds as a share; 0 of a step that takes no time, and where rounding leaves less than none."""
    return part / whole if whole > 0 and abs(part) > 1e-9 * whole else 0.0


MOST_ROWS = 16
"""Devices that are listed one by one."""


def summary(found: "Simulation | MeshSimulation", *, width: int = 110) -> str:
    """Text of a simulation."""
    table = _mesh_table(found) if isinstance(found, MeshSimulation) else _table(found)
    return report("\n".join(_lines(found)), "", table, width=width)


def _lines(found: "Simulation | MeshSimulation") -> list[str]:
    problem, step = found.problem, found.step_time_s
    longer = _share(step - found.closed_form_s, found.closed_form_s)
    parts = ", ".join(f"{WORDS[name]} {part / step:.1%}" for name, part in found.breakdown_s.items() if part > 0)
    if isinstance(found, MeshSimulation):
        words, counted = found.chosen.choice.words(problem.device_types), _passes(found)
    else:
        words, counted = str(found.strategy.candidate), _graph(found)
    return [
        f"{problem.model.name} on {problem.cluster.name}: {words}",
        f"step        {step:.6g} s; closed form {found.closed_form_s:.6g} s ({longer:+.2%})",
        f"time        {parts}",
        *counted,
    ]


def _passes(found: MeshSimulation) -> list[str]:
    """How many passes and pipelines a plan of meshes has."""
    count = len(found.timeline.pipelines)
    return [f"passes      {found.tasks} on {count} pipeline{'s' if count > 1 else ''} of 1F1B"]


def _graph(found: "Simulation") -> list[str]:
    """How many tasks the graph has, and of which replicas; what else is to be known of the step."""
    chosen, simulated = found.strategy.candidate, len(found.graph.replicas.simulated)
    what = "replicas" if chosen.pipelines == chosen.dp else "expert groups"
    alike = f"; {simulated} of {chosen.pipelines} {what} simulated, the others are alike"
    alike = alike if simulated < chosen.pipelines else ""
    return [
        f"graph       {found.tasks} tasks{alike}",
        *(["links       flows that meet on a node's network cards slow each other"] if found.share_links else []),
        *([] if found.fits else ["memory      does not fit"]),
    ]


def _mesh_table(found: MeshSimulation) -> "Table":
    """When every stage ends its passes, and its memory."""
    table = grid("device", "kind", "passes end", "GiB")
    for stage, ended in zip(found.plan.stages, found.timeline.ended, strict=True):
        memory = f"{stage['memory_bytes'] / GIB:.1f} of {stage['capacity_bytes'] / GIB:.0f}"
        table.add_row(f"stage {stage['stage']}", stage["device"], f"{ended:.6g} s", memory)
    return table


def _table(found: "Simulation") -> "Table":
    """Share of the step in which each stream is busy, bubble and memory, by device of the first simulated pipeline."""
    shown = [name for name in STREAMS if max(found.utilisation[name]) > 0]
    table = grid("device", *(f">{name}" for name in (*shown, "bubble", "peak GiB", "of")))
    ranks = found.graph.ranks
    for rank in range(min(ranks, MOST_ROWS)):
        busy = [f"{found.utilisation[name][rank]:.1%}" for name in shown]
        bubble = f"{_share(found.activity_s[rank, -1], found.step_time_s):.1%}"
        memory = (f"{figure[rank] / GIB:.1f}" for figure in (found.memory_bytes, found.capacity_bytes))
        table.add_row(f"stage {rank}", *busy, bubble, *memory)
    if ranks > MOST_ROWS:
        table.add_row(f"... and {ranks - MOST_ROWS} more")
    return table


Configuration = tuple[PlanningProblem, Strategy, Ints]
"""Problem in the latency model ``step``, strategy, and the device of every worker."""


def of_plan(plan: Plan) -> Configuration:
    """Strategy and placement of a plan."""
    problem, strategy = problem_of(plan.typed, plan.source), strategy_of(plan.typed.strategy, plan.source)
    devices = devices_of(plan.typed, plan.source)
    if faults := violations(problem, strategy, devices):
        raise DataError(f"{plan.source}: {faults[0]}")
    return problem.priced_by("step"), strategy, devices


def of_request(request: PlanRequest) -> Configuration:
    """The strategy that a request's fixed values state, in the order of the devices."""
    stated = stated_configuration(request)
    return stated.problem.priced_by("step"), stated.strategy, stated.devices


PlanInput = Plan | str | PathLike[str] | Mapping[str, Any]


@overload
def simulate(model: PlanRequest, /, *, share_links: bool = False) -> Simulation: ...
@overload
def simulate(model: PlanInput, /, *, share_links: bool = False) -> Simulation | MeshSimulation: ...
@overload
def simulate(
    model: ModelInput, cluster: ClusterInput, *, share_links: bool = False, **options: Unpack[PlanOptions]
) -> Simulation: ...
def simulate(
    model: PlanInput | ModelInput | PlanRequest,
    cluster: ClusterInput | None = None,
    *,
    share_links: bool = False,
    **options: Any,
) -> Simulation | MeshSimulation:
    """
    Simulate one training step, event by event.

    Parameters
    ----------
    model, cluster
        Specs or their plain values, catalog names or files, as of ``taut.plan``; or, alone, a plan, its file or its
        values, or a ``PlanRequest``.
    share_links
        Whether messages, gathers and reductions that meet on a node's network cards slow each other.
    **options
        Those of ``taut.plan``. ``fix`` states the configuration; what it leaves open is chosen by the evaluator among
        simple plans (even stages, workers in the order of the devices).

    Returns
    -------
    Simulation or MeshSimulation
        Step time, bubble, exposed communication, utilisation, memory over time, and every event; of a plan of meshes
        the passes of every pipeline.

    Raises
    ------
    DataError
        If an input is wrong or no candidate exists; a ``FieldError`` names the argument.

    Examples
    --------
    >>> import taut
    >>> taut.simulate("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4, "zero": 0})
    <Simulation pp=2 tp=1 dp=4 micro_batch=4 1f1b recompute=none, 0.2274 s a step, 210 tasks, bubble 30.3%>
    """
    if isinstance(model, PlanRequest) or cluster is not None:
        return simulate_strategy(*of_request(request_of(cast("Any", model), cluster, options)), share_links=share_links)
    if options:
        raise FieldError(min(options), None, "given together with a plan, expected nothing that the plan holds")
    plan = _read(cast("PlanInput", model))
    if plan.meshes:
        return simulate_meshes(plan, share_links=share_links)
    return simulate_strategy(*of_plan(plan), share_links=share_links)


def simulate_strategy(
    problem: PlanningProblem,
    strategy: Strategy,
    devices: Ints,
    *,
    every_replica: bool = False,
    recompute_communication: bool = True,
    share_links: bool = False,
) -> Simulation:
    """
    Simulate a strategy on a placement.

    Parameters
    ----------
    problem
        What is planned, in the latency model ``step``.
    strategy
        Candidate, stages and recompute.
    devices
        Device of every worker (pp, dp, tp cp).
    every_replica
        Whether equal replicas are simulated one by one; the times are the same.
    recompute_communication
        Whether recomputed operators repeat their communication.
    share_links
        Whether flows that meet on a node's cards slow each other.

    Raises
    ------
    FormulationError
        If the problem has another latency model.

    Examples
    --------
    >>> import taut
    >>> found = taut.simulate("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> every = taut.simulate_strategy(found.problem, found.strategy, found.workers, every_replica=True)
    >>> round(every.step_time_s / found.step_time_s, 12), every.tasks > found.tasks
    (1.0, True)
    """
    began = perf_counter()
    graph = operator_graph(
        problem,
        strategy,
        devices,
        every_replica=every_replica,
        recompute_communication=recompute_communication,
        share_links=share_links,
    )
    start = graph.times()
    return Simulation(problem, strategy, devices, graph, start, perf_counter() - began, share_links)


def _read(subject: PlanInput) -> Plan:
    """The plan itself, of its values, or of its file."""
    if isinstance(subject, Plan):
        return subject
    return Plan(dict(subject)) if isinstance(subject, Mapping) else load_plan(Path(subject))
