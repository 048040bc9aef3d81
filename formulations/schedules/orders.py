r"""
Orders of the published schedules by formula, with their papers, and orders as text, and what plans hold by them.

On p devices and m micro-batches, for chunks c on device d:

- GPipe [1]_: every forward, chunk after chunk, then every backward in the reverse order of chunks. Any device map. (1)
- 1F1B [2]_: device d, alone with stage d, runs :math:`\min(p - d, m)` forwards, then a backward and a forward in turn.
  It holds :math:`\min(p - d, m)` micro-batches. (2)
- Interleaved 1F1B [3]_: chunk c is on device c mod p, v chunks on each, and m is a multiple of p. Device d runs its
  chunks in rounds of p micro-batches: the k-th forward is chunk :math:`\lfloor k / p \rfloor \bmod v` of its own and
  micro-batch :math:`p \lfloor k / (p v) \rfloor + k \bmod p`, the k-th backward likewise from the last chunk back. It
  is :math:`2 (p - d - 1) + (v - 1) p + 1` forwards ahead. (3)
- ZB-H1 and ZB-H2 [4]_, on one chunk a device, split the backward pass: the gradient by the input (I) goes on at once,
  that by the weights (W) fills what would be idle. Stage d of p, with w = 1 for H1 and w = 2 for H2, is
  :math:`w (p - 1 - d)` forwards ahead; then come F and I in turn until :math:`w (p - 1)` forwards are done, then F, I
  and W in turn, and W after I where forwards have run out. H1 holds p micro-batches on every device, H2 2p - 1. (4)

V-shaped schedules have two chunks a device, down the devices and back up, and at least 2p micro-batches. With F, f the
forward passes of a device's chunk on the way down and up, I, i their gradients by the input (i belongs to the way down)
and W the oldest gradient by the weights that is not done, device d runs

- ZB-V [4]_ (section 6): :math:`2(p-d)-1` times F; d times f F; p - d times f I W; f, i, W, I, W with an F before them
  while there are any, until f has run out; d times i I; p - d times i W; the rest of W. It holds 2p chunks. (5)
- DualPipeV [5]_ (B, b whole backward passes; pairs that the original overlaps run one after the other):
  :math:`2(p-d-1)` times F; d + 1 times F f; p - d - 1 times I W f; m - 2p + d + 1 times F B f b; p - d - 1 times B f b;
  d + 1 times B b, the second half of them I or i; p - d - 1 times W i; d + 1 times W. It holds 2p + 1 chunks. (6)

A building block has the passes of one micro-batch in slots, one for each pass that a device runs for a micro-batch:
with v chunks a device it is repeated every :math:`3 v` slots. From one device to the next the forward passes move by
``down`` slots where the device number rises and by ``up`` slots where it falls, gradients the same, and the pass after
a turn (the next chunk on the same device, or the first gradient) starts at the first slot that fits ``turns``. So chunk
c of micro-batch i has its slots

.. math:: F_{c,i} = F_c + 3 v i, \qquad I_{c,i} = I_c + 3 v i, \tag{7}

and holds memory for :math:`I_c - F_c` slots, :math:`(I_c - F_c) / 3v` micro-batches at a time. On the V, where device d
has chunks d and 2p - 1 - d, that sums to :math:`2 p (\text{down} + \text{up}) + O(1)` slots on every device: peak
memory is the share :math:`(\text{down} + \text{up}) / 6` of 1F1B's [6]_. (8)

V-Min is down = up = 1, V-Half down = 2 and up = 1; their turns, in the slots of device d, are

.. math::
    \text{V-Min:} \quad & F = d,\; f = 2p - 1 - d,\; I = 2p + e + d,\; i = 4p + e - 1 - d, \quad
        e = 2 [3 \mid p], \tag{9} \\
    \text{V-Half:} \quad & F = 2d,\; f = 3p - 2 - d,\; I = 3p - 1 + e + 2d,\; i = 6p - 2 + e - d, \quad
        e = 3 [2 \mid p]. \tag{10}

Gradients by the weights are not part of the block: each takes the first free slot after its I. (11)

As text an order has a word for each device, such as ``0F0F3F3I3W``, a permutation with repetition [7]_: a pass is the
number of its chunk and its letter, F, I, W or B. Micro-batches are alike, so every order has words in which, for each
chunk and letter, micro-batches run in order, and no makespan or memory changes by that. (12)

An order-priced schedule says where its chunks lie, the order of their passes, and what they hold. A pipeline of pp
devices has v = vpp chunks on each, C = v pp in all, in the order in which a micro-batch visits them. Chunk c lies on
device c mod pp; under a V, where v = 2, on c or 2 pp - 1 - c. For m micro-batches the passes run in

=====================  ===========================  ======================================================
``interleaved-1f1b``   round the devices, v >= 2    whole backward passes; m is a multiple of pp
``zb-h1``, ``zb-h2``   one chunk a device           gradients by the weights fill what would be idle
``zb-v``               the V                        as its authors wrote it down; m >= 2 pp
``v-half``, ``v-min``  the V                        their building block, repeated, idle slots squeezed out
=====================  ===========================  ======================================================

This order depends on kind, pp, v and m alone: with other times it stays, and passes start as early as it allows
(``taut.formulations.schedules.schedule``, equations (2) to (5)). On the V an order that is adapted to the times may be
given in its place.

A device holds :math:`\max_n \sum_c n_c a_c` bytes of activations, :math:`a_c` those of one micro-batch of chunk c,
over the counts n of micro-batches in flight that its order goes through. Counts that others dominate are dropped.
A split backward pass keeps everything until the gradient by the weights, as published figures do. (13)

A forward pass of chunk c adds one to :math:`n_c`, and the pass that yields the gradient by the weights, or a whole
backward pass, takes it away. Of the counts n in between only those matter that no other reaches in every chunk. (14)

References
----------
.. [1] Huang, Y. et al. (2019). GPipe: efficient training of giant neural networks using pipeline parallelism. NeurIPS.
.. [2] Narayanan, D. et al. (2019). PipeDream: generalized pipeline parallelism for DNN training. SOSP.
.. [3] Narayanan, D. et al. (2021). Efficient large-scale language model training on GPU clusters. SC.
.. [4] Qi, P., Wan, X., Huang, G. and Lin, M. (2024). Zero bubble pipeline parallelism. ICLR.
.. [5] DeepSeek-AI (2025). DualPipe. github.com/deepseek-ai/DualPipe.
.. [6] Qi, P., Wan, X., Amar, N. and Lin, M. (2024). Pipeline parallelism with controllable memory. NeurIPS 37,
       section 3.
.. [7] Bierwirth, C. (1995). A generalized permutation approach to job shop scheduling with genetic algorithms. OR
       Spektrum 17: 87-92.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from taut.data.arrays import Ints
from taut.data.spec import Spec
from taut.errors import FormulationError
from taut.formulations.schedules.recurrence import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import (
    LETTERS,
    Schedule,
    ScheduleProblem,
    round_robin,
    sequential,
    unit_pipeline,
    v_shape,
    violations,
)


def gpipe(problem: ScheduleProblem) -> Schedule:
    """All forwards, then all backwards, (1)."""
    orders = []
    for d in range(problem.num_devices):
        hosted = np.flatnonzero(problem.device == d).tolist()
        forwards = [_all(FORWARD, c, problem) for c in hosted]
        backwards = [_all(BACKWARD, c, problem) for c in hosted[::-1]]
        orders.append(np.concatenate([*forwards, *backwards]))
    return Schedule("gpipe", tuple(orders))


def _all(kind: int, chunk: int, problem: ScheduleProblem) -> Ints:
    m = problem.num_micro_batches
    return np.column_stack((np.full(m, kind), np.full(m, chunk), np.arange(m)))


def one_forward_one_backward(problem: ScheduleProblem) -> Schedule:
    """1F1B, (2); ``FormulationError`` if the chunks are not one a device, in order."""
    p, m = problem.num_devices, problem.num_micro_batches
    require(problem, sequential(p), "1f1b", "one chunk a device, in order")
    orders = (alternate(_all(FORWARD, d, problem), _all(BACKWARD, d, problem), min(p - d, m)) for d in range(p))
    return Schedule("1f1b", tuple(orders))


def alternate(forwards: Ints, backwards: Ints, ahead: int) -> Ints:
    """Some forwards ahead, then a backward and a forward in turn, then the rest of the backwards."""
    steady = len(forwards) - ahead
    turns = np.stack((backwards[:steady], forwards[ahead:]), axis=1).reshape(-1, 3)
    return np.concatenate((forwards[:ahead], turns, backwards[steady:]))


def interleaved(problem: ScheduleProblem) -> Schedule:
    """Interleaved 1F1B, (3); ``FormulationError`` if chunks do not go round, or m is no multiple of the devices."""
    p, m = problem.num_devices, problem.num_micro_batches
    v = problem.num_chunks // p
    require(problem, round_robin(p, v), "interleaved-1f1b", "chunk c on device c mod the number of devices")
    if m % p:
        raise FormulationError(f"interleaved-1f1b: {m} micro-batches, expected a multiple of the {p} devices")
    k = np.arange(m * v)
    chunk, micro_batch = (k // p) % v, k // (p * v) * p + k % p
    orders = []
    for d in range(p):
        forwards = np.column_stack((np.full_like(k, FORWARD), chunk * p + d, micro_batch))
        backwards = np.column_stack((np.full_like(k, BACKWARD), (v - 1 - chunk) * p + d, micro_batch))
        orders.append(alternate(forwards, backwards, min(2 * (p - d - 1) + (v - 1) * p + 1, m * v)))
    return Schedule("interleaved-1f1b", tuple(orders))


def require(problem: ScheduleProblem, device: Ints, kind: str, expected: str) -> None:
    """Refuse a pipeline whose chunks are on other devices than a kind of schedule needs."""
    if not np.array_equal(problem.device, device):
        raise FormulationError(f"{kind}: chunks are on devices {problem.device.tolist()}, expected {expected}")


def zb_h1(problem: ScheduleProblem) -> Schedule:
    """ZB-H1, (4): as much memory as 1F1B on its first device."""
    return _by_hand(problem, "zb-h1", 1)


def zb_h2(problem: ScheduleProblem) -> Schedule:
    """ZB-H2, (4): twice as much."""
    return _by_hand(problem, "zb-h2", 2)


def _by_hand(problem: ScheduleProblem, kind: str, ahead: int) -> Schedule:
    p, m = problem.num_devices, problem.num_micro_batches
    require(problem, sequential(p), kind, "one chunk a device, in order")
    return Schedule(kind, tuple(_split_stage(d, ahead * (p - 1 - d), ahead * (p - 1), m) for d in range(p)))


def _split_stage(d: int, ahead: int, ahead_of_weights: int, m: int) -> Ints:
    """Order of one stage; times are positions in units of one round."""
    i = np.arange(m)
    forward, input_gradient = i.astype(float), ahead + i + 0.25
    weight = ahead_of_weights + i + 0.5
    when = np.concatenate((forward, input_gradient, weight))
    kind = np.repeat((FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT), m)
    order = np.argsort(when, kind="stable")
    return np.column_stack((kind, np.full(3 * m, d), np.tile(i, 3)))[order]


def zb_v(problem: ScheduleProblem) -> Schedule:
    """ZB-V as its authors wrote it down, (5)."""
    return _on_the_v(problem, "zb-v", _zb_v_types)


def dualpipe_v(problem: ScheduleProblem) -> Schedule:
    """DualPipeV, (6)."""
    return _on_the_v(problem, "dualpipe-v", _dualpipe_v_types)


def _zb_v_types(p: int, d: int, m: int) -> str:
    head = "F" * (2 * (p - d) - 1) + "fF" * d + "fIW" * (p - d)
    ups = m - p
    downs = m - 2 * p + d + 1
    return head + "FiWfIW" * downs + "iWfIW" * (ups - downs) + "iI" * d + "iW" * (p - d) + "W" * 2 * m


def _dualpipe_v_types(p: int, d: int, m: int) -> str:
    head = "F" * 2 * (p - d - 1) + "Ff" * (d + 1) + "IWf" * (p - d - 1)
    body = "FBfb" * (m - 2 * p + d + 1) + "Bfb" * (p - d - 1)
    last = ("Bb" * (d + 1))[: d + 1] + ("Ii" * (d + 1))[d + 1 :]
    return head + body + last + "Wi" * (p - d - 1) + "W" * (d + 1)


def _on_the_v(problem: ScheduleProblem, kind: str, types: Callable[[int, int, int], str]) -> Schedule:
    p, m = problem.num_devices, problem.num_micro_batches
    require(problem, v_shape(p), kind, "two chunks a device, down and back up")
    if m < 2 * p:
        raise FormulationError(f"{kind}: {m} micro-batches on {p} devices, expected at least {2 * p}")
    return Schedule(kind, tuple(_passes(types(p, d, m), d, 2 * p - 1 - d) for d in range(p)))


def _passes(types: str, down: int, up: int) -> Ints:
    """Passes of a permutation with repetition; every type takes its next micro-batch, W the oldest gradient."""
    meaning = {"F": (FORWARD, down), "f": (FORWARD, up), "I": (INPUT_GRADIENT, up), "i": (INPUT_GRADIENT, down)}
    meaning |= {"B": (BACKWARD, up), "b": (BACKWARD, down)}
    seen: dict[str, int] = {}
    pending: list[tuple[int, int]] = []
    rows: list[tuple[int, int, int]] = []
    for letter in types:
        if letter == "W":
            if pending:
                rows.append((WEIGHT_GRADIENT, *pending.pop(0)))
            continue
        kind, chunk = meaning[letter]
        counter = {"B": "I", "b": "i"}.get(letter, letter)
        i = seen[counter] = seen.get(counter, -1) + 1
        rows.append((kind, chunk, i))
        if kind == INPUT_GRADIENT:
            pending.append((chunk, i))
    return np.array(rows, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Block:
    """Slots of the passes of one micro-batch by chunk (C,), and after how many slots the next micro-batch follows."""

    forward: Ints
    input_gradient: Ints
    period: int


def v_min(stages: int) -> Block:
    """Block of V-Min, (9): a third of 1F1B's memory."""
    d = np.arange(stages)
    extra = 2 if stages % 3 == 0 else 0
    return v_block(d, 2 * stages - 1 - d, 2 * stages + extra + d, 4 * stages + extra - 1 - d)


