"""Small pipelines at random, and the least makespan of the smallest by exhaustive enumeration."""

import math

import numpy as np

from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, round_robin, sequential, v_shape


def device_map(draw: np.random.Generator, devices: int) -> np.ndarray:
    """Sequential, V, round-robin or any other."""
    shape = draw.integers(4)
    if shape == 0:
        return sequential(devices)
    if shape == 1:
        return v_shape(devices)
    if shape == 2:
        return round_robin(devices, int(draw.integers(1, 3)))
    return draw.permutation(np.concatenate((np.arange(devices), draw.integers(0, devices, draw.integers(3)))))


def unlike(draw: np.random.Generator, device: np.ndarray, m: int, largest: int) -> ScheduleProblem:
    """Whole numbers for everything, often equal, sometimes 0; limits from the least that is feasible to none."""
    chunks, devices = len(device), int(device.max()) + 1
    times = draw.integers(0 if draw.random() < 0.1 else 1, largest + 1, (3, chunks)).astype(float)
    if draw.random() < 0.4:
        times[:] = times[:, :1]
    activation = np.ones(chunks) if draw.random() < 0.5 else draw.integers(1, 4, chunks).astype(float)
    limit = np.bincount(device, weights=activation, minlength=devices) + draw.integers(0, 6, devices).astype(float)
    limit[draw.random(devices) < 0.15] = math.inf
    return ScheduleProblem(
        device=device,
        forward=times[0],
        input_gradient=times[1],
        weight_gradient=times[2],
        transfer=draw.integers(0, draw.choice((1, 3, 9)), chunks - 1).astype(float),
        num_micro_batches=m,
        activation=activation,
        kept_for_weight=activation if draw.random() < 0.5 else np.floor(draw.random(chunks) * (activation + 1)),
        memory_limit=limit,
    )


def one_by_one(problem: ScheduleProblem) -> Schedule:
    """One micro-batch after the other: feasible whenever anything is."""
    orders = []
    for d in range(problem.num_devices):
        chunks = np.flatnonzero(problem.device == d).tolist()
        once = [(0, c) for c in chunks] + [(kind, c) for c in chunks[::-1] for kind in (1, 2)]
        orders.append(np.array([(kind, c, i) for i in range(problem.num_micro_batches) for kind, c in once]))
    return Schedule("one-by-one", tuple(orders))


def least_makespan(problem: ScheduleProblem) -> float:
    """
    The optimum over all orders of F, I, W and of fused B, micro-batches in any order; infinite if none fits.

    It is that of rationals where the problem's figures are.
    """
    chunks, m = problem.num_chunks, problem.num_micro_batches
    best, seen = math.inf, set()

    def visit(ends: dict[tuple[int, int, int], float], clock: tuple[float, ...], held: tuple[float, ...]) -> None:
        nonlocal best
        if max(clock) >= best:
            return
        state = (frozenset(ends.items()), clock, held)
        if state in seen:
            return
        seen.add(state)
        if len(ends) == 3 * chunks * m:
            best = max(clock)
        for kind in range(4):
            for c in range(chunks):
                for i in range(m):
                    step(kind, c, i, ends, clock, held)

    def step(
        kind: int,
        c: int,
        i: int,
        ends: dict[tuple[int, int, int], float],
        clock: tuple[float, ...],
        held: tuple[float, ...],
    ) -> None:
        place = 1 if kind == 3 else kind
        needs = {0: [(0, c - 1, i)] if c else [], 1: [(0, c, i)], 2: [(1, c, i)]}[place]
        needs += [(1, c + 1, i)] if place == 1 and c + 1 < chunks else []
        if (place, c, i) in ends or any(need not in ends for need in needs):
            return
        d = problem.device[c]
        memory = held[d] + (problem.activation[c] if kind == 0 else 0)
        if memory > problem.allowed[d]:
            return
        ready = [ends[need] + (problem.transfer[min(need[1], c)] if need[1] != c else 0) for need in needs]
        end = max([clock[d], *ready]) + problem.seconds[kind, c]
        after = {**ends, (place, c, i): end} | ({(2, c, i): end} if kind == 3 else {})
        gone = [0, problem.activation[c] - problem.kept_for_weight[c], problem.kept_for_weight[c]]
        memory -= problem.activation[c] if kind == 3 else gone[kind]
        visit(after, (*clock[:d], end, *clock[d + 1 :]), (*held[:d], memory, *held[d + 1 :]))

    visit({}, (0,) * problem.num_devices, (0,) * problem.num_devices)
    return best
