r"""
Step time and memory of a pipeline of meshes: ``taut.formulations.latency`` for stages with degrees of their own.

Sets: stages x, pipelines c (``taut.formulations.meshes.choice`` (8)); m micro-batches a step.

(1) :math:`t[x, c]`: seconds of the slowest of the pipeline's replicas on stage x at the degrees of its mesh, and the
    traffic within its tensor groups; ``backward`` likewise.
(2) A rank's trip is the longest way to it over the ranks of the stages before: to the same rank inside a mesh, and to
    all ranks that it exchanges pieces with between meshes (7), there and back.
    :math:`T_{PP}[c]` is the longest trip to a rank of the last stage. A pipeline's ranks on a node share its cards.
(3) :math:`T_{pipe}[c] = \sum_x t + (m - 1) \max_x t + \max(1, m / P) T_{PP}[c]`.
(4) :math:`end[0] = T_{pipe}`, and :math:`end[x + 1] = end[x] - backward[x] - back[x]`, back the slowest rank's way of
    the gradient.
(5) :math:`T = \max(\max_x (\max_c end[x, c] + R_x), \; \max(end \text{ of first and last}) + R_{tied})
    + \max_x T_{opt}[x] + constant`, with reductions R and optimizer of each stage's own replicas
    (``taut.formulations.gradient_reductions`` (1) to (4)).

With equal degrees in all meshes this is the step time of the ordinary plan.

Activations go from the last stage of a mesh to the first one of the next, and their gradients back. Rank (z, y) of a
stage, replica z and tensor rank y, holds the y-th of tp equal parts of the sequence of the z-th of dp equal parts of
the batch. The other stage cuts both in other numbers of parts.

(6) Ranks i and j exchange the share :math:`s_{ij}` that their parts have in common: for each of batch and sequence,
    parts u of a and v of b have
    :math:`\max(0, \min(\frac{u+1}{a}, \frac{v+1}{b}) - \max(\frac{u}{a}, \frac{v}{b}))` in common.
(7) A rank sends its pieces one after another, and receives one after another: with M bytes in all,

    .. math:: piece_{ij} = \lambda_{ij} + s_{ij} M / B_{ij}, \quad
        hop_{ij} = \max \Big( \sum_{j'} piece_{ij'}, \; \sum_{i'} piece_{i'j} \Big) \text{ where } s_{ij} > 0.

With equal degrees every rank has one partner, and (7) is the hop of an ordinary pipeline.

Pass by pass, with micro-batches i,

(8) every pipeline runs 1F1B by the recurrence of ``taut.formulations.schedules.schedule`` (2) to (5), with the seconds
    of its slowest replica on every stage. A transfer between stages takes half of the hop there and back, the slowest
    rank's, in either direction.
(9) end[x] is when stage x ends its last pass in all pipelines; (5) follows.
(10) With one micro-batch and one rank of every pipeline on a stage, end[0] is that of (4), and the step is (5) where
     every hop takes as long back as forth. So it is where hops take no time and the last stage is the slowest one.

Source: FlagScale, flagscale/train/hetero/parallel_context.py, ``find_overlapped_mapping`` and
``get_inter_mesh_tensor_slices``: (6); flagscale/train/hetero/p2p_communication.py: (7).
"""

from dataclasses import dataclass
from math import lcm
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.units import KIB
from taut.formulations.gradient_reductions import after_overlap, hierarchical_ring, overlaps, tied_seconds
from taut.formulations.links import Links, PairTable
from taut.formulations.mechanisms.offload import optimizer_seconds
from taut.formulations.mechanisms.shards import optimized_parameters, optimizer_shards
from taut.formulations.meshes.choice import MeshChoice
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import one_forward_one_backward
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, Timetable, sequential, timetable
from taut.formulations.strategy import Division, Rule, Strategy, Violation
from taut.formulations.tables.block_traffic import block_link
from taut.formulations.tables.memory import bytes_of_stages, kept_coefficients


class Crossing(NamedTuple):
    """Seconds forth and back between ranks of two stages (n, n'), and which of them exchange something."""

    forth: Floats
    back: Floats
    joined: Flags