def v_half(stages: int) -> Block:
    """Block of V-Half, (10): half of 1F1B's memory."""
    d = np.arange(stages)
    extra = 3 if stages % 2 == 0 else 0
    first = 3 * stages - 1 + extra
    return v_block(2 * d, 3 * stages - 2 - d, first + 2 * d, 6 * stages - 2 + extra - d)


def v_block(down: Ints, up: Ints, gradient_of_up: Ints, gradient_of_down: Ints) -> Block:
    """Block of the V from slots by device."""
    return Block(np.concatenate((down, up[::-1])), np.concatenate((gradient_of_down, gradient_of_up[::-1])), 6)


def repeat(problem: ScheduleProblem, block: Block, kind: str) -> Schedule:
    """Each device's passes in the order of their slots, repeated for every micro-batch, (7) and (11)."""
    m, chunks = problem.num_micro_batches, problem.num_chunks
    slots = np.stack((block.forward, block.input_gradient, _weights(problem, block)))
    when = slots[:, :, None] + block.period * np.arange(m)
    passes = np.stack(np.meshgrid(np.arange(3), np.arange(chunks), np.arange(m), indexing="ij"), axis=-1)
    orders = []
    for d in range(problem.num_devices):
        hosted = np.flatnonzero(problem.device == d)
        orders.append(passes[:, hosted].reshape(-1, 3)[np.argsort(when[:, hosted].ravel(), kind="stable")])
    return Schedule(kind, tuple(orders))


