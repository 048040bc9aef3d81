"""The order of a plan's passes, as the CSV of ``torch.distributed.pipelining`` (``taut.schedules.torch_csv``)."""

import numpy as np

from taut.exports.job import Job
from taut.formulations.simulation.order import passes_of
from taut.schedules.torch_csv import orders_csv
from taut.solver.certificate.document import strategy_of


def schedule_csv(job: Job) -> str:
    """
    The passes of every pipeline rank, a row each; chunks are numbered as a micro-batch visits them.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=8, fix={"pp": 2, "tp": 1, "micro_batch": 1})
    >>> print(schedule_csv(Job(plan)).split()[1])
    1F0,1B0,1F1,1B1
    """
    order = passes_of(strategy_of(job.strategy, job.plan.source).candidate)
    return orders_csv(np.split(order.passes, order.first[1:-1]))
