"""
PyTorch's pipelining: the order of all passes as CSV, a row for each pipeline rank.

A word such as ``2F5`` is the forward pass of micro-batch 5 through chunk 2; ``B`` is a whole backward pass, ``I`` the
gradient by the input and ``W`` by the weights. ``_PipelineScheduleRuntime._load_csv`` reads such a file in the format
``compute_only`` and adds the messages. Source: torch/distributed/pipelining/schedules.py.
"""

import csv
import re
from io import StringIO

import numpy as np

from taut.data.arrays import Ints
from taut.errors import DataError
from taut.exports.job import Job
from taut.formulations.schedules.recurrence import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.simulation.order import passes_of
from taut.solver.certificate.document import strategy_of

LETTERS = {FORWARD: "F", INPUT_GRADIENT: "I", WEIGHT_GRADIENT: "W", BACKWARD: "B"}
WORD = re.compile(r"(\d+)([FIWB])(\d+)")


def schedule_csv(job: Job) -> str:
    """
    The order of the passes of every pipeline rank.

    Parameters
    ----------
    job
        What is launched.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=8, fix={"pp": 2, "tp": 1, "micro_batch": 1})
    >>> print(schedule_csv(Job(plan)).split()[1])
    1F0,1B0,1F1,1B1
    """
    order = passes_of(strategy_of(job.strategy, job.plan.source).candidate)
    rows = [order.passes[first:end].tolist() for first, end in zip(order.first[:-1], order.first[1:], strict=True)]
    text = StringIO()
    words = [[f"{chunk}{LETTERS[kind]}{micro_batch}" for kind, chunk, micro_batch in row] for row in rows]
    csv.writer(text, lineterminator="\n").writerows(words)
    return text.getvalue()


def passes_of_csv(text: str) -> list[Ints]:
    """
    Passes (kind, chunk, micro-batch) of every pipeline rank of a schedule as CSV.

    Raises
    ------
    DataError
        If a word is no pass.
    """
    kinds, ranks = {letter: kind for kind, letter in LETTERS.items()}, []
    for number, row in enumerate(csv.reader(StringIO(text))):
        found = [WORD.fullmatch(word) for word in row]
        if None in found:
            raise DataError(f"schedule, row {number + 1}: {row[found.index(None)]!r}, expected a pass such as 2F5")
        ranks.append(np.array([(kinds[match[2]], int(match[1]), int(match[3])) for match in found if match]))
    return ranks