def _weights(problem: ScheduleProblem, block: Block) -> Ints:
    """Slots of the gradients by the weights, (11), in the order of the gradients by the input."""
    found = np.zeros(problem.num_chunks, dtype=np.int64)
    for d in range(problem.num_devices):
        hosted = np.flatnonzero(problem.device == d)
        taken = {int(s) % block.period for s in (*block.forward[hosted], *block.input_gradient[hosted])}
        for c in hosted[np.argsort(block.input_gradient[hosted])]:
            slot = int(block.input_gradient[c]) + 1
            while slot % block.period in taken and len(taken) < block.period:
                slot += 1
            taken.add(slot % block.period)
            found[c] = slot
    return found


_PASS = re.compile(r"([0-9]{1,6})([FIWB])")
_WORD = re.compile(rf"(?:{_PASS.pattern})*")


def words_of(schedule: Schedule) -> tuple[str, ...]:
    """Word of every device, (12); ``FormulationError`` if micro-batches of some chunk and letter are out of order."""
    words = tuple("".join(f"{chunk}{LETTERS[kind]}" for kind, chunk, _ in order.tolist()) for order in schedule.orders)
    for order, again in zip(schedule.orders, orders_of(words), strict=True):
        if not np.array_equal(order, again):
            raise FormulationError(f"{schedule.kind}: micro-batches out of order, expected each chunk's in order")
    return words


