"""No optimum computes faster than the fastest kernels that were measured on its devices."""

from typing import Any

import pytest

from taut.data.catalog.builtin import catalog_floors
from taut.data.catalog.devices import catalog_device
from taut.data.device import Precision
from taut.data.units import TERA
from taut.planning.solve import plan

pytestmark = pytest.mark.proof

JOBS: list[tuple[str, str, str, Precision, int]] = [
    ("qwen3-30b-a3b", "dgx-h100:2", "megatron-core", "bf16", 64),
    ("qwen3-30b-a3b", "dgx-h100:2", "megatron-core", "fp8", 64),
    ("llama3-8b", "dgx-h100", "torchtitan", "bf16", 32),
    ("llama3-8b", "dgx-b200", "megatron-core", "mxfp8", 32),
    ("llama3-8b", "dgx-a100", "any", "bf16", 32),
    ("gpt3-2.7b", "dgx-a100", "megatron-deepspeed", "fp16", 32),
]


def best_share(device: str, precision: Precision) -> float:
    """The best measured rate of products of any kind in a precision over the peak, 1 without a measurement."""
    rows = [row for row in catalog_floors().values() if device in row.devices and precision in row.precision]
    rates = [max(row.rate) for row in rows if row.kernel in ("product", "grouped")]
    peak = catalog_device(device).peak_tflops[precision]
    return max(rates, default=peak) * TERA / (peak * TERA)


@pytest.mark.filterwarnings("ignore::taut.errors.ExtrapolationWarning")
@pytest.mark.parametrize("job", JOBS, ids=lambda job: "-".join(map(str, job)))
def test_no_optimum_exceeds_its_kernels(job: tuple[str, str, str, Precision, int]) -> None:
    """Hardware FLOP utilisation of the best plan is below the best product's, and not below the model's."""
    model, cluster, stack, precision, batch = job
    options: dict[str, Any] = {"global_batch": batch, "stack": stack, "precision": precision, "gap": 0.05}
    found = plan(model, cluster, plainer=False, work_limit=300, **options)
    (device,) = found.cluster_spec.devices
    hfu = found.document["predicted"]["hfu"]
    assert 0.05 < hfu <= best_share(device, precision)
