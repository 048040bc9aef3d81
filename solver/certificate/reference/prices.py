r"""
Step time of a plan, priced from its definition, and orders of passes, run pass by pass.

Worker (x, z, y) of stage x, replica z and tensor rank y runs on ``devices[x, z, y]``; m micro-batches a step.

(1) t[x, z], seconds of a stage for a micro-batch: its layers' on the slowest type of the tensor group, all-reduces
    (``figures`` (1)), and in ``step`` what it waits for under ZeRO-2 and 3, (8) and (9).
(2) T_PP[z] is the slowest tensor rank's sum over hops (``figures`` (2)) there and back, in ``amp`` there alone.
(3) T_pipe[z] = sum t + (m - 1) max t + h T_PP[z], with h = 1 under GPipe and in ``amp``, (pp - 1) m/pp in
    ``pipette-printed`` and otherwise max(1, m/pp). Where replicas divide the batch unevenly, m is that of z.
(4) Other schedules run their order pass by pass, (11): forward and both gradients of every chunk, half of the
    all-reduces without recompute forward and the others in the gradient by the input, with what each waits for as in
    (1), and half of a hop each way.
(5) end[0, z] = T_pipe[z], and end[x + 1, z] = end[x, z] - backward[x, z] - back[x, z], with the seconds of the stage's
    backward pass and of the slowest tensor rank's hop back to it; in (4) the end of the rank's last pass.
(6) T = T' + T_opt + constant; T' = max T_pipe + T_DP in the papers' models, and in ``step`` the end of the last
    reduction of gradients (``gradients``). What reductions add to max T_pipe is the part of data parallelism, beside
    what the passes wait for.

Under ZeRO-2 and 3 a micro-batch waits for shards beyond the computation of its passes. A stage or chunk has layers a..b
with p_l parameters each, w and g bytes of a weight and a gradient in them.

(7) To gather M bytes of weights, or to scatter M bytes of gradients, takes rate M seconds. The rate is half of the ring
    (``gradients`` (2)) over the replicas of a copy, on the slowest tensor rank. If a group of devices shares the
    experts, their rate is half of the slowest ring over the devices at one place of every group of the copy. Experts
    follow the other parameters.
(8) Forward, ZeRO-3 gathers every layer before it runs. Layer a is gathered first, and nothing runs meanwhile. The other
    layers are gathered while a..b-1 compute. The pass waits for rate w p_a, and for the seconds by which
    rate w (p_{a+1} + ... + p_b) exceeds the computation of a..b-1.
(9) Backward, ZeRO-3 gathers layer b first. Without a pipeline ZeRO-2 and 3 scatter layer a last. Nothing runs during
    these two. The gathers of b-1..a and the scatters of b..a+1 run during the whole backward pass. ZeRO-2 only
    scatters. Collectives that run during computation slow it by the calibration's share of their own seconds. The pass
    waits for at least this share.
(10) Each device hides collectives during its own computation.

A pass is (kind, chunk, micro-batch) with kind F forward, I gradient by the input, W gradient by the weights, or B both
at once; an order lists the passes of every device.

(11) F of chunk c waits for F of chunk c - 1 and the transfer between them; I and B wait for F of their chunk and for
    I or B of chunk c + 1 and the transfer back; W waits for I. A device runs its passes in order, one at a time.
(12) Interleaved 1F1B: with chunk c on device c mod p, device d runs its k-th forward in rounds of p micro-batches, is
    2 (p - d - 1) + (v - 1) p + 1 forwards ahead, and then alternates (Narayanan et al., SC 2021).
(13) ZB-H1 and ZB-H2: in rounds, F at i, I at w (p - 1 - d) + i and W at w (p - 1) + i, in this order within a round,
    with w = 1 and 2 (Qi et al., ICLR 2024).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.errors import DataError
from taut.solver.certificate.reference.figures import Figures
from taut.solver.certificate.reference.gradients import (
    all_reduced,
    in_papers,
    optimizer,
    rings_of_copies,
    rings_of_experts,
)
from taut.solver.certificate.reference.memory import parameter_bytes
from taut.solver.certificate.reference.space import CLOSED_FORM, Case, Choice, Order, Pass, Stages, constant_seconds

PARTS = {"F": "F", "I": "I", "W": "W", "B": "IW"}


def order_of(choice: Choice) -> Order | None:
    """The order of a candidate, given or by (12) and (13); None where its schedule has no such formula here."""
    if choice.order:
        return [_spelt(word) for word in choice.order]
    if choice.schedule == "interleaved-1f1b":
        return [_interleaved(choice, d) for d in range(choice.pp)]
    if choice.schedule in ("zb-h1", "zb-h2"):
        return [_zero_bubble(choice, d) for d in range(choice.pp)]
    return None


def _spelt(word: str) -> list[Pass]:
    """Passes of a word such as 0F0F3F3I3W; the n-th time that a pass is named is that of micro-batch n."""
    seen: dict[tuple[str, int], int] = {}
    passes = []
    for chunk, kind in re.findall("([0-9]+)([FIWB])", word):
        i = seen[kind, int(chunk)] = seen.get((kind, int(chunk)), -1) + 1
        passes.append((kind, int(chunk), i))
    return passes


def _interleaved(choice: Choice, d: int) -> list[Pass]:
    p, v, count = choice.pp, choice.vpp, choice.vpp * choice.num_micro_batches
    forward = [("F", k // p % v * p + d, k // (p * v) * p + k % p) for k in range(count)]
    backward = [("B", (v - 1 - k // p % v) * p + d, k // (p * v) * p + k % p) for k in range(count)]
    ahead = min(2 * (p - d - 1) + (v - 1) * p + 1, count)
    turns = [each for k in range(count - ahead) for each in (backward[k], forward[ahead + k])]
    return forward[:ahead] + turns + backward[count - ahead :]


def _zero_bubble(choice: Choice, d: int) -> list[Pass]:
    p, w = choice.pp, 1 if choice.schedule == "zb-h1" else 2
    rounds = {"F": 0, "I": w * (p - 1 - d), "W": w * (p - 1)}
    timed = [(rounds[kind] + i, "FIW".index(kind), i) for kind in rounds for i in range(choice.num_micro_batches)]
    return [("FIW"[kind], d, i) for _, kind, i in sorted(timed)]


def check(choice: Choice, order: Order) -> None:
    """Refuse an order that does not run every pass once on the device of its chunk, with a ``DataError``."""
    device = choice.chunk_device
    wanted = {(k, c, i) for k in "FIW" for c in range(len(device)) for i in range(choice.num_micro_batches)}
    found = [(k, c, i) for passes in order for kind, c, i in passes for k in PARTS[kind]]
    placed = len(order) == choice.pp and all(0 <= c < len(device) for _, c, _ in found)
    if len(found) != len(wanted) or set(found) != wanted or not placed:
        raise DataError(f"order of {choice.schedule}: does not run every pass once")
    if any(device[c] != d for d, passes in enumerate(order) for _, c, _ in passes):
        raise DataError(f"order of {choice.schedule}: a pass is on another device than its chunk")


def device_ends(order: Order, seconds: Floats, transfer: Floats) -> Floats:
    """Seconds (devices, n) to every device's last pass, (11), of ``seconds`` (3, C, n), ``transfer`` (C - 1, n)."""
    duration = {"F": seconds[0], "I": seconds[1], "W": seconds[2], "B": seconds[1] + seconds[2]}
    done: dict[Pass, Floats] = {}
    clock, position = [np.zeros(seconds.shape[-1])] * len(order), [0] * len(order)
    moved = True
    while moved:
        moved = False
        for d, passes in enumerate(order):
            while position[d] < len(passes):
                kind, c, i = passes[position[d]]
                start = _start((kind, c, i), clock[d], done, transfer)
                if start is None:
                    break
                clock[d] = start + duration[kind][c]
                done["I" if kind == "B" else kind, c, i] = clock[d]
                position[d], moved = position[d] + 1, True
    if any(at < len(passes) for at, passes in zip(position, order, strict=True)):
        raise DataError("order: devices wait for each other for ever")
    return np.array(clock)