def common_shares(first: int, second: int) -> Floats:
    """Shares of the whole that parts of one division and of another have in common (first, second), (6)."""
    whole = lcm(first, second)
    u, v = np.arange(first)[:, None] * (whole // first), np.arange(second)[None, :] * (whole // second)
    until = np.minimum(u + whole // first, v + whole // second)
    return np.asarray(np.maximum(until - np.maximum(u, v), 0) / whole)


def crossing(links: Links, inverse: PairTable, before: Ints, after: Ints, whole: float) -> Crossing:
    """Price a transfer of ``whole`` bytes between stages (dp, tp) each, at seconds per byte of sites, (7)."""
    share = np.kron(common_shares(len(before), len(after)), common_shares(before.shape[1], after.shape[1]))
    i, j = links.site_of[before.ravel()][:, None], links.site_of[after.ravel()][None, :]
    joined = share > 0
    forth = np.where(joined, links.latency[i, j] + whole * share * inverse[i, j], 0.0)
    back = np.where(joined, links.latency[j, i] + whole * share * inverse[j, i], 0.0)
    return Crossing(_in_turn(forth, joined), _in_turn(back, joined), joined)


def _in_turn(pieces: Floats, joined: Flags) -> Floats:
    """Seconds of a rank's pieces one after another, the slower of the two ranks; 0 where nothing is exchanged."""
    return np.where(joined, np.maximum(pieces.sum(axis=1, keepdims=True), pieces.sum(axis=0, keepdims=True)), 0.0)


@dataclass(frozen=True, eq=False)
class MeshPlan:
    """A choice with its division of the layers and the devices of every mesh, (pp, dp, tp) each."""

    choice: MeshChoice
    division: Division
    devices: tuple[Ints, ...]


class Hops(NamedTuple):
    """Longest trip of a pipeline (D,), (2), and the slowest rank's way to the next stage and back (P - 1, D), (4)."""

    trip: Floats
    forth: Floats
    back: Floats


class AfterPasses(NamedTuple):
    """Seconds of every stage's reduction and optimizer (P,), and of the exchange of a tied embedding, (5)."""

    reductions: Floats
    tied: float
    optimizer: Floats

    def end(self, ended: Floats) -> float:
        """When all gradients are reduced, of stages that end their passes at ``ended`` (P,), (5)."""
        return max(float((ended + self.reductions).max()), float(max(ended[0], ended[-1])) + self.tied)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshStep:
    """Seconds of a step and its parts: passes with the traffic of tensor groups, hops, reductions, optimizer."""

    total: float
    passes: float
    pipeline_transfers: float
    data_parallel: float
    optimizer: float
    constant: float


def mesh_step(problem: PlanningProblem, plan: MeshPlan) -> MeshStep:
    """Price a plan under the latency model ``step``, (1) to (5)."""
    choice, (stage, backward), hops = plan.choice, pipeline_seconds(problem, plan), hops_of(problem, plan)
    transfers = problem.transfer_weight(choice.candidate(0)) * hops.trip
    passes = stage.sum(axis=0) + (choice.num_micro_batches - 1) * stage.max(axis=0)
    total, after = passes + transfers, after_passes(problem, plan, backward)
    later = (backward[:-1] + problem.coefficient("pipeline") * hops.back).cumsum(axis=0)
    end = after.end((total - np.concatenate([np.zeros((1, choice.pipelines)), later])).max(axis=-1))
    optimizer, worst = float(after.optimizer.max()), int(total.argmax())
    return MeshStep(
        total=end + optimizer + problem.constant_seconds,
        passes=float(passes[worst]),
        pipeline_transfers=float(transfers[worst]),
        data_parallel=end - float(total[worst]),
        optimizer=optimizer,
        constant=problem.constant_seconds,
    )


def pipeline_seconds(problem: PlanningProblem, plan: MeshPlan) -> tuple[Floats, Floats]:
    """Seconds of both passes, and of the backward pass, of every pipeline's slowest replica on a stage (P, D), (1)."""
    each, count = [_stage_seconds(problem, plan, k) for k in range(len(plan.choice.meshes))], plan.choice.pipelines
    stage, backward = (
        np.concatenate([own[part].reshape(len(own[part]), count, -1).max(axis=-1) for own in each]) for part in (0, 1)
    )
    return stage, backward


def after_passes(problem: PlanningProblem, plan: MeshPlan, backward: Floats) -> AfterPasses:
    """What follows the passes, of which the backward ones take so many seconds (P, D), (5)."""
    reductions = _reductions(problem, plan, backward.max(axis=-1))
    return AfterPasses(reductions, _tied(problem, plan), _optimizer(problem, plan))


def ranges_of(plan: MeshPlan, k: int) -> tuple[Ints, Ints, Ints]:
    """Index of recompute, first layer and end of the stages of the mesh at place k."""
    start, count = plan.choice.first_stages[k], plan.choice.meshes[k].pp
    recompute, first, end = (each[start : start + count] for each in plan.division.ranges)
    return recompute, first, end


def _stage_seconds(problem: PlanningProblem, plan: MeshPlan, k: int) -> tuple[Floats, Floats]:
    """Seconds of both passes and of the backward pass of every stage and replica of a mesh, (pp, dp), (1)."""
    candidate, kind = plan.choice.candidate(k), plan.choice.meshes[k].kind
    recompute, first, end = ranges_of(plan, k)
    tables, passes = problem.tables(candidate), problem.passes(candidate)
    none = np.zeros(plan.devices[k].shape[:2])
    both = none + tables.seconds[kind, recompute, first, end][:, None]
    backward = none + (passes.input_gradient + passes.weight_gradient)[kind, recompute, first, end][:, None]
    if candidate.tp == 1:
        return both, backward
    link, within = block_link(problem.links, plan.devices[k], candidate.block), (first[:, None], end[:, None])
    every = tables.traffic.at(recompute[:, None], *within)
    later = every.less(tables.forward.at(*within))
    return both + every.seconds(link), backward + later.seconds(link)


def hop_inverse(problem: PlanningProblem, choice: MeshChoice) -> PairTable:
    """Seconds per byte between sites while all ranks of a pipeline that lie on a node send, (2)."""
    together = np.zeros(len(problem.device_types), dtype=np.int64)
    for mesh in choice.meshes:
        together[mesh.kind] = mesh.tp * mesh.dp // choice.pipelines
    inverse: PairTable = 1.0 / problem.links.pipeline_rate(together[problem.type_of_node])
    return inverse


def hops_of(problem: PlanningProblem, plan: MeshPlan) -> Hops:
    """Hops between all stages, (2) and (4), without the calibration's coefficient."""
    choice, links, inverse = plan.choice, problem.links, hop_inverse(problem, plan.choice)
    reached, ways, count = np.zeros(plan.devices[0][0].size), list[tuple[Floats, Floats]](), choice.pipelines
    for k, devices in enumerate(plan.devices):
        message = problem.tables(choice.candidate(k)).message[ranges_of(plan, k)[2]]
        sites = links.site_of[devices].reshape(len(devices), -1)
        for x in range(len(devices) - 1):
            i, j = sites[x], sites[x + 1]
            forth = links.latency[i, j] + message[x] * inverse[i, j]
            back = links.latency[j, i] + message[x] * inverse[j, i]
            reached = reached + forth + back
            ways.append((forth, back))
        if k + 1 < len(plan.devices):
            whole = float(message[-1]) * devices[-1].size
            forth, back, joined = crossing(links, inverse, devices[-1], plan.devices[k + 1][0], whole)
            ways.append((forth.max(axis=1), back.max(axis=1)))
            reached = np.where(joined, reached[:, None] + forth + back, 0.0).max(axis=0)
    slowest = [np.stack([way[part].reshape(count, -1).max(axis=-1) for way in ways]) for part in (0, 1)]
    return Hops(reached.reshape(count, -1).max(axis=-1), *slowest)


def _reductions(problem: PlanningProblem, plan: MeshPlan, backward: Floats) -> Floats:
    """R of every stage (P,), whose backward passes take so many seconds (P,), (5)."""
    found = []
    for k, devices in enumerate(plan.devices):
        candidate, (_, first, end) = plan.choice.candidate(k), ranges_of(plan, k)
        start = plan.choice.first_stages[k]
        if candidate.dp == 1:
            found.append(np.zeros(len(devices)))
            continue
        seconds = problem.gradient_bytes(candidate)[first, end] * hierarchical_ring(problem, devices)
        if overlaps(problem, candidate):
            parameters = problem.tables(candidate).parameters[first, end]
            seconds = after_overlap(seconds, parameters, backward[start : start + len(devices)], candidate)
        found.append(seconds)
    return np.concatenate(found)


def _tied(problem: PlanningProblem, plan: MeshPlan) -> float:
    """R_tied, (5): the two stages have equal degrees."""
    if not problem.model.shares_embedding:
        return 0.0
    ends = np.stack([plan.devices[0][0], plan.devices[-1][-1]])
    return float(tied_seconds(problem, Strategy(candidate=plan.choice.candidate(0), division=plan.division), ends))


def _optimizer(problem: PlanningProblem, plan: MeshPlan) -> Floats:
    """T_opt of every stage (P,)."""
    found = []
    for k, mesh in enumerate(plan.choice.meshes):
        candidate, (_, first, end) = plan.choice.candidate(k), ranges_of(plan, k)
        parameters = optimized_parameters(problem.tables(candidate), candidate)[first, end]
        seconds = optimizer_seconds(problem, candidate)[mesh.kind] / optimizer_shards(candidate)
        found.append(seconds * parameters)
    return np.concatenate(found)


def mesh_memory(problem: PlanningProblem, plan: MeshPlan) -> list[int]:
    """Predicted bytes of one device of every stage, at the degrees of its mesh."""
    found: list[int] = []
    for k in range(len(plan.choice.meshes)):
        candidate, start = plan.choice.candidate(k), plan.choice.first_stages[k]
        every = bytes_of_stages(problem, candidate, *plan.division.ranges)
        found += every[start : start + plan.choice.meshes[k].pp].tolist()
    return found


def mesh_violations(problem: PlanningProblem, plan: MeshPlan) -> list[Violation]:
    """Rules that the devices and stages of a plan break, one line each; none where it can run."""
    choice, links, found = plan.choice, problem.links, list[Violation]()
    ends, firsts = plan.division.ends.tolist(), plan.division.starts.tolist()
    if firsts != [0, *ends[:-1]] or len(ends) != choice.pp or ends[-1] != len(problem.model.blocks):
        return [Violation(Rule.DIVISION, "the stages do not divide the layers in order")]
    if sorted(np.concatenate([each.ravel() for each in plan.devices]).tolist()) != list(range(len(links.node_of))):
        return [Violation(Rule.DEVICES, "not every device is used exactly once")]
    for k, mesh in enumerate(choice.meshes):
        nodes = links.node_of[plan.devices[k]]
        if (problem.type_of_node[nodes] != mesh.kind).any():
            words = f"mesh {k} has devices of another type than {problem.device_types[mesh.kind]}"
            found.append(Violation(Rule.TYPES, words))
        if (nodes != nodes[..., :1]).any():
            found.append(Violation(Rule.GROUPS, f"a tensor group of mesh {k} lies on several nodes"))
    for x, need in enumerate(mesh_memory(problem, plan)):
        budget = int(problem.budget[choice.meshes[choice.mesh_of_stage[x]].kind])
        if need > budget:
            found.append(Violation(Rule.MEMORY, f"stage {x} needs {-(-need // KIB)} KiB of {budget // KIB}"))
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class MeshTimeline:
    """When every pass runs, (8): pipelines in seconds and bytes, orders, ends (P,) of stages, (9), and after."""

    pipelines: tuple[ScheduleProblem, ...]
    times: tuple[Timetable, ...]
    schedule: Schedule
    ended: Floats
    after: AfterPasses
    total: float

    @property
    def slowest(self) -> int:
        """The pipeline whose passes end last."""
        return int(np.argmax([each.makespan for each in self.times]))


def mesh_timeline(problem: PlanningProblem, plan: MeshPlan) -> MeshTimeline:
    """Run a plan under the latency model ``step`` pass by pass, (8) and (9)."""
    stage, backward = pipeline_seconds(problem, plan)
    weight, hops, held = _weight_gradients(problem, plan), hops_of(problem, plan), _held(problem, plan)
    transfer = problem.coefficient("pipeline") * (hops.forth + hops.back) / 2
    pipelines = tuple(
        ScheduleProblem(
            device=sequential(plan.choice.pp),
            forward=stage[:, c] - backward[:, c],
            input_gradient=backward[:, c] - weight,
            weight_gradient=weight,
            transfer=transfer[:, c],
            num_micro_batches=plan.choice.num_micro_batches,
            activation=held,
            kept_for_weight=held,
            memory_limit=np.full(plan.choice.pp, np.inf),
        )
        for c in range(plan.choice.pipelines)
    )
    schedule = one_forward_one_backward(pipelines[0])
    times = tuple(timetable(pipeline, schedule) for pipeline in pipelines)
    ended = np.array([[float(end[-1]) for end in each.end] for each in times]).max(axis=0)
    after = after_passes(problem, plan, backward)
    total = after.end(ended) + float(after.optimizer.max()) + problem.constant_seconds
    return MeshTimeline(pipelines=pipelines, times=times, schedule=schedule, ended=ended, after=after, total=total)


def _weight_gradients(problem: PlanningProblem, plan: MeshPlan) -> Floats:
    """Seconds of the gradients by the weights of every stage (P,)."""
    choice = plan.choice
    every = [problem.passes(choice.candidate(k)).weight_gradient[mesh.kind] for k, mesh in enumerate(choice.meshes)]
    return np.concatenate([each[ranges_of(plan, k)] for k, each in enumerate(every)])


def _held(problem: PlanningProblem, plan: MeshPlan) -> Floats:
    """Bytes that one micro-batch's forward pass of every stage keeps (P,)."""
    weights = kept_coefficients(problem.memory)[plan.division.recompute_index]
    every = [problem.tables(plan.choice.candidate(k)).activation for k in range(len(plan.choice.meshes))]
    return np.asarray(weights * np.concatenate([each[ranges_of(plan, k)] for k, each in enumerate(every)]))
