r"""
RLinf's placement of the parts of reinforcement learning (RLinf/RLinf, revision a3816b5), with the costs of its tests.

Rollout, inference and training either share all N GPUs, one after another, or have GPUs of their own and run as a
pipeline over the B batches of an iteration. With :math:`c_i(n)` seconds of part i for a batch on n GPUs, by RLinf's own
profile of the part, an iteration takes

(1) :math:`B \sum_i c_i(N)`, or :math:`\sum_i c_i(n_i) + (B - 1) \max_i c_i(n_i)` where :math:`\sum_i n_i = N`.

RLinf divides the parts in two again and again and keeps the best of each half alone. Here all :math:`n_i` are
enumerated, so the least of (1) is the optimum and its own bound.
"""

import json
from itertools import product

from benchmarks.peers.frame import Checkout, PeerRow, run, timed

COSTS = [59.9, 30.8, 95.7]
CASES = (
    (
        "its unit test",
        {"gpus": 128, "batches": 512, "running": 128, "costs": [224.0, 10.0, 101.0]},
    ),
    ("its example of Qwen2.5 1.5B", {"gpus": 8, "batches": 128, "running": 64, "costs": COSTS}),
    ("the example on 64 GPUs", {"gpus": 64, "batches": 128, "running": 64, "costs": COSTS}),
)
"""GPUs, batches of 16 answers, requests at once, seconds of the parts on all GPUs; training has tensor degree 2."""
PARTS = ("rollout", "inference", "actor")
PROGRAM = """
import json, sys, time
from types import SimpleNamespace as Names
from unittest.mock import MagicMock
for name in ("hydra", "rlinf", "rlinf.scheduler", "rlinf.utils", "rlinf.utils.placement"):
    sys.modules[name] = MagicMock()
sys.path.insert(0, ".")
given = json.loads(sys.argv[1])
from util import init_global_config
from auto_placement_worker import AutoPlacementWorker
gpus, parts = given["gpus"], ("rollout", "inference", "actor")
costs = {f"{part}_cost": cost for part, cost in zip(parts, given["costs"])}
config = Names(
    runner=Names(task_type="reasoning", seq_length=28672),
    algorithm=Names(group_size=16, n_minibatches=4, recompute_logprobs=True),
    data=Names(rollout_batch_size=given["batches"]), profile_data=Names(**costs),
    rollout=Names(max_running_requests=given["running"], gpu_memory_utilization=0.55),
)
sizes = {f"{part}_world_size": gpus for part in parts}
sizes |= {f"{part}_dp_size": gpus // (1 if part == "rollout" else 2) for part in parts}
init_global_config(config, Names(_cluster_num_gpus=gpus, _components=list(parts), **sizes), None)
graph = {"rollout": ["inference"], "inference": ["actor"], "actor": []}
begun = time.process_time()
worker = AutoPlacementWorker(config, None, graph)
found = worker.run()
wall = time.process_time() - begun
profile = {part: [worker.get_node(part).profile(n) for n in range(1, gpus + 1)] for part in parts}
placed = {node.role: len(where) for node, where in found.placement.items()}
print(json.dumps({"mode": found.mode.value, "placed": placed, "s": found.total_cost, "cpu": wall, "profile": profile}))
"""


def rows(given: Checkout) -> list[PeerRow]:
    """A row for each input."""
    return [_row(given, *case) for case in CASES if given.case in case[0]]


def _row(given: Checkout, name: str, case: dict[str, object]) -> PeerRow:
    folder = given.under("toolkits", "auto_placement")
    out, _ = run([given.python, "-c", PROGRAM, json.dumps(case)], within=folder)
    answer = json.loads(out.splitlines()[-1])
    profile = [answer["profile"][part] for part in PARTS]
    batches, gpus = int(str(case["batches"])), int(str(case["gpus"]))
    (best, words), ours = timed(lambda: least(profile, gpus, batches))
    placed = [answer["placed"][part] for part in PARTS]
    shared = answer["mode"] == "collocated"
    return PeerRow(
        case=f"{name}: {gpus} GPUs",
        theirs=_words(None if shared else placed),
        predicted_s=answer["s"],
        their_cpu_s=answer["cpu"],
        priced_s=iteration(profile, None if shared else placed, gpus, batches),
        ours=words,
        best_s=best,
        bound_s=best,
        our_cpu_s=ours,
    )


def iteration(profile: list[list[float | None]], placed: list[int] | None, gpus: int, batches: int) -> float | None:
    """Seconds of an iteration, (1); ``placed`` is None where the parts share all GPUs; None where a part cannot run."""
    costs = [part[(gpus if placed is None else placed[k]) - 1] for k, part in enumerate(profile)]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return None
    return batches * sum(known) if placed is None else sum(known) + (batches - 1) * max(known)


def least(profile: list[list[float | None]], gpus: int, batches: int) -> tuple[float, str]:
    """The least of (1) over all placements, and the placement in words."""
    first = [n for n in range(1, gpus + 1) if profile[0][n - 1] is not None]
    second = [n for n in range(1, gpus + 1) if profile[1][n - 1] is not None]
    apart = ([a, b, gpus - a - b] for a, b in product(first, second) if a + b < gpus)
    found = [(iteration(profile, placed, gpus, batches), _words(placed)) for placed in [None, *apart]]
    return min((seconds, words) for seconds, words in found if seconds is not None)


def _words(placed: list[int] | None) -> str:
    return "all share" if placed is None else ", ".join(f"{part} {n}" for part, n in zip(PARTS, placed, strict=True))