def _start(each: Pass, clock: Floats, done: dict[Pass, Floats], transfer: Floats) -> Floats | None:
    """When a pass can start on its device, None if what it waits for has not run, (11)."""
    kind, c, i = each
    if kind == "W":
        return clock if ("I", c, i) in done else None
    if kind == "F":
        before, hop = ("F", c - 1, i), c - 1
    elif ("F", c, i) not in done:
        return None
    else:
        before, hop = ("I", c + 1, i), c
    if not 0 <= before[1] <= len(transfer):
        return clock
    return np.maximum(clock, done[before] + transfer[hop]) if before in done else None


TIED = 1e-12
"""Relative difference up to which two sums of floats may be equal, so that either is the slowest."""


@dataclass(frozen=True)
class Price:
    """
    Seconds of a step by placement: totals (n,), and parts of the slowest replica.

    ``parts`` (ways, 4) are computation, all-reduces of tensor groups, transfers and what ZeRO-2 and 3 wait for, of the
    first placement, one row for each replica and stage that may be the slowest. Most plans are asked for totals alone.
    """

    total: Floats
    take_apart: Callable[[], Floats]
    data_parallel: Floats
    optimizer: Floats

    @property
    def parts(self) -> Floats:
        """Seconds of the parts."""
        return self.take_apart()


