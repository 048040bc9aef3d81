"""The batch form equals the evaluator, term by term weighed, and its memory the memory model."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.data.analytic.device_rates import rates_of
from taut.data.analytic.layer_costs import analytic_costs
from taut.data.arrays import Ints
from taut.data.calibration import TERMS, Calibration
from taut.data.cluster import ClusterSpec
from taut.data.device import DeviceSpec, Precision
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.stack import SCHEDULES
from taut.formulations.batch.configurations import Configurations
from taut.formulations.batch.memory import memory_bytes as batch_memory
from taut.formulations.batch.step_time import StepForm, step_form
from taut.formulations.batch.unit_seconds import Machine
from taut.formulations.latency import memory_bytes, step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import ORDER_PRICED, SPLIT, chunks_of_device, is_defined
from taut.formulations.space import Candidate, StrategySpace
from taut.formulations.strategy import Strategy, division_of_layers
from tests.support.blocks import blocks

RATES: dict[Precision, float] = {"bf16": 312, "fp8": 624, "mxfp8": 624, "nvfp4": 1248}
DEVICE = DeviceSpec(name="d", memory_gib=80, peak_tflops=RATES, memory_bandwidth_gbytes=2000)


def random_coefficients(rng: np.random.Generator) -> Calibration:
    """Coefficients of every term; rings dear enough that every stage may be the one that is waited for."""
    values = rng.uniform(0.1, 3, len(TERMS)) * np.where(
        np.isin(TERMS, ("data_parallel", "gather")), 10 ** rng.uniform(-2, 2), 1
    )
    slowdown = float(values[0] / 10) if values[0] < values[1] else 0.0
    coefficients = dict(zip(TERMS, values.tolist(), strict=True))
    return Calibration(name="random", coefficients=coefficients, gather_slowdown=slowdown)


def random_candidate(rng: np.random.Generator, kinds: tuple[str, ...]) -> tuple[Candidate, int]:
    """A candidate of one of the schedules, and the devices of a node; replicas may lie across nodes."""
    schedule = str(rng.choice(kinds))
    tp, pp, gpus = int(2 ** rng.integers(0, 4)), int(rng.choice([1, 2, 3, 4, 6, 8])), int(rng.choice([4, 8]))
    pp = max(pp, 2) if schedule != "1f1b" else pp
    # Replicas for which devices fill the nodes, three times as many now and then.
    dp = gpus // np.gcd(tp * pp, gpus) * int(rng.choice([1, 2, 3]))
    vpp = int(rng.choice(chunks_of_device(schedule, 3))) if schedule in ORDER_PRICED else 1
    m = int(rng.integers(1, 3 * pp + 1))
    m = m if is_defined(schedule, pp, m) else 2 * pp
    zero, sharded = int(rng.integers(0, 4)), bool(tp > 1 and rng.random() < 0.5)
    return Candidate(pp, tp, int(dp), vpp, int(2 ** rng.integers(0, 3)), m, schedule, zero, sharded), gpus


def random_case(
    seed: int, precision: Precision = "bf16", kinds: tuple[str, ...] = ("1f1b", "gpipe")
) -> tuple[PlanningProblem, Strategy, Configurations, Calibration]:
    """A random configuration on a random cluster of equal nodes, in both forms."""
    rng = np.random.default_rng(seed)
    candidate, gpus = random_candidate(rng, kinds)
    chunks = candidate.pp * candidate.vpp
    sizes = rng.integers(1, 4, chunks) if rng.random() < 0.5 else np.full(chunks, rng.integers(1, 4))
    kv_heads, gated, tied = int(rng.choice([4, 16])), bool(rng.random() < 0.5), bool(rng.random() < 0.5)
    vocab = {"vocab": 0 if rng.random() < 0.2 else int(rng.choice([1000, 50000]))}
    shape = {
        "hidden": int(rng.choice([1024, 8192])),
        "heads": 16,
        "kv_heads": kv_heads,
        "ffn_hidden": 4096,
        "seq": 512,
        **vocab,
    }
    wet = bool(seed % 3 == 0)
    if vocab["vocab"] and candidate.pp > 1 and chunks > 2:
        candidate = _with_empty_ends(rng, candidate, sizes)
    given = {
        "layers": int(sizes.sum()),
        "gated_mlp": gated,
        "dropout": wet,
        "tied_embedding": tied and vocab["vocab"] > 0,
    }
    model = ModelSpec.parse({"name": "m", **shape, **given} | {"vocab": vocab["vocab"] or None}, "m")
    calibration, overlap = random_coefficients(rng), bool(rng.random() < 0.3)
    # As a plan does where reductions overlap.
    rings = {"data_parallel": calibration.overlapped_rings} if overlap else {}
    hiding = calibration.model_copy(update={"coefficients": calibration.coefficients | rings})
    problem = _problem(model, candidate, gpus, precision, hiding, overlap)
    full = candidate.schedule not in SPLIT
    recompute = int(rng.integers(0, 3 if full else 2))
    division = division_of_layers(candidate, sizes.tolist(), np.full(chunks, recompute))
    values: dict[str, Any] = {
        **shape,
        **{name: getattr(candidate, name) for name in ("tp", "pp", "dp", "vpp", "micro_batch", "num_micro_batches")},
        **{
            "layers": given["layers"],
            "gated": gated,
            "dropout": wet,
            "tied": given["tied_embedding"],
            "cp": 1,
            "cp_comm": 0,
            "zero": candidate.zero,
        },
        **{"schedule": SCHEDULES.index(candidate.schedule), "recompute": recompute, "overlap": overlap},
        "sequence_parallel": candidate.sequence_parallel,
    }
    columns = {name: np.array([value], dtype=np.int64) for name, value in values.items()}
    strategy = Strategy(candidate=candidate, division=division)
    return problem, strategy, Configurations(**columns, division=sizes[None].astype(np.int64)), calibration


def _with_empty_ends(rng: np.random.Generator, candidate: Candidate, sizes: Ints) -> Candidate:
    """Now and then a first or last chunk without layers, which go to the chunk beside."""
    for end, beside in ((0, 1), (-1, -2)):
        if rng.random() < 0.3:
            sizes[beside] += sizes[end]
            sizes[end] = 0
    return replace(candidate, empty_ends=not sizes.all())


def _problem(
    model: ModelSpec, candidate: Candidate, gpus: int, precision: Precision, calibration: Calibration, overlap: bool
) -> PlanningProblem:
    """The planner's problem on equal nodes."""
    tp, batch = candidate.tp, candidate.micro_batch
    group = {
        "count": candidate.pp * tp * candidate.dp // gpus,
        "device": DEVICE,
        "gpus_per_node": gpus,
        "intra_bandwidth_gbps": 2400,
        "intra_latency_us": 3,
        "nic_bandwidth_gbps": 400,
    }
    network = {"bandwidth_gbps": 200, "latency_us": 5}
    cluster = ClusterSpec.parse({"name": "c", "nodes": [group], "network": network}, "c")
    keys: dict[str, Any] = {"tensor_degrees": [tp], "micro_batches": [batch], "calibration": calibration}
    costs = analytic_costs(model, [DEVICE], precision=precision, **keys)
    space = StrategySpace(global_batch=candidate.dp * batch * candidate.num_micro_batches, max_tp=16)
    memory = MemoryModel(precision=precision, coefficients={"activations": 1.3, "checkpoints": 0.7, "weights": 1.01})
    return PlanningProblem(model, cluster, costs, memory, space, "step", calibration, overlap)


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