def orders_of(words: Sequence[str]) -> tuple[Ints, ...]:
    """Kind, chunk and micro-batch of every pass (n, 3) of each device; ``FormulationError`` for what is no word."""
    return tuple(_rows_of_word(word) for word in words)


def _rows_of_word(word: str) -> Ints:
    if not _WORD.fullmatch(word):
        raise FormulationError(f"order {word[:20]!r}: expected chunk numbers and letters, such as 0F1F1I1W")
    seen, rows = Counter[tuple[int, int]](), list[tuple[int, int, int]]()
    for chunk, letter in _PASS.findall(word):
        each = LETTERS.index(letter), int(chunk)
        rows.append((*each, seen[each]))
        seen[each] += 1
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def largest_counts(kinds: Ints, chunks: Ints, number: int) -> Ints:
    """Counts (14) of a device, (states, chunks) in no order, of kind and chunk by pass in execution order (n,)."""
    change = np.zeros((len(kinds), number), np.int64)
    change[np.arange(len(kinds)), chunks] = np.where(kinds == FORWARD, 1, np.where(kinds == INPUT_GRADIENT, 0, -1))
    # A further forward pass adds to what is there.
    last = (kinds == FORWARD) & np.append(kinds[1:] != FORWARD, True)
    left, found = np.unique(change.cumsum(axis=0)[last], axis=0), np.zeros((0, number), np.int64)
    left = left[np.argsort(-left.sum(axis=1), kind="stable")]
    while len(left):
        # No other row left has as many in all.
        found, left = np.vstack((found, left[:1])), left[(left > left[0]).any(axis=1)]
    return found