def price(
    case: Case,
    choice: Choice,
    stages: Stages,
    recompute: tuple[str, ...],
    devices: Ints,
    order: Order | None,
    micro_batches: Sequence[int] = (),
) -> Price:
    """Price a plan on placements (n, pp, dp, tp) that break no rule, (1) to (6); micro-batches by replica if given."""
    plan = Figures(case, choice, stages, recompute, devices)
    if choice.schedule in CLOSED_FORM:
        every = np.array(micro_batches if len(micro_batches) else [choice.num_micro_batches] * choice.blocks)
        pipelines, parts = _closed_form(plan, every)
        ends = _closed_ends(plan, pipelines)
    else:
        assert order is not None
        ends, parts = _by_order(plan, order)
    slowest = ends.max(axis=(1, 2))
    reduced = all_reduced(plan, ends) if case.waits_for_all else slowest + in_papers(plan)
    last = optimizer(plan)
    return Price(reduced + last + constant_seconds(case, choice), parts, reduced - slowest, last)


def pipelines(
    case: Case, choice: Choice, stages: Stages, recompute: tuple[str, ...], devices: Ints, micro_batches: Ints
) -> Floats:
    """T_pipe by replica (n, dp) of a closed form with so many micro-batches each (dp,), (3)."""
    return _closed_form(Figures(case, choice, stages, recompute, devices), micro_batches)[0]


def _closed_form(plan: Figures, m: Ints) -> tuple[Floats, Callable[[], Floats]]:
    """T_pipe by replica (n, dp), and its parts, of micro-batches by replica (dp,), (3)."""
    choice, rank = plan.choice, np.arange(plan.choice.pp)
    pp, case = choice.pp, plan.case
    alone = plan.passes.sum(axis=0)[plan.kinds, rank[:, None, None]]
    compute = alone.max(axis=-1)
    waiting = (alone + _waits(plan, rank).sum(axis=0)).max(axis=-1) - compute if _is_sharded(plan) else 0 * compute
    tensor = plan.rings(plan.every, rank)
    trips = np.maximum(1.0, m / pp) if case.pays_optimizer else (pp - 1) * m / pp
    trips = np.ones(len(m)) if choice.schedule == "gpipe" or case.is_amp else trips
    hops = plan.hops(rank, back=False) if case.is_amp else _both_ways(plan, rank)
    transfers = plan.case.coefficient("pipeline") * trips * hops.sum(axis=1).max(axis=-1)
    stage = compute + tensor + waiting
    total = stage.sum(axis=1) + (m - 1) * stage.max(axis=1) + transfers

    def parts() -> Floats:
        z = np.flatnonzero(total[0] >= total[0].max() * (1 - TIED))
        x, at = np.nonzero(stage[0][:, z] >= stage[0][:, z].max(axis=0) * (1 - TIED))
        z = z[at]
        parts = [part[0][:, z].sum(axis=0) + (m[z] - 1) * part[0][x, z] for part in (compute, tensor, waiting)]
        return np.column_stack([*parts[:2], transfers[0][z], parts[2]])

    return total, parts


def _both_ways(plan: Figures, rank: Ints) -> Floats:
    """Seconds of every hop there and back, (n, C - 1, dp, tp), (2)."""
    return plan.hops(rank, back=False) + plan.hops(rank, back=True)


def _closed_ends(plan: Figures, pipelines: Floats) -> Floats:
    """When every stage ends its last pass, (n, pp, dp), (5); in the papers' models that of stage 0 alone."""
    if not plan.case.waits_for_all:
        return pipelines[:, None]
    rank, backward = np.arange(plan.choice.pp), plan.backward()
    back = plan.case.coefficient("pipeline") * plan.hops(rank, back=True).max(axis=-1)
    if _is_sharded(plan):
        own = plan.passes[1:].sum(axis=0)[plan.kinds, rank[:, None, None]]
        backward = backward - own.max(axis=-1) + (own + _waits(plan, rank)[1]).max(axis=-1)
    ends = [pipelines]
    for x in range(plan.choice.pp - 1):
        ends.append(ends[x] - backward[:, x] - back[:, x])
    return np.stack(ends, axis=1)