def forms(seed: int, **kind: Any) -> tuple[float, float, StepForm, np.ndarray[Any, Any]]:
    """Seconds of the evaluator and of the batch form, the form, and the coefficients."""
    problem, strategy, columns, calibration = random_case(seed, **kind)
    candidate = strategy.candidate
    devices = np.arange(problem.cluster.num_devices).reshape(candidate.pp, candidate.dp, candidate.tp)
    form = step_form(
        columns,
        machine(problem),
        problem.memory.parameter_bytes,
        gather_slowdown=calibration.gather_slowdown,
    )
    coefficients = np.array([calibration[term] for term in TERMS])
    wanted = float(step_time(problem, strategy, devices).total)
    return wanted, float(form.seconds(coefficients)[0]), form, coefficients


@pytest.mark.parametrize("block", blocks(6))
def test_batch_form_equals_the_evaluator(block: int) -> None:
    """Seconds and weighed terms are the evaluator's step time of the same configuration in Megatron's order."""
    for seed in range(block * 50, block * 50 + 50):
        wanted, found, form, coefficients = forms(seed)
        assert found == pytest.approx(wanted, rel=1e-9), seed
        assert float(form.terms(coefficients)[0] @ coefficients) == pytest.approx(wanted, rel=1e-9), seed


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(6))
@pytest.mark.parametrize("kind", ORDER_PRICED)
def test_batch_form_prices_orders_as_the_evaluator(kind: str, block: int) -> None:
    """So are those of every order-priced schedule: the longest path has the terms of the makespan."""
    for seed in range(block * 10, block * 10 + 10):
        wanted, found, form, coefficients = forms(seed, kinds=(kind,))
        assert found == pytest.approx(wanted, rel=1e-9), seed
        assert float(form.terms(coefficients)[0] @ coefficients) == pytest.approx(wanted, rel=1e-9), seed


