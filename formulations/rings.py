r"""
The price of ring collectives: the one home of their factors.

Data: n members; M bytes that each member holds; B bytes/s and :math:`\lambda` seconds of the slowest link of the ring.

(1) An all-reduce on one ring is a reduce-scatter and an all-gather of n - 1 steps each, with M / n bytes a step:

    .. math:: ring(M, n) = 2 \frac{n - 1}{n} \frac{M}{B} + 2 (n - 1) \lambda.

(2) The hierarchical all-reduce of replicas on k nodes, the fullest of which holds g of them, has two rings inside every
    node (one before, one after) and one ring between the nodes:

    .. math:: T_{DP} = \max_v 4 \frac{g_v - 1}{g_v} \frac{M}{B_v} + 2 \frac{k - 1}{k} \frac{M}{B_{between}}.

Compiled loops call the same functions: a module with a kernel passes them to ``numba.extending.register_jitable``.

References
----------
Patarasuk and Yuan (2009), Bandwidth optimal all-reduce algorithms for clusters of workstations: (1).
Yim et al. (2024), Pipette, eq. 6: (2).
"""

from typing import overload

import numpy as np
from numpy.typing import NDArray

from taut.data.arrays import Floats, Ints


@overload
def ring_factor(members: float) -> float: ...
@overload
def ring_factor(members: Floats | Ints) -> Floats: ...
def ring_factor(members: float | Floats | Ints) -> float | NDArray[np.floating]:
    """
    Share of the message that crosses each link of one ring, 2 (n - 1) / n of (1); also the ring between nodes of (2).

    Parameters
    ----------
    members
        n members of a flat ring, or k nodes; at least 1, a number or an array of any shape.

    Returns
    -------
    float or array
        The factor of M / B, of the shape of ``members``.
    """
    return 2.0 * (members - 1) / members


@overload
def inside_factor(members: float) -> float: ...
@overload
def inside_factor(members: Floats | Ints) -> Floats: ...
def inside_factor(members: float | Floats | Ints) -> float | NDArray[np.floating]:
    """
    Share of the message that crosses each link inside a node in the two rings there, 4 (g - 1) / g of (2).

    Parameters
    ----------
    members
        g replicas on the node; at least 1, a number or an array of any shape.

    Returns
    -------
    float or array
        The factor of M / B, of the shape of ``members``.
    """
    return 4.0 * (members - 1) / members


@overload
def ring_steps(members: int) -> int: ...
@overload
def ring_steps(members: Ints) -> Ints: ...
def ring_steps(members: int | Ints) -> int | Ints:
    """
    Steps of one ring, each of which takes the latency of a link, 2 (n - 1) of (1).

    Parameters
    ----------
    members
        n members; a number or an array of any shape.

    Returns
    -------
    int or array
        Steps, of the shape of ``members``.
    """
    return 2 * (members - 1)
