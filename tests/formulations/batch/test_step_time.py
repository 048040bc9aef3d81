"""The closed form equals the evaluator, term by term weighed, and its memory the memory model."""

import numpy as np
import pytest

from taut.data.analytic.device_rates import rates_of
from taut.data.analytic.layer_costs import analytic_costs
from taut.data.calibration import TERMS, Calibration
from taut.data.cluster import ClusterSpec
from taut.data.device import DeviceSpec, Precision
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.formulations.batch.configurations import Configurations
from taut.formulations.batch.memory import memory_bytes as closed_memory
from taut.formulations.batch.step_time import Machine, step_terms
from taut.formulations.latency import memory_bytes, step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate, StrategySpace
from taut.formulations.strategy import Division, Strategy

RATES: dict[Precision, float] = {"bf16": 312, "fp8": 624, "mxfp8": 624, "nvfp4": 1248}
DEVICE = DeviceSpec(name="d", memory_gib=80, peak_tflops=RATES, memory_bandwidth_gbytes=2000)


def random_case(
    seed: int, precision: Precision = "bf16"
) -> tuple[PlanningProblem, Strategy, Configurations, Calibration]:
    """A random even configuration on a random cluster of equal nodes, in both forms."""
    rng = np.random.default_rng(seed)
    tp, pp, dp = (int(2 ** rng.integers(0, 4)) for _ in range(3))
    gpus = int(rng.choice([4, 8]))
    devices = max(tp * pp * dp, gpus)
    dp = devices // tp // pp
    layers, heads = int(pp * rng.integers(1, 4)), 16
    kv_heads, gated = int(rng.choice([4, 16])), bool(rng.random() < 0.5)
    batch, m = int(2 ** rng.integers(0, 3)), int(rng.integers(1, 3 * pp + 1))
    shape = {"hidden": 1024, "heads": heads, "kv_heads": kv_heads, "ffn_hidden": 4096, "seq": 512, "vocab": 1000}
    model = ModelSpec.parse({"name": "m", "layers": layers, **shape, "gated_mlp": gated}, "m")
    group = {
        "count": devices // gpus,
        "device": DEVICE,
        "gpus_per_node": gpus,
        "intra_bandwidth_gbps": 2400,
        "intra_latency_us": 3,
        "nic_bandwidth_gbps": 400,
    }
    network = {"bandwidth_gbps": 200, "latency_us": 5}
    cluster = ClusterSpec.parse({"name": "c", "nodes": [group], "network": network}, "c")
    coefficients = dict(zip(TERMS, rng.uniform(0.1, 3, len(TERMS)).tolist(), strict=True))
    calibration = Calibration(name="random", coefficients=coefficients)
    costs = analytic_costs(
        model, [DEVICE], precision=precision, tensor_degrees=[tp], micro_batches=[batch], calibration=calibration
    )
    space = StrategySpace(global_batch=dp * batch * m, max_tp=16)
    problem = PlanningProblem(model, cluster, costs, MemoryModel(precision=precision), space, "pipette", calibration)
    schedule = "gpipe" if pp > 1 and rng.random() < 0.3 else "1f1b"
    zero, sharded = int(rng.integers(0, 4)), bool(tp > 1 and rng.random() < 0.5)
    candidate = Candidate(pp, tp, dp, 1, batch, m, schedule, zero, sharded)
    ends = [layers // pp * (x + 1) for x in range(pp)]
    recompute = int(rng.integers(0, 3))
    strategy = Strategy(
        candidate=candidate,
        division=Division.of_ends(np.array(ends), np.full(pp, recompute)),
    )
    values = {
        **{key: value for key, value in shape.items()},
        **{"layers": layers, "gated": int(gated), "tp": tp, "pp": pp, "dp": dp, "cp": 1, "vpp": 1},
        "micro_batch": batch,
        **{"num_micro_batches": m, "gpipe": int(schedule == "gpipe"), "recompute": recompute, "zero": zero},
        "sequence_parallel": int(sharded),
    }
    columns = Configurations(**{name: np.array([value], dtype=np.int64) for name, value in values.items()})
    return problem, strategy, columns, calibration


def machine(problem: PlanningProblem) -> Machine:
    links = problem.links
    return Machine(
        gpus_per_node=int(links.gpus_per_node[0]),
        rates=rates_of(DEVICE, problem.memory.precision, None),
        inside_rate=300e9,
        inside_latency=3e-6,
        between_rate=25e9,
        between_latency=5e-6,
        cards=50e9,
    )


@pytest.mark.parametrize("block", range(6))
def test_closed_form_equals_the_evaluator(block: int) -> None:
    """Terms times coefficients are the evaluator's step time of the same configuration in Megatron's order."""
    for seed in range(block * 50, block * 50 + 50):
        problem, strategy, columns, calibration = random_case(seed)
        candidate = strategy.candidate
        devices = np.arange(problem.cluster.num_devices).reshape(candidate.pp, candidate.dp, candidate.tp)
        wanted = float(step_time(problem, strategy, devices).total)
        terms = step_terms(columns, machine(problem), problem.memory.parameter_bytes)[0]
        found = float(terms @ np.array([calibration[term] for term in TERMS]))
        assert found == pytest.approx(wanted, rel=1e-9), (seed, candidate)


@pytest.mark.parametrize("block", range(3))
def test_closed_memory_equals_the_memory_model(block: int) -> None:
    """The fullest stage needs what the memory model says."""
    for seed in range(block * 50, block * 50 + 50):
        problem, strategy, columns, _ = random_case(seed)
        wanted = max(memory_bytes(problem, strategy))
        memory = problem.memory
        found = int(closed_memory(columns, machine(problem).rates, memory)[0])
        assert found == wanted, (seed, strategy.candidate)


@pytest.mark.parametrize("precision", ["fp8", "mxfp8", "nvfp4"])
def test_closed_forms_agree_in_narrow_formats(precision: Precision) -> None:
    """Seconds and bytes of recipes for narrower products, too, are the evaluator's and the memory model's."""
    for seed in range(1000, 1030):
        problem, strategy, columns, calibration = random_case(seed, precision)
        candidate, rates = strategy.candidate, machine(problem)
        devices = np.arange(problem.cluster.num_devices).reshape(candidate.pp, candidate.dp, candidate.tp)
        terms = step_terms(columns, rates, problem.memory.parameter_bytes)[0]
        found = float(terms @ np.array([calibration[term] for term in TERMS]))
        assert found == pytest.approx(float(step_time(problem, strategy, devices).total), rel=1e-9), (seed, candidate)
        bytes_found = int(closed_memory(columns, rates.rates, problem.memory)[0])
        assert bytes_found == max(memory_bytes(problem, strategy)), (seed, candidate)