_BUILD: dict[str, Callable[[ScheduleProblem], Schedule]] = {
    "interleaved-1f1b": interleaved,
    "zb-h1": zb_h1,
    "zb-h2": zb_h2,
    "zb-v": zb_v,
    "v-half": lambda problem: repeat(problem, v_half(problem.num_devices), "v-half"),
    "v-min": lambda problem: repeat(problem, v_min(problem.num_devices), "v-min"),
}
CLOSED_FORM: dict[str, Callable[[ScheduleProblem], Schedule]] = {"1f1b": one_forward_one_backward, "gpipe": gpipe}
"""Schedules whose time is a sum over stages, and how their orders are made."""
ORDER_PRICED = tuple(_BUILD)
"""Schedules whose time is that of their order, not a sum over stages."""
ON_V = ("zb-v", "v-half", "v-min")
"""Schedules whose first and last chunk share a device."""
SPLIT = ("zb-h1", "zb-h2", *ON_V)
"""Schedules that split the backward pass into gradients by the input and by the weights."""


class Order(NamedTuple):
    """Passes (n, 3) of all devices, the row of each device's first one, and the device of each chunk (C,)."""

    passes: Ints
    first: Ints
    device: Ints


def chunks_of_device(schedule: str, most: int) -> range:
    """Numbers of chunks that a device can have under a schedule, at most ``most`` where it is free to choose."""
    if schedule in ON_V:
        return range(2, 3)
    return range(2, most + 1) if schedule == "interleaved-1f1b" else range(1, 2)


def is_defined(schedule: str, pp: int, num_micro_batches: int) -> bool:
    """Whether there is an order for so many devices and micro-batches."""
    if schedule == "interleaved-1f1b":
        return num_micro_batches % pp == 0
    return schedule != "zb-v" or num_micro_batches >= 2 * pp


def device_of_chunk(schedule: str, pp: int, vpp: int) -> Ints:
    """Pipeline device of every chunk (C,)."""
    return v_shape(pp) if schedule in ON_V else round_robin(pp, vpp)


