"""
Plans of Aceso's search at taut's prices, where they map.

Layer costs are the same operators, added up to layers without the all-reduces of tensor groups; inside a node rings run
at the rate of the measured all-reduce of its GPUs, between nodes messages at the measured one. Memory is what the
driver states, with nothing held back. A plan maps if all its stages have one tensor degree and one number of replicas:
its degrees and its micro-batch are fixed, while layers and recomputation are chosen, as Aceso cuts inside of layers and
recomputes single operators, which taut's plans do not. So the step may be above Aceso's own: the bound is of taut's
space. Where operators were measured faster than the device can be, their degree has no costs, and plans of it no price.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taut.data.catalog.devices import device_named
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.device import DeviceSpec
from taut.data.model import ModelSpec
from taut.data.units import GIB, GIGABIT, GIGABYTE, MIB
from taut.errors import DataError, InfeasibleError, NothingFoundError
from taut.papers.aceso.costs import read_all_reduces, read_operator_costs
from taut.papers.aceso.operators import MIB_IN_GIGABYTE, OperatorProfile
from taut.papers.aceso.plans import OperatorPlan
from taut.papers.aceso.problem import AcesoProblem
from taut.planning.plan import Plan
from taut.planning.solve import plan

MEMORY_MIB = {"l4": 23034, "a10g": 23028, "a100-sxm4-40gb": 40960}
"""Memory as the driver states it, by the beginning of a device's name."""
DEVICES = {"l4": ("l4-24gb", 100), "a10g": ("a10g-24gb", 100), "a100-sxm4-40gb": ("a100-40gb", 400)}
"""Catalog device, and Gb/s of a node's cards, by the beginning of a device's name."""
VOCABULARY = 51200


@dataclass(frozen=True, slots=True)
class OurPrices:
    """Seconds of the published degrees and of the best plan, None where none fits, and the lower bound."""

    theirs_s: float | None
    best_s: float | None
    lower_bound_s: float | None

    @property
    def distance(self) -> float | None:
        """Distance of the published degrees from the bound."""
        return None if self.theirs_s is None or not self.lower_bound_s else self.theirs_s / self.lower_bound_s - 1


def at_our_prices(profiles: Path, problem: AcesoProblem, given: OperatorPlan, time_limit: float) -> OurPrices | None:
    """
    Price a plan, or None where it does not map.

    ``profiles``: folder of the device's operator profiles; ``problem``: what Aceso's search was given; ``time_limit``:
    seconds of each of the two searches.
    """
    first = given.stages[0]
    if any((stage.tp, stage.dp) != (first.tp, first.dp) for stage in given.stages):
        return None
    costs = read_operator_costs(profiles, given.size, _model(given), _device(given)[0])
    if not any(row.tp == first.tp for row in costs.rows):
        return None
    fixed = {"tp": first.tp, "pp": len(given.stages), "dp": first.dp, "micro_batch": given.micro_batch // first.dp}
    theirs, best = (_plan(profiles, problem, given, costs, time_limit, chosen) for chosen in (fixed, {}))
    return OurPrices(
        None if theirs is None else theirs.step_time_s,
        None if best is None else best.step_time_s,
        None if best is None else best.lower_bound_s,
    )


def memory_bytes(gpu: str) -> int:
    """
    Memory of a device as the driver states it.

    Raises ``DataError`` if the device is unknown.
    """
    memory = next((size for name, size in MEMORY_MIB.items() if gpu.startswith(name)), None)
    if memory is None:
        raise DataError(f"unknown device {gpu}, expected {', '.join(MEMORY_MIB)}")
    return memory * MIB


def _plan(
    profiles: Path,
    problem: AcesoProblem,
    given: OperatorPlan,
    costs: CostTable,
    time_limit: float,
    fixed: dict[str, int],
) -> Plan | None:
    model, cluster = _model(given), _cluster(profiles, problem, given)
    try:
        return plan(
            model,
            cluster,
            global_batch=given.global_batch,
            profile=costs,
            precision="fp16",
            memory_model={"overhead_gib": 0.0, "margin": 0.0, "grad_precision": "bf16"},
            fix=fixed or None,
            time_limit=time_limit,
        )
    except (InfeasibleError, NothingFoundError):
        return None


def _model(given: OperatorPlan) -> ModelSpec:
    shape = {"layers": given.layers, "hidden": given.hidden, "heads": given.heads, "seq": given.seq}
    values = {"name": f"gpt-{given.size}", **shape, "vocab": VOCABULARY, "tied_embedding": True}
    return ModelSpec.parse(values, "a plan of Aceso")


def _cluster(profiles: Path, problem: AcesoProblem, given: OperatorPlan) -> ClusterSpec:
    device, cards = _device(given)
    node: dict[str, Any] = {
        "count": given.gpus // problem.gpus_per_node,
        "device": device,
        "gpus_per_node": problem.gpus_per_node,
        "intra_bandwidth_gbps": _ring_rate(profiles, given.size, problem.gpus_per_node) / GIGABIT,
        "nic_bandwidth_gbps": cards,
    }
    network = {"bandwidth_gbps": _rate(problem.profile) / GIGABIT}
    return ClusterSpec.parse({"name": given.gpu, "nodes": [node], "network": network}, "a plan of Aceso")


def _device(given: OperatorPlan) -> tuple[DeviceSpec, float]:
    name, cards = next(found for start, found in DEVICES.items() if given.gpu.startswith(start))
    device = device_named(name, "gpu")
    return device.model_copy(update={"memory_gib": memory_bytes(given.gpu) / GIB}), cards


def _ring_rate(profiles: Path, size: str, gpus: int) -> float:
    """Bytes a second of a ring's hop, by the largest all-reduce of a node."""
    sizes, seconds = read_all_reduces(profiles, size, gpus)
    return float(2 * (gpus - 1) / gpus * sizes[-1] / seconds[-1])


def _rate(profile: OperatorProfile) -> float:
    """Bytes a second between nodes, of the largest message, in gigabytes of 1e9 bytes as the file states them."""
    return float(profile.between_nodes[-1] / (MIB_IN_GIGABYTE * MIB) * GIGABYTE)