@pytest.mark.parametrize("kinds", [("1f1b", "gpipe"), ORDER_PRICED])
@pytest.mark.parametrize("block", blocks(3))
def test_batch_memory_equals_the_memory_model(block: int, kinds: tuple[str, ...]) -> None:
    """The fullest stage needs what the memory model says."""
    for seed in range(block * 50, block * 50 + 50):
        problem, strategy, columns, _ = random_case(seed, kinds=kinds)
        wanted = max(memory_bytes(problem, strategy))
        found = int(batch_memory(columns, machine(problem).rates, problem.memory)[0])
        assert found == wanted, (seed, strategy.candidate)


@pytest.mark.parametrize("precision", ["fp8", "mxfp8", "nvfp4"])
def test_batch_forms_agree_in_narrow_formats(precision: Precision) -> None:
    """Seconds and bytes of recipes for narrower products, too, are the evaluator's and the memory model's."""
    for seed in range(1000, 1030):
        wanted, found, _, _ = forms(seed, precision=precision)
        assert found == pytest.approx(wanted, rel=1e-9), seed
        problem, strategy, columns, _ = random_case(seed, precision)
        bytes_found = int(batch_memory(columns, machine(problem).rates, problem.memory)[0])
        assert bytes_found == max(memory_bytes(problem, strategy)), seed


@pytest.mark.proof
def test_rows_together_are_priced_as_alone() -> None:
    """Rows of other lengths, layouts and schedules beside it change nothing about a row."""
    cases = [random_case(seed, kinds=("1f1b", "gpipe", "interleaved-1f1b")) for seed in range(60)]
    of_node = [case for case in cases if case[0].links.gpus_per_node[0] == 8]
    most = max(columns.division.shape[1] for _, _, columns, _ in of_node)
    names = [name for name in Configurations.__slots__ if name != "division"]
    wide = [np.pad(columns.division, ((0, 0), (0, most - columns.division.shape[1]))) for _, _, columns, _ in of_node]
    together = {name: np.concatenate([getattr(case[2], name) for case in of_node]) for name in names}
    columns, calibration = Configurations(**together, division=np.concatenate(wide)), of_node[0][3]
    coefficients = np.array([calibration[term] for term in TERMS])
    every = [(columns, of_node[0]), *((case[2], case) for case in of_node)]
    whole, *alone = [
        step_form(rows, machine(case[0]), case[0].memory.parameter_bytes).seconds(coefficients) for rows, case in every
    ]
    assert whole == pytest.approx(np.concatenate(alone), rel=1e-12)
