"""
Aceso's search (microsoft/SuperScaler, revision fa80ad0) with its operator profiles of V100, in a setting of its paper.

Its formula is written again in ``taut.papers.aceso``: the plan that its search writes is priced by both, and the
optimum of the formula is bounded. Its search runs a process for each number of stages.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.frame import Checkout, PeerRow, run, timed
from taut.data.units import MIB
from taut.papers.aceso.formula import AcesoProblem, AcesoStage, price
from taut.papers.aceso.operators import read_operator_profile
from taut.papers.aceso.search import AcesoResult, best_plan

SETTINGS = (("1_3B", 24, 4, 1024, 28000),)
"""Size, layers, GPUs of a node, global batch, MiB of a device."""
SLACK = 1e-9


def rows(given: Checkout) -> list[PeerRow]:
    """A row for each setting."""
    return [_row(given, *setting) for setting in SETTINGS if given.case in setting[0]]


def _row(given: Checkout, size: str, layers: int, gpus: int, batch: int, memory: int) -> PeerRow:
    profiles = given.under("profiler", "profiled-time-eurosys")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "trends").mkdir()
        (folder / "top_configs").mkdir()
        (folder / "csv").mkdir()
        words = f"--model-name gpt --model-size {size} --global-batch-size {batch} --micro-batch-size 1 2 4 8".split()
        words += f"--num-nodes 1 --num-gpus-per-node {gpus} --memory-limit {memory} --max-num-hops 7".split()
        words += f"--initial-point balance --time-budget-total {given.seconds} --config-suffix run".split()
        words += [
            "--log-path",
            f"{folder}/",
            "--config-save-path",
            f"{folder}/",
            "--profiled-time-path",
            f"{profiles}/",
        ]
        out, theirs = run([given.python, "aceso_search.py", *words], within=given.under("search"))
        (path,) = (folder / "top_configs").glob("*.json")
        choice = json.loads(path.read_text(encoding="utf-8"))
    problem = AcesoProblem(
        profile=read_operator_profile(profiles, size), layers=layers, gpus=gpus, gpus_per_node=gpus,
        global_batch=batch, memory_limit=memory * MIB,
    )  # fmt: skip
    stages, flags = _stages(choice)
    priced = price(problem, int(choice["micro_batch_size"]), stages, flags).step
    found, ours = timed(lambda: best_plan(problem, priced * (1 + SLACK), given.seconds))
    return PeerRow(
        case=f"gpt-{size.replace('_', '.')} on {gpus} V100, batch {batch}",
        theirs=_words(int(choice["micro_batch_size"]), stages),
        predicted_s=float(_figure(out)),
        their_cpu_s=theirs,
        priced_s=priced,
        ours=_answer(found),
        best_s=min(found.seconds, priced),
        bound_s=min(found.lower_bound, priced),
        our_cpu_s=ours,
    )


def _figure(out: str) -> str:
    """Seconds of the first plan in the table that the search prints last."""
    lines = out.splitlines()
    (head,) = (number for number, line in enumerate(lines) if line.startswith("# of stages"))
    return lines[head + 1].split()[1]


def _stages(choice: dict[str, Any]) -> tuple[list[AcesoStage], list[Any]]:
    stages, flags, first = [], [], 0
    degrees = zip(choice["model_parallel_size_of_each_op"], choice["data_parallel_size_of_each_op"], strict=True)
    for (tp, dp), recomputed in zip(degrees, choice["recompute_ops"], strict=True):
        stages.append(AcesoStage(first, first + len(tp), int(tp[0]), int(dp[0])))
        flags.append(np.array(recomputed, dtype=bool))
        first += len(tp)
    return stages, flags


def _answer(found: AcesoResult) -> str:
    return _words(found.micro_batch, found.stages) if found.stages else "the same"


def _words(micro_batch: int, stages: Any) -> str:
    parts = [f"{stage.end - stage.first} (tp {stage.tp} dp {stage.dp})" for stage in stages]
    return f"mb {micro_batch}, operators {', '.join(parts)}"
