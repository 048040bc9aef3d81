"""Options of devices within a limit of time: every division within it has its layers among them."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from taut.data.costs import CostTable
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.model import ModelSpec
from taut.formulations.order_division import ChunkProblem
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.order_priced.device_options import DeviceChain
from taut.solver.order_priced.master_rows import MasterRows, least_makespan
from tests.solver.order_priced.test_capacity import divisions, excess
from tests.support.small import cluster, costs, model, problem

pytestmark = pytest.mark.proof

TOLERANCE = 1 + 1e-9


def with_vocabulary(spec: ModelSpec) -> CostTable:
    """Layers of three seconds, an embedding and a head of a tenth each of their passes."""
    table = costs(spec)
    tenth = {"forward_s": 0.1, "input_grad_s": 0.1, "weight_grad_s": 0.1}
    ends = [row.model_copy(update={"kind": kind, **tenth}) for kind in (EMBEDDING, HEAD) for row in table.rows]
    return table.model_copy(update={"rows": [*table.rows, *ends]})


def limited(kind: str, ends: bool) -> Iterator[tuple[int, ChunkProblem]]:
    """Division problems with more layers than a device can take in little over the optimum, their times at random."""
    chunks = {} if kind.startswith("zb-h") else {"vpp": 2}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        pp, spec = 2 + seed % 2, model(int(rng.integers(6, 9))).model_copy(update={"vocab": 64 * ends})
        fixed = {"pp": pp, "empty_ends": ends, "micro_batch": 1, **chunks}
        given = problem(
            cluster(pp, 1),
            spec,
            table=with_vocabulary(spec),
            latency_model="step",
            global_batch=3 * pp,
            schedules=[kind],
            recompute=["none", "selective"],
            fixed=fixed,
            empty_ends=ends,
        )
        division = chunked(given, given.candidates[0], BestLinks(given.links, given.rings))
        times = rng.uniform(0.5, 1.5, (*division.passes.shape[:2], 1, 1))
        yield seed, replace(division, passes=division.passes * times)


@pytest.mark.parametrize("ends", [False, True], ids=["layers", "ends"])
@pytest.mark.parametrize("kind", ["zb-h1", "zb-v", "v-half", "interleaved-1f1b"])
def test_no_division_within_the_limit_is_lost(kind: str, ends: bool) -> None:
    """Of every division that fits and keeps the limit each device has its layers among its options."""
    checked = fewer = 0
    for seed, given in limited(kind, ends):
        assert given.ends == ends
        fitting = [(least_makespan(given, one), one) for one in divisions(given) if excess(given, one) <= 0]
        for factor in (TOLERANCE, 1.05, 1.3):
            limit = factor * min(seconds for seconds, _ in fitting)
            devices = DeviceChain(given, limit)
            fewer += devices.most_layers <= given.num_layers - given.num_chunks
            known = [set(map(tuple, (options.codes >> options.bits).tolist())) for options in devices.options]
            for one in (one for seconds, one in fitting if seconds * TOLERANCE <= limit):
                for d, layers in enumerate(known):
                    assert tuple(one.layers[given.hosted(d)].tolist()) in layers, (seed, factor, d)
                    checked += 1
    assert checked > 100 and fewer > 2


@pytest.mark.parametrize("kind", ["zb-h1", "v-half"])
def test_the_least_division_is_the_least_of_all_options(kind: str) -> None:
    """Of two devices the least sum of costs of two options with all layers, each the sum of its chunks by the table."""
    rng = np.random.default_rng(0)
    for _, given in list(limited(kind, False))[::2]:
        rows, devices = MasterRows(given, with_memory=False), DeviceChain(given)
        costs = rows.chunk_costs(rng.dirichlet(np.ones(len(rows.paths))), np.zeros(0))
        each = []
        for d, options in enumerate(devices.options):
            hosted = given.hosted(d)
            table = devices.minima.seconds(hosted, costs.passes[hosted])
            assert not costs.loads.any(), "one replica reduces no gradients"
            layers, recompute = options.codes >> options.bits, options.codes & ((1 << options.bits) - 1)
            each.append(table[np.arange(len(hosted)), recompute, layers].sum(axis=1))
        sums = each[0][:, None] + each[1] + costs.edge.sum() * (devices.least_cut if costs.edge.any() else 0.0)
        whole = devices.options[0].whole[:, None] + devices.options[1].whole
        found, division = devices.least_division(costs)
        assert found == pytest.approx(sums[whole == given.num_layers].min(), rel=1e-12)
        assert division is not None and devices.contains(division)
