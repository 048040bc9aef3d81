"""Nodes wider than a machine: racks of 72 GPUs in one NVLink domain, whole, in part and several."""

import pytest

from taut import plan, verify
from taut.data.load import load_cluster, load_model
from taut.formulations.degrees import tensor_degrees


@pytest.mark.proof
@pytest.mark.parametrize(
    ("cluster", "batch", "fix"),
    [
        ("gb200-nvl72", 144, {}),
        ("gb200-nvl72:2", 288, {"pp": 4}),
        ("gb300-nvl72:2", 144, {"tp": 8, "pp": 2}),
        ("gb300-nvl64:2", 256, {"tp": 16, "pp": 4}),
    ],
)
def test_plans_on_racks_are_proven_and_hold(cluster: str, batch: int, fix: dict[str, int]) -> None:
    """A small model is planned on racks, with factors of 3 in the replicas or without, and the certificate holds."""
    found = plan("gpt3-2.7b", cluster, global_batch=batch, fix=fix, work_limit=20, seed=1)
    assert found.document["status"] in ("optimal", "feasible")
    degrees = found.document["strategy"]
    assert degrees["pp"] * degrees["tp"] * degrees["dp"] == load_cluster(cluster).num_devices
    assert all(degrees[name] == value for name, value in fix.items())
    assert verify(found).holds


def test_tensor_degrees_divide_the_rack() -> None:
    """Powers of two end at 8 in a rack of 72 and at 64 in 64 of its GPUs; heads with a factor of 3 take more."""
    llama, gpt = load_model("llama3-405b"), load_model("gpt3-175b")
    whole, part = load_cluster("gb200-nvl72:8"), load_cluster("gb200-nvl64:8")
    assert tensor_degrees(llama, whole, 72) == [1, 2, 4, 8]
    assert max(tensor_degrees(llama, part, 64)) == 64
    assert 24 in tensor_degrees(gpt, whole, 72)
