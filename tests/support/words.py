"""Random orders on the V, as words."""

import numpy as np

from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import GivenOrder


def random_words(pp: int, m: int, rng: np.random.Generator) -> tuple[str, ...]:
    """A word for each device of a V of 2 pp chunks: passes that may run, one after the other, each drawn at random."""
    last = 2 * pp - 1
    done = {letter: [0] * (last + 1) for letter in "FIW"}
    words = [""] * pp

    def may_run(letter: str, c: int) -> bool:
        n = done[letter][c]
        if n == m:
            return False
        if letter == "F":
            return c == 0 or n < done["F"][c - 1]
        if letter == "I":
            return n < done["F"][c] and (c == last or n < done["I"][c + 1])
        return n < done["I"][c]

    while True:
        ready = [(letter, c) for letter in "FIW" for c in range(last + 1) if may_run(letter, c)]
        if not ready:
            return tuple(words)
        letter, c = ready[int(rng.integers(len(ready)))]
        done[letter][c] += 1
        words[min(c, last - c)] += f"{c}{letter}"


def with_random_orders(given: PlanningProblem, rng: np.random.Generator) -> PlanningProblem:
    """The problem with an order at the degrees of every candidate on the V."""
    choices = [c for c in given.candidates if c.schedule in ("zb-v", "v-half", "v-min") and not c.order]
    degrees = sorted({(c.schedule, c.pp, c.tp, c.micro_batch, c.num_micro_batches) for c in choices})
    orders = [
        GivenOrder(
            schedule=schedule,
            pp=pp,
            tp=tp,
            micro_batch=micro_batch,
            num_micro_batches=m,
            words=list(random_words(pp, m, rng)),
        )
        for schedule, pp, tp, micro_batch, m in degrees
    ]
    return given.with_orders(orders)
