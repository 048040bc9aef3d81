"""Warnings where a plan asks the memory model beyond the runs that it was fitted on."""

import warnings

from taut.data.costs import RECOMPUTE
from taut.data.memory import beyond
from taut.errors import ExtrapolationWarning
from taut.formulations.problem import PlanningProblem
from taut.formulations.strategy import Strategy
from taut.formulations.tables.learned_memory import candidate_features


def warn_outside(problem: PlanningProblem, strategy: Strategy) -> None:
    """Warn where the memory model is asked beyond the runs it was fitted on."""
    choice, block = strategy.candidate, problem.model.blocks[0]
    if network := problem.memory.network:
        asked = candidate_features(network.names, problem.model, choice)
        used = sorted({RECOMPUTE.index(recompute) for recompute in strategy.recompute})
        if beyond_network := network.outside(asked[used]):
            words = f"asked beyond the runs it was trained on: {', '.join(beyond_network)}"
            warnings.warn(f"{network.name}: {words}", ExtrapolationWarning, stacklevel=3)
        return
    outside = problem.memory.outside(
        n_gpus=problem.cluster.num_devices,
        hidden=block.hidden,
        layers=len(problem.model.blocks),
        seq=block.seq,
        tp=choice.tp,
        pp=choice.pp,
        dp=choice.dp,
        micro_batch=choice.micro_batch,
        num_micro_batches=choice.num_micro_batches,
    )
    if outside:
        warnings.warn(f"{problem.memory.name}: {beyond(problem.memory, outside)}", ExtrapolationWarning, stacklevel=3)
