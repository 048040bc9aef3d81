"""Quadratic assignment problems from Python: a QAPLIB file or two matrices in, a bounded permutation out."""

from math import inf
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from taut.data.readers.qaplib import read_qaplib
from taut.errors import FieldError
from taut.formulations.assignment import QuadraticAssignment
from taut.planning.request import check_search
from taut.solver.branch_and_bound.progress import Listener
from taut.solver.qap.quadratic import AssignmentResult
from taut.solver.qap.quadratic import place as solve

Matrices = tuple[npt.ArrayLike, npt.ArrayLike]


def place(
    instance: QuadraticAssignment | Matrices | str | PathLike[str],
    *,
    time_limit: float | None = 10.0,
    seed: int = 0,
    progress: Listener | None = None,
) -> AssignmentResult:
    """
    Solve a quadratic assignment problem, with a lower bound.

    Parameters
    ----------
    instance
        Path of a QAPLIB file (``.dat``), a pair of matrices ``(flow, distance)``, both (n, n), or a
        ``QuadraticAssignment``.
    time_limit
        Seconds to search; None goes on to the proof or an interrupt.
    seed
        Seed of the search.
    progress
        Called with a ``Progress``: ``wall_s``, ``incumbent``, ``lower_bound``, and in ``doing`` its source.

    Returns
    -------
    AssignmentResult
        Objective, lower bound, gap, and the permutation: location of every item, counted from 0.

    Raises
    ------
    DataError
        If the file is wrong, or a limit is out of range.
    FormulationError
        If the matrices are not square, finite and of one size.

    Examples
    --------
    >>> import taut
    >>> flow, distance = [[0, 5, 2], [0, 0, 3], [0, 0, 0]], [[0, 8, 1], [8, 0, 4], [1, 4, 0]]
    >>> found = taut.place((flow, distance))
    >>> found.objective, found.lower_bound, found.permutation
    (33.0, 33.0, (0, 2, 1))
    """
    check_search(time_limit=time_limit, seed=seed)
    return solve(
        problem_of(instance), seed=seed, time_limit=inf if time_limit is None else time_limit, progress=progress
    )


def problem_of(instance: QuadraticAssignment | Matrices | str | PathLike[str]) -> QuadraticAssignment:
    """The problem that a file or two matrices state; a ``DataError`` if the file is wrong, or this is no such pair."""
    if isinstance(instance, QuadraticAssignment):
        return instance
    if isinstance(instance, str | PathLike):
        read = read_qaplib(Path(instance))
        return QuadraticAssignment(flow=read.flow, distance=read.distance, name=read.name)
    if not (isinstance(instance, tuple | list) and len(instance) == 2):
        raise FieldError("instance", None, "expected a QAPLIB file or a pair of matrices, (flow, distance)")
    try:
        flow, distance = (np.asarray(matrix, dtype=np.float64) for matrix in instance)
    except (TypeError, ValueError) as error:
        raise FieldError("instance", None, f"expected two matrices of numbers ({error})") from None
    return QuadraticAssignment(flow=flow, distance=distance, name="given")
