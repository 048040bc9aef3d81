"""Staircases of interleaved 1F1B: never above the event order, equal to it for even rounds, and what mixtures are."""

import numpy as np
import pytest

from taut.data.arrays import Floats
from taut.formulations.schedules.orders import order_of
from taut.formulations.schedules.recurrence import device_ends
from taut.solver.order_priced.staircases import Ends, ends_of_paths, is_interleaved, mix

ROUNDING = 1 + 1e-12


def executed(p: int, v: int, m: int, forward: Floats, backward: Floats, transfer: Floats) -> Floats:
    """Ends of the devices (p,) under the event order."""
    order = order_of("interleaved-1f1b", p, v, m)
    seconds = np.zeros((1, 4, p * v))
    seconds[0, 0], seconds[0, 3] = forward, backward
    return np.asarray(device_ends(order.passes, order.first, seconds, transfer[None], m)[0])


def longest(known: Ends, forward: Floats, backward: Floats, transfer: Floats) -> Floats:
    """Seconds of the longest path by device, way in and way out (p, 2, 3), without what follows the last pass."""
    devices, chunks = len(known.after), len(forward)
    reached = []
    for passes in (forward, backward):
        start = np.zeros(chunks)
        for c in range(1, chunks):
            start[c] = start[c - 1] + passes[c - 1] + transfer[c - 1]
            if c >= devices:
                start[c] = max(start[c], start[c - devices] + devices * passes[c - devices])
        reached.append(start[chunks - devices :])
    found = known.forward @ forward + known.backward @ backward + known.transfers @ transfer
    return found + reached[0][:, None, None] + np.where(known.leaves, reached[1][:, None, None], 0.0)


def sizes(rng: np.random.Generator) -> tuple[int, int, int]:
    """Devices, chunks a device, micro-batches."""
    p = int(rng.integers(2, 6))
    return p, int(rng.integers(2, 5)), p * int(rng.integers(2, 6))


def test_two_devices_by_hand() -> None:
    """Two devices with two chunks and four micro-batches of F = 1 and B = 2: 24 s of work and a chunk each way."""
    found = longest(ends_of_paths(2, 4, 4), np.ones(4), np.full(4, 2.0), np.zeros(3))
    assert found.max() == 4 * 2 * 3 + 3 == executed(2, 2, 4, np.ones(4), np.full(4, 2.0), np.zeros(3)).max()


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.5, 3.0])
@pytest.mark.parametrize("delay", [0.0, 0.01, 0.5])
def test_no_staircase_is_longer_than_the_makespan(spread: float, delay: float) -> None:
    """Chunks and transfers of any seconds: a staircase, and one that ends on a device, is no longer than its end."""
    rng = np.random.default_rng((int(100 * spread), int(100 * delay)))
    for _ in range(170):
        p, v, m = sizes(rng)
        forward, backward = 1 + spread * rng.random(p * v), rng.choice([0.5, 1, 2]) + spread * rng.random(p * v)
        transfer = delay * rng.random(p * v - 1)
        ends = executed(p, v, m, forward, backward, transfer)
        known = ends_of_paths(p, p * v, m)
        found = longest(known, forward, backward, transfer)
        last = np.take_along_axis(ends, known.after.ravel(), 0).reshape(found.shape)
        assert (found <= last * ROUNDING).all()


def test_staircases_are_the_makespan_for_even_rounds() -> None:
    """Chunks alike within a round of devices, rounds of unlike size within a tenth: the longest is the makespan."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        p, v, m = sizes(rng)
        rounds = np.repeat(1 + 0.1 * rng.random(v) * (rng.random() < 0.5), p)
        found = longest(ends_of_paths(p, p * v, m), rounds, 2 * rounds, np.zeros(p * v - 1))
        exact = executed(p, v, m, rounds, 2 * rounds, np.zeros(p * v - 1)).max()
        assert found.max() == pytest.approx(exact, rel=0.1 / m if np.ptp(rounds) else 1e-12)


def test_any_numbers_are_a_mixture_of_paths() -> None:
    """Random weights and shares: seconds no longer than the makespan, whatever chunks take, and weights of one."""
    rng = np.random.default_rng(6)
    for _ in range(300):
        p, v, m = sizes(rng)
        known, weights = ends_of_paths(p, p * v, m), rng.random((p, 2, 3)) ** 4
        found = mix(known, weights / weights.sum(), rng.random(p * v), rng.random(p * v))
        forward, backward, transfer = rng.random(p * v), 2 * rng.random(p * v), 0.3 * rng.random(p * v - 1)
        seconds = found.forward @ forward + found.backward @ backward + found.transfers @ transfer
        assert seconds <= executed(p, v, m, forward, backward, transfer).max() * ROUNDING
        assert found.after.sum() == pytest.approx(1)


def test_other_orders_are_told_apart() -> None:
    """One round of micro-batches, or a schedule on a V, has no such staircases."""
    assert is_interleaved(order_of("interleaved-1f1b", 2, 2, 4), 4)
    assert not is_interleaved(order_of("interleaved-1f1b", 2, 2, 2), 2)
    assert not is_interleaved(order_of("zb-v", 2, 2, 4), 4)
