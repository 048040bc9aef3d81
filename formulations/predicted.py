r"""
The learned memory predictor as a constraint on the choice of a candidate, tabulated or embedded.

Data
    Options of even stages and one recompute each; scaled features of each, (C, F); a network
    (``taut.formulations.relu``) whose output is GiB on the worst device; K, KiB of a device less the margin.

Constraint
    (1) :math:`k_c \le K` for the chosen candidate, :math:`k_c` being the network's GiB at c in KiB, rounded up.

It takes the place of the memory rows that ``taut.formulations.strategy_rows`` (4) has for every stage, because the
network predicts one number for a whole pipeline of even stages and nothing for a stage. Two programs state it.

- Tabulated: the network is evaluated at every candidate beforehand, and

  (2) :math:`\sum_c k_c u_c \le K`, with :math:`u_c = 0` wherever :math:`k_c > K`, so that no tolerance of a solver can
      let c in.

- Embedded: the network's layers are columns and rows (``taut.formulations.relu_rows``), and no candidate is evaluated.
  The rows take in all that (1) takes in, and perhaps candidates beyond K by no more than a stated tolerance. Whoever
  solves it asks the network itself about the choice, forbids one that is beyond K and solves again: the rows relax
  (1), so that the first choice that keeps (1) is an optimum of both programs, and where the rows have no solution
  neither has (1). ``taut.solver.predicted`` does so.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from taut.data.costs import RECOMPUTE
from taut.data.units import GIB, KIB
from taut.errors import FormulationError
from taut.formulations.relu import BITS, ReluNetwork, integer_network
from taut.formulations.relu_rows import embedded_columns
from taut.formulations.strategy import Option, Row, StrategyProgram

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_KIB = 2**52
"""Larger predictions are no memory, and would not fit an integer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictedMemory:
    """A network, the scaled features (C, F) of every option, and the KiB K that its prediction may reach."""

    network: ReluNetwork
    features: Floats
    budget_kib: int

    def kib(self) -> Ints:
        """KiB of every candidate, (C,)."""
        return _kib(self.network.evaluate(self.features))

    def admits(self, candidate: int) -> bool:
        """Whether a candidate keeps (1); the network is evaluated at this candidate alone."""
        return bool(_kib(self.network.evaluate(self.features[candidate])) <= self.budget_kib)


def even_option(option: Option, recompute: str) -> Option:
    """
    The option with even stages and one recompute alone, and without its own account of memory.

    Raises
    ------
    FormulationError
        If the stages do not divide the layers.
    """
    problem = option.partition
    size, odd = divmod(problem.num_layers, problem.pp)
    if odd:
        raise FormulationError(f"even stages: {problem.pp} stages do not divide {problem.num_layers} layers")
    ends = size * np.arange(problem.pp + 1)
    kept = np.zeros(problem.fixed.shape, dtype=np.bool_)
    kept[RECOMPUTE.index(recompute), ends[:-1], ends[1:]] = True
    low, high = (np.where(kept, seconds, np.inf) for seconds in (problem.low, problem.high))
    nothing = np.zeros_like(problem.fixed)
    return option._replace(partition=replace(problem, low=low, high=high, fixed=nothing, activation=nothing))


def tabulated(program: StrategyProgram, memory: PredictedMemory) -> StrategyProgram:
    """
    The program with (2).

    Parameters
    ----------
    program
        A program over options of even stages.
    memory
        What bounds it; features in the order of the program's options.

    Raises
    ------
    FormulationError
        If there are not as many rows of features as options.
    """
    _check(program, memory)
    need = memory.kib()
    beyond = np.flatnonzero(need > memory.budget_kib)
    row = Row(np.arange(len(need)), need, None, memory.budget_kib)
    return forbidden(replace(program, rows=(*program.rows, row)), beyond)


def embedded(program: StrategyProgram, memory: PredictedMemory, bits: int = BITS) -> StrategyProgram:
    """
    The program with the network's own columns and rows, which relax (1).

    Parameters
    ----------
    program, memory
        As for ``tabulated``.
    bits
        Binary digits behind the point of the network's numbers.

    Raises
    ------
    FormulationError
        If there are not as many rows of features as options, or the network cannot be stated in integers.
    """
    _check(program, memory)
    network = integer_network(memory.network, memory.features, bits)
    limit = network.limit(memory.budget_kib * KIB / GIB)
    columns = embedded_columns(network, len(program.upper), limit)
    return replace(
        program,
        objective=np.append(program.objective, np.zeros_like(columns.upper)),
        upper=np.append(program.upper, columns.upper),
        binary=np.append(program.binary, columns.binary),
        rows=(*program.rows, *columns.rows),
    )


def forbidden(program: StrategyProgram, candidates: Iterable[int]) -> StrategyProgram:
    """The program without some of its candidates."""
    upper = program.upper.copy()
    upper[list(candidates)] = 0
    return replace(program, upper=upper)


def _kib(gib: Floats) -> Ints:
    return np.ceil(np.clip(gib * (GIB // KIB), -MOST_KIB, MOST_KIB)).astype(np.int64)


def _check(program: StrategyProgram, memory: PredictedMemory) -> None:
    if len(memory.features) != len(program.options):
        count = f"{len(memory.features)} rows of features for {len(program.options)} options"
        raise FormulationError(f"predicted memory: {count}, expected one each")