@lru_cache(maxsize=64)
def order_of(schedule: str, pp: int, vpp: int, num_micro_batches: int, words: tuple[str, ...] = ()) -> Order:
    """Order of the passes, by formula or the one that words give; ``FormulationError`` if there is none such."""
    if schedule not in ORDER_PRICED:
        raise FormulationError(f"schedule: {schedule!r}, expected one of {', '.join(ORDER_PRICED)}")
    given = _sized(orders_of(words), pp, num_micro_batches) if words else ()
    device = device_of_chunk(schedule, pp, vpp)
    pipeline = unit_pipeline(device, num_micro_batches)
    found = _given(pipeline, schedule, given) if words else _BUILD[schedule](pipeline)
    return Order(*found.flat, device)


@lru_cache(maxsize=64)
def passes_of(schedule: str, pp: int, vpp: int, num_micro_batches: int, words: tuple[str, ...] = ()) -> Order:
    """Order of the passes of any schedule, those with a closed form included."""
    if (build := CLOSED_FORM.get(schedule)) is None:
        return order_of(schedule, pp, vpp, num_micro_batches, words)
    pipeline = unit_pipeline(device_of_chunk(schedule, pp, vpp), num_micro_batches)
    return Order(*build(pipeline).flat, pipeline.device)


def _sized(orders: tuple[Ints, ...], pp: int, num_micro_batches: int) -> tuple[Ints, ...]:
    """The orders, refused where they are too few, before anything as large as they claim to be is built."""
    if len(orders) != pp:
        raise FormulationError(f"orders of {len(orders)} devices, expected {pp}")
    # Every chunk and micro-batch has a forward and at least one backward pass.
    if min(map(len, orders)) < 2 * num_micro_batches:
        raise FormulationError(
            f"order of {min(map(len, orders))} passes, too short for {num_micro_batches} micro-batches"
        )
    return orders


def as_schedule(kind: str, order: Order) -> Schedule:
    """An order as a schedule, which may be priced on its own."""
    return Schedule(kind, tuple(np.split(order.passes, order.first[1:-1])))


def _given(pipeline: ScheduleProblem, schedule: str, orders: tuple[Ints, ...]) -> Schedule:
    """An order that is given, checked."""
    if schedule not in ON_V:
        raise FormulationError(f"{schedule}: runs in its own order, expected one of {', '.join(ON_V)}")
    found = Schedule(schedule, orders)
    if faults := violations(pipeline, found):
        raise FormulationError(f"order of {schedule}: {faults[0]}")
    return found


def in_flight_counts(
    schedule: str, pp: int, vpp: int, num_micro_batches: int, words: tuple[str, ...] = ()
) -> tuple[Ints, ...]:
    """Counts of micro-batches in flight that devices go through, (13): (states, vpp) of each, none dominated."""
    if schedule == "interleaved-1f1b":
        # Counts repeat after pp v forward passes, and all begin to before the first (v + 1) pp of them are done.
        num_micro_batches = min(num_micro_batches, 3 * pp)
    return _counts(schedule, pp, vpp, num_micro_batches, words)


@lru_cache(maxsize=4096)
def _counts(schedule: str, pp: int, vpp: int, num_micro_batches: int, words: tuple[str, ...]) -> tuple[Ints, ...]:
    passes, first, device = order_of(schedule, pp, vpp, num_micro_batches, words)
    place = np.array([np.count_nonzero(device[:c] == d) for c, d in enumerate(device.tolist())])
    found = []
    for d in range(pp):
        rows = passes[first[d] : first[d + 1]]
        counts = largest_counts(rows[:, 0], place[rows[:, 1]], int((device == d).sum()))
        found.append(np.unique(counts, axis=0))
    return tuple(found)


class GivenOrder(Spec):
    """An order for a schedule on the V at given degrees, a word for each device (``taut.formulations.space`` (6))."""

    schedule: Literal["zb-v", "v-half", "v-min"]
    pp: Annotated[int, Field(gt=1)]
    tp: Annotated[int, Field(gt=0)]
    micro_batch: Annotated[int, Field(gt=0)]
    num_micro_batches: Annotated[int, Field(gt=0)]
    words: list[str]

    @model_validator(mode="after")
    def _feasible(self) -> Self:
        try:
            order_of(self.schedule, self.pp, 2, self.num_micro_batches, tuple(self.words))
        except FormulationError as error:
            raise ValueError(str(error)) from None
        return self
