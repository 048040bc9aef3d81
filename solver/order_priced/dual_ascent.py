r"""
Good weights and prices, round by round.

They come from linear programs over the divisions found so far (``taut.solver.order_priced.master``); each new division
answers the weights with the least cost and adds its own critical path to the rows. With w the shares and prices,
:math:`D(w)` what they prove (``taut.solver.order_priced.lagrangian``), :math:`w^*` those of the program and :math:`Z`
its value,

.. math:: w \leftarrow \begin{cases} (1 - \theta) w_{best} + \theta w^* & Z - D(w_{best}) > \epsilon |Z| \\
    w^* & \text{otherwise} \end{cases} \tag{1}

goes part of the way from the best so far, at first equal shares of the devices' paths, to those of the program, which
alone would leap about. Rounds end where :math:`Z - D(w_{best})` is rounding, the bound reaches the limit, or the number
of rounds is spent (2).
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.strategy import Division
from taut.solver.order_priced.lagrangian import Least, dual_value
from taut.solver.order_priced.master import FastestMixture
from taut.solver.order_priced.rows import Rows

ROUNDS = 40
STEP = 0.3
"""Share theta of the way to the linear program's weights."""
NEAR = 1e-4
"""Relative distance epsilon to its value at which steps go all the way."""
PROGRESS = 1e-7
"""Relative distance between the linear program and the bound at which rounds stop."""


@dataclass(frozen=True)
class Raised:
    """
    What rounds led to.

    Parameters
    ----------
    value
        Seconds that are proven, without the constant; infinite where there is no division to look at.
    shares, prices
        What proves them: shares of the first paths among the rows, and prices of the counts.
    divisions, parts
        Divisions found, and the parts that the last mixture has of the first of them.
    """

    value: float
    shares: Floats
    prices: Floats
    divisions: tuple[Division, ...]
    parts: Floats


def raised(rows: Rows, divisions: list[Division], least: Least, limit: float) -> Raised:
    """
    Raise a bound by (1) and (2), adding critical paths to the rows.

    Parameters
    ----------
    rows
        Paths and counts; those of the divisions are added.
    divisions
        Where to begin.
    least
        The least division under weights.
    limit
        Seconds, less the constant, beyond which a bound is of no use.
    """
    found = list(divisions)
    for division in found:
        rows.add(division)
    shares, prices = equal_shares(rows), np.zeros(len(rows.counts))
    best, answer = dual_value(rows, shares, prices, least)
    program, parts = FastestMixture(rows), np.zeros(0)
    for _ in range(ROUNDS):
        if answer is None or best >= limit:
            break
        found.append(answer)
        rows.add(answer)
        toward = program.solve(found)
        if toward is None:
            break
        parts = toward.parts
        if toward.seconds - best <= PROGRESS * abs(toward.seconds):
            break
        step = 1.0 if toward.seconds - best <= NEAR * abs(toward.seconds) else STEP
        tried = (1 - step) * np.pad(shares, (0, len(toward.shares) - len(shares))) + step * toward.shares
        cost = (1 - step) * prices + step * toward.prices
        value, answer = dual_value(rows, tried, cost, least)
        if value > best:
            best, shares, prices = value, tried, cost
    return Raised(best, shares, prices, tuple(found), parts)


def equal_shares(rows: Rows) -> Floats:
    """Equal shares of the devices' paths."""
    devices = len(rows.given.counts)
    shares = np.zeros(len(rows.paths))
    shares[:devices] = 1.0 / devices
    return shares
