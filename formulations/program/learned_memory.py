r"""
The learned memory predictor as a constraint on the choice of a candidate, tabulated or embedded.

Data
    Options of even stages and one recompute each; scaled features of each, (C, F); a network
    (``taut.formulations.program.relu``) whose output :math:`y_c` is the natural logarithm of the bytes on the fullest
    device; K, KiB of a device less the margin.

Constraint
    (1) :math:`k_c = \lceil \exp(y_c) / 1024 \rceil \le K` for the chosen candidate c.

It takes the place of the memory rows that ``taut.formulations.program.rows`` (4) has for every stage, because the
network predicts one number for a whole pipeline of even stages and nothing for a stage. Two programs state it.

- Tabulated: the network is evaluated at every candidate beforehand, and

  (2) :math:`\sum_c k_c u_c \le K`, with :math:`u_c = 0` wherever :math:`k_c > K`, so that no tolerance of a solver can
      let c in.

- Embedded: the network's layers are columns and rows (``taut.formulations.program.relu_rows``) with the limit
  :math:`\log 1024 K` on the output, and no candidate is evaluated. The rows take in all that (1) takes in, and perhaps
  candidates beyond K by no more than a stated tolerance of y. Whoever solves it asks the network itself about the
  choice, forbids one that is beyond K and solves again: the rows relax (1), so that the first choice that keeps (1) is
  an optimum of both programs, and where the rows have no solution neither has (1).
  ``taut.solver.program.learned_memory`` does so.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.data.units import KIB, MOST_BYTES
from taut.errors import FormulationError
from taut.formulations.program.program import Option, Row, StrategyProgram
from taut.formulations.program.relu import BITS, ReluNetwork, integer_network
from taut.formulations.program.relu_rows import embedded_columns

LOGARITHM = 1e-12
"""More than a logarithm and an exponential err together, at the size that logarithms of bytes have."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictedMemory:
    """A network, the scaled features (C, F) of every option, and the KiB K that its prediction may reach."""

    network: ReluNetwork
    features: Floats
    budget_kib: int

    @property
    def limit(self) -> float:
        """What the network's output does not exceed wherever (1) holds."""
        return float(np.log(self.budget_kib * KIB)) + LOGARITHM

    def kib(self) -> Ints:
        """KiB of every candidate, (C,)."""
        return _kib(self.network.evaluate(self.features))

    def admits(self, candidate: int) -> bool:
        """Whether a candidate keeps (1); the network is evaluated at this candidate alone."""
        return bool(_kib(self.network.evaluate(self.features[candidate])) <= self.budget_kib)


def even_option(option: Option, recompute: str) -> Option:
    """
    The option with even stages and one recompute alone, and without its own account of memory.

    Raises ``FormulationError`` if the stages do not divide the layers.
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

    ``program``: a program over options of even stages; ``memory``: what bounds it; features in the order of the
    program's options. Raises ``FormulationError`` if there are not as many rows of features as options, or the budget
    is no device's.
    """
    _check(program, memory)
    need = memory.kib()
    beyond = np.flatnonzero(need > memory.budget_kib)
    row = Row(np.arange(len(need)), need, None, memory.budget_kib)
    return forbidden(replace(program, rows=(*program.rows, row)), beyond)


def embedded(program: StrategyProgram, memory: PredictedMemory, bits: int = BITS) -> StrategyProgram:
    """
    The program with the network's own columns and rows, which relax (1).

    ``program``, ``memory``: as for ``tabulated``; ``bits``: binary digits behind the point of the network's numbers.
    Raises ``FormulationError``: as for ``tabulated``, or if the network cannot be stated in integers.
    """
    _check(program, memory)
    network = integer_network(memory.network, memory.features, bits)
    columns = embedded_columns(network, len(program.upper), network.limit(memory.limit))
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


def _kib(logarithm: Floats) -> Ints:
    """KiB from the logarithm of bytes; far from its samples a network may say anything, but no device has more."""
    count = np.exp(np.minimum(logarithm, np.log(2 * MOST_BYTES)))
    return np.asarray(np.ceil(np.minimum(count, MOST_BYTES) / KIB), dtype=np.int64)


def _check(program: StrategyProgram, memory: PredictedMemory) -> None:
    if len(memory.features) != len(program.options):
        count = f"{len(memory.features)} rows of features for {len(program.options)} options"
        raise FormulationError(f"predicted memory: {count}, expected one each")
    if not 0 < memory.budget_kib < MOST_BYTES // KIB:
        raise FormulationError(
            f"predicted memory: budget {memory.budget_kib} KiB, expected above 0 and below {MOST_BYTES // KIB}"
        )
