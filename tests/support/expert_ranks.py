"""Random small problems whose experts may lie on ranks of their own."""

from dataclasses import replace

import numpy as np

from taut.data.calibration import TERMS, Calibration
from taut.data.costs import CostRow, Module
from taut.data.layers.experts import DISPATCHERS, ROUTER_FORMATS, DispatchSpec
from taut.data.stack import SCHEDULES
from taut.formulations.problem import PlanningProblem
from tests.support.instances import random_problem

DEGREES = (2, 4, 8)
SECONDS = ("forward_s", "input_grad_s", "weight_grad_s")
MODULES: list[list[Module]] = [[], ["moe"], ["shared_experts", "mlp"], ["core_attn", "moe"], ["moe_act"]]
"""What selective recompute is of, in turn."""
ROUTERS = (*ROUTER_FORMATS, None)
"""Formats of the router's scores, in turn."""
MOST_DEVICES = 4
"""Devices up to which orders of passes are enumerated: each placement runs its order."""


def with_expert_ranks(seed: int, *, orders: bool = True) -> PlanningProblem:
    """
    A random problem with experts, of every number of ranks; in turn measured, large, with contexts, orders, overlap.

    Layers with experts take a random share of the time and keep a random share of the bytes at each number of ranks.
    """
    given = random_problem(seed, measured=seed % 5 == 0, large=seed % 7 == 0, experts=True)
    rng, rows = np.random.default_rng((seed, 7)), list(given.costs.rows)
    rows += [more for row in rows if _routed(given, row) for more in _apart(row, rng)]
    space = given.space.model_copy(
        update={
            **{"max_ep": 8, "zero": [[0, 1], [1], [0]][seed % 3], "sequence_parallel": [False, True]},
            "recompute_modules": MODULES[seed % len(MODULES)],
            "dispatch": _dispatch(seed),
        }
    )
    if orders and seed % 3 == 0 and given.cluster.num_devices <= MOST_DEVICES:
        space = space.model_copy(update={"schedules": list(SCHEDULES), "max_vpp": 2})
    costs = given.costs.model_copy(update={"rows": rows})
    return replace(given, costs=costs, space=space, latency_model="step", overlap_grad_reduce=seed % 2 == 0)


def _dispatch(seed: int) -> DispatchSpec:
    """Every dispatcher in turn, beside formats, imbalance and overlap where it has them."""
    imbalance = 1.0 + seed % 4 / 4
    if seed % 8 in (3, 6):
        return DispatchSpec(dispatcher="allgather", imbalance=imbalance, router_dtype=ROUTERS[seed // 8 % 3])
    return DispatchSpec(dispatcher=DISPATCHERS[seed % 2], fp8=seed % 3 == 1, imbalance=imbalance, overlap=seed % 4 < 2)


def with_expert_shards(seed: int, *, orders: bool = True) -> PlanningProblem:
    """
    The same with ZeRO-2 and 3 alone and no hidden exchange; layers take a hundredth to a hundredfold as long.

    Two of three slow kernels beside gathers.
    """
    given, factor = with_expert_ranks(seed, orders=orders), float(10 ** np.random.default_rng((seed, 8)).uniform(-2, 2))
    rows = [row.model_copy(update={name: factor * getattr(row, name) for name in SECONDS}) for row in given.costs.rows]
    dispatch = given.space.dispatch.model_copy(update={"overlap": False})
    named = {"expert_zero": [2, 3] if seed % 4 == 1 else None, "expert_tensor": seed % 5 != 1}
    space = given.space.model_copy(update={"zero": [[2, 3], [2], [3]][seed % 3], "dispatch": dispatch, **named})
    known = given.calibration or Calibration(name="stated", coefficients={t: float(t != "constant") for t in TERMS})
    slowed = known.model_copy(update={"gather_slowdown": 0.2 * (seed % 3)})
    return replace(given, costs=given.costs.model_copy(update={"rows": rows}), space=space, calibration=slowed)


def with_expert_copies(seed: int, *, orders: bool = True, large: bool = False) -> PlanningProblem:
    """The same with two, three or four replicas to a copy, within nodes and over them, on eight devices if large."""
    given = with_expert_shards(7 * seed if large else seed, orders=orders)
    return replace(given, space=given.space.model_copy(update={"fixed": {"dp_shard": (2, 4, 2, 3)[seed % 4]}}))


def with_copies_of_states(seed: int, *, orders: bool = True, large: bool = False) -> PlanningProblem:
    """A random problem with experts under ZeRO-1, of several copies of optimizer states; reductions overlap or not."""
    given = with_expert_ranks(7 * seed if large else seed, orders=orders)
    rng = np.random.default_rng((seed, 9))
    factor = float(10 ** rng.uniform(-2, 2))
    rows = [row.model_copy(update={name: factor * getattr(row, name) for name in SECONDS}) for row in given.costs.rows]
    fixed: dict[str, int | str | bool] = {"zero": 1, "dp_shard": (2, 4, 2, 3)[seed % 4]}
    space = given.space.model_copy(update={"zero": [0, 1], "fixed": fixed})
    overlap = bool(rng.integers(2))
    return replace(given, costs=given.costs.model_copy(update={"rows": rows}), space=space, overlap_grad_reduce=overlap)


def with_hidden_exchanges(seed: int) -> PlanningProblem:
    """The same under interleaved 1F1B, exchanges behind another micro-batch where layers with experts are alike."""
    given = with_expert_ranks(seed)
    schedules = ["interleaved-1f1b"] if given.cluster.num_devices <= MOST_DEVICES else ["1f1b"]
    dispatch = given.space.dispatch.model_copy(update={"dispatcher": DISPATCHERS[seed % 2], "overlap": True})
    update = {"dispatch": dispatch, "schedules": schedules, "max_vpp": 2}
    return replace(given, space=given.space.model_copy(update=update))


def _routed(given: PlanningProblem, row: CostRow) -> bool:
    return any(layer.kind == row.kind and layer.experts for layer in given.model.blocks)


def _apart(row: CostRow, rng: np.random.Generator) -> list[CostRow]:
    """A row at several expert ranks, of one tensor rank and of all."""
    found = []
    for ep in DEGREES:
        for etp in sorted({1, row.tp}):
            share = float(rng.uniform(0.5, 1.2))
            timed = {name: share * getattr(row, name) for name in SECONDS}
            kept = {name: int(share * getattr(row, name)) for name in ("activation_bytes", "activation_bytes_sp")}
            found.append(row.model_copy(update={"ep": ep, "etp": etp, **timed, **kept}))
    return found
