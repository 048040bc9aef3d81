r"""
Linear programs: one front end for the solvers that master problems use.

Sets: columns j, rows i. Data: costs :math:`c_j`, coefficients :math:`a_{ij}`, bounds. Variables: :math:`x_j`.

(1) Minimise :math:`c x` so that :math:`\underline{b} \le A x \le \overline{b}` and
    :math:`\underline{x} \le x \le \overline{x}`.
(2) The dual :math:`y_i` of a row is the change of the optimum for a unit of the bound that holds it: at most 0 for a
    row that its upper bound holds, at least 0 for one that its lower bound holds.

Columns and rows may be added after a solution, as column generation and cutting planes do, and their bounds changed, as
branches do.

==========  ====================================================================================================
``glop``    Google's primal simplex; a solution starts from the last basis. For many small programs that grow by a
            column and a row at a time. It is called through ``pywraplp``: MathOpt's Python interface to the same solver
            takes 1.1 instead of 0.6 ms for a program of up to 40 columns and rows, a tenth of a plan's time.
``dual``    The same solver's dual simplex, without what it does to a program before: for programs whose columns stay,
            while rows are added and bounds change. Of 121 columns and 230 rows a first solution takes 5 ms, and a
            further one 1 to 3 ms; with the primal simplex 20 ms, and with ``highs`` 29 ms.
``highs``   HiGHS in SciPy; every solution starts anew. For sparse programs with thousands of rows.
==========  ====================================================================================================

Duals are claims of a solver: whoever builds a bound on them computes its value from the problem's own data. A solver is
loaded with its first program, as most plans solve none.
"""

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np

from taut.data.arrays import Floats

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


class LinearSolution(NamedTuple):
    """An optimum: its least cost, values of the columns (n,), and duals (2) of the rows (m,)."""

    value: float
    primal: Floats
    duals: Floats


class LinearProgram(Protocol):
    """A linear program (1) that grows; rows and columns are numbered in the order in which they are added."""

    def add_columns(self, cost: Floats, lower: Floats, upper: Floats, coefficients: Floats) -> None:
        """Add n columns with costs and bounds (n,), and coefficients in the rows so far (m, n)."""
        ...

    def add_rows(self, coefficients: "Floats | csr_matrix", lower: Floats, upper: Floats) -> None:
        """Add m rows with coefficients in the columns so far (m, n), and bounds (m,)."""
        ...

    def hold_columns(self, lower: Floats, upper: Floats) -> None:
        """Change the bounds (n,) of the first n columns."""
        ...

    def hold_rows(self, lower: Floats, upper: Floats, first: int = 0) -> None:
        """Change the bounds (m,) of m rows from one on."""
        ...

    def solve(self) -> LinearSolution | None:
        """Solve; returns None where the solver finds no optimum."""
        ...


def linear_program(solver: Literal["glop", "dual", "highs"]) -> LinearProgram:
    """An empty program for a solver."""
    return _Highs() if solver == "highs" else _Glop(_DUAL if solver == "dual" else "")


_DUAL = "use_dual_simplex: true use_preprocessing: false use_scaling: false"
"""Without preprocessing the last basis fits the next program."""


class _Glop:
    def __init__(self, parameters: str) -> None:
        from ortools.linear_solver import linear_solver_pb2, pywraplp

        self._response = linear_solver_pb2.MPSolutionResponse
        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        self._solver.SetSolverSpecificParametersAsString(parameters)
        self._columns: list[pywraplp.Variable] = []
        self._rows: list[pywraplp.Constraint] = []

    def add_columns(self, cost: Floats, lower: Floats, upper: Floats, coefficients: Floats) -> None:
        objective = self._solver.Objective()
        for price, low, high in zip(cost.tolist(), lower.tolist(), upper.tolist(), strict=True):
            self._columns.append(self._solver.NumVar(low, high, ""))
            objective.SetCoefficient(self._columns[-1], price)
        new = self._columns[len(self._columns) - len(cost) :]
        for row, entries in zip(self._rows, coefficients.tolist(), strict=True):
            for column, value in zip(new, entries, strict=True):
                row.SetCoefficient(column, value)

    def add_rows(self, coefficients: "Floats | csr_matrix", lower: Floats, upper: Floats) -> None:
        for entries, low, high in zip(coefficients, lower.tolist(), upper.tolist(), strict=True):
            self._rows.append(self._solver.Constraint(low, high))
            used = np.flatnonzero(entries)
            for column, value in zip(used.tolist(), entries[used].tolist(), strict=True):
                self._rows[-1].SetCoefficient(self._columns[column], value)

    def hold_columns(self, lower: Floats, upper: Floats) -> None:
        for column, low, high in zip(self._columns, lower.tolist(), upper.tolist(), strict=False):
            column.SetBounds(low, high)

    def hold_rows(self, lower: Floats, upper: Floats, first: int = 0) -> None:
        for row, low, high in zip(self._rows[first:], lower.tolist(), upper.tolist(), strict=False):
            row.SetBounds(low, high)

    def solve(self) -> LinearSolution | None:
        if self._solver.Solve() != self._solver.OPTIMAL:
            return None
        # All at once: to ask for each column and row takes as long as the solution.
        found = self._response()
        self._solver.FillSolutionResponseProto(found)
        return LinearSolution(found.objective_value, np.array(found.variable_value), np.array(found.dual_value))


class _Highs:
    def __init__(self) -> None:
        from scipy.sparse import csr_matrix

        self._cost, self._lower, self._upper = np.zeros(0), np.zeros(0), np.zeros(0)
        self._least, self._most = np.zeros(0), np.zeros(0)
        self._matrix = csr_matrix((0, 0))

    def add_columns(self, cost: Floats, lower: Floats, upper: Floats, coefficients: Floats) -> None:
        self._cost = np.concatenate([self._cost, cost])
        self._lower, self._upper = np.concatenate([self._lower, lower]), np.concatenate([self._upper, upper])
        from scipy.sparse import csr_matrix, hstack

        self._matrix = hstack([self._matrix, csr_matrix(coefficients)], format="csr")

    def add_rows(self, coefficients: "Floats | csr_matrix", lower: Floats, upper: Floats) -> None:
        self._least, self._most = np.concatenate([self._least, lower]), np.concatenate([self._most, upper])
        from scipy.sparse import csr_matrix, vstack

        self._matrix = vstack([self._matrix, csr_matrix(coefficients)], format="csr")

    def hold_columns(self, lower: Floats, upper: Floats) -> None:
        self._lower[: len(lower)], self._upper[: len(upper)] = lower, upper

    def hold_rows(self, lower: Floats, upper: Floats, first: int = 0) -> None:
        held = slice(first, first + len(lower))
        self._least[held], self._most[held] = lower, upper

    def solve(self) -> LinearSolution | None:
        from scipy.optimize import linprog
        from scipy.sparse import vstack

        equal = self._least == self._most
        below, above = ~equal & np.isfinite(self._most), ~equal & np.isfinite(self._least)
        answer = linprog(
            self._cost,
            A_ub=vstack([self._matrix[below], -self._matrix[above]], format="csr"),
            b_ub=np.concatenate([self._most[below], -self._least[above]]),
            A_eq=self._matrix[equal],
            b_eq=self._most[equal],
            bounds=np.column_stack([self._lower, self._upper]),
            method="highs",
        )
        if not answer.success:
            return None
        duals = np.zeros(len(equal))
        held = answer.ineqlin.marginals
        duals[equal], duals[below] = answer.eqlin.marginals, held[: below.sum()]
        duals[above] -= held[below.sum() :]
        return LinearSolution(float(answer.fun), np.asarray(answer.x), duals)