def _by_order(plan: Figures, order: Order) -> tuple[Floats, Callable[[], Floats]]:
    """Ends of the pipeline ranks (n, pp, dp), and parts of the longest, from running the order, (4)."""
    rank, count = np.array(plan.choice.chunk_device), len(plan.first)
    alone, forward = plan.alone(rank), plan.rings(plan.forward, rank)
    waiting = 0 * alone
    if _is_sharded(plan):
        own = plan.passes[:, plan.kinds[:, rank], np.arange(count)[:, None, None]]
        waiting[:2] = (own[:2] + _waits(plan, rank)).max(axis=-1) - alone[:2]
    rings = np.stack([forward, plan.rings(plan.every - plan.forward, rank), 0 * forward])
    away = (rank[:-1] != rank[1:])[:, None]
    hops = np.where(away, plan.case.coefficient("pipeline") * _both_ways(plan, rank).max(axis=-1) / 2, 0.0)
    rows = np.concatenate([np.moveaxis(part, -2, 0) for part in (*alone, *rings, *waiting, hops)])
    shape = rows.shape[1:]
    rows, where = np.unique(rows.reshape(len(rows), -1), axis=1, return_inverse=True)
    own, more, wait, transfer = np.split(rows, [3 * count, 6 * count, 9 * count])
    each = [own + more + wait, own + more + wait, own + more, own]
    seconds = np.concatenate(each, axis=1).reshape(3, count, -1)
    ends = device_ends(order, seconds, np.concatenate([transfer, *[0 * transfer] * 3], axis=1))
    found, of = ends.reshape(len(order), 4, -1), where.ravel()
    total, here, still, bare = found.max(axis=0)[:, of].reshape(4, *shape)
    z = np.flatnonzero(total[0] >= total[0].max() * (1 - TIED))
    parts = np.column_stack([each[0][z] for each in (bare, still - bare, total - here, here - still)])
    return np.moveaxis(found[:, 0, of].reshape(-1, *shape), 0, 1), lambda: parts


def _is_sharded(plan: Figures) -> bool:
    """Whether passes gather or scatter."""
    choice = plan.choice
    moves = choice.zero == 3 or (choice.zero == 2 and choice.pp == 1)
    return moves and plan.case.waits_for_all and choice.holders > 1


def _waits(plan: Figures, rank: Ints) -> Floats:
    """Seconds that every worker waits forward and backward, on pipeline ranks (C,): (2, n, C, dp, tp), (8) to (10)."""
    weight, gradient, _ = parameter_bytes(plan.case.memory)
    gathered, scattered = (weight if plan.choice.zero == 3 else 0), (gradient if plan.choice.pp == 1 else 0)
    layers = plan.layers
    held = np.stack([layers.parameters - layers.experts, layers.experts])
    # Each use of a layer gathers its weights, and its gradients are scattered once.
    used = held + np.stack([layers.again[0] - layers.again[1], layers.again[1]])

    def summed(figures: Ints, those: Flags | bool = True) -> Floats:
        return np.stack([plan.summed(np.where(those, each, 0)) for each in figures])

    every, first = summed(held), summed(held, plan.is_first)
    fetched, a, b = summed(used), summed(used, plan.is_first), summed(used, plan.is_last)
    half = plan.case.coefficient("gather") / 2
    rates = half * rings_of_copies(plan), half * rings_of_experts(plan)

    def moved(weights: Floats, gradients: Floats) -> Floats:
        sent = (gathered * weights + scattered * gradients)[..., None]
        found = sum(rate[:, rank] * one for rate, one in zip(rates, sent, strict=True))
        return np.asarray(found)[..., None]

    forward, backward = _computed(plan, rank)
    slowed = 0.0 if plan.case.calibration is None else plan.case.calibration.gather_slowdown
    ahead, behind = moved(fetched - a, 0 * a), moved(fetched - b, every - first)
    return np.stack(
        [
            moved(a, 0 * a) + np.maximum(ahead - forward, slowed * ahead),
            moved(b, first) + np.maximum(behind - backward, slowed * behind),
        ]
    )


def _computed(plan: Figures, rank: Ints) -> tuple[Floats, Floats]:
    """Seconds of the forward pass without the last layer and of the backward pass, (n, C, dp, tp) each."""
    kinds, chunk = plan.kinds[:, rank], np.arange(len(rank))[:, None, None]
    but_last = plan.summed(np.where(plan.is_last, 0.0, plan.by_layer[0]))
    sent = plan.summed(np.where(plan.is_last, 0.0, plan.sent))
    forward = but_last[kinds, chunk] + plan.rings(sent, rank)[..., None]
    backward = plan.passes[1:].sum(axis=0)[kinds, chunk]
    return forward, backward + plan.rings(plan.every - plan.forward, rank)[..., None]
