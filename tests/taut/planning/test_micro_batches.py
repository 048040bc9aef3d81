"""Planning with a profile that has micro-batch 1 alone: larger ones are priced, said, and verified."""

import pytest

from taut.data.analytic.layer_costs import analytic_costs
from taut.data.catalog.devices import catalog_devices
from taut.data.costs import CostTable
from taut.data.load import load_model
from taut.errors import ExtrapolationWarning
from taut.planning.solve import plan


def measured() -> CostTable:
    """Costs of GPT-2 345M on a T4 at micro-batch 1."""
    found = analytic_costs(
        load_model("gpt2-345m"),
        [catalog_devices()["t4-16gb"]],
        precision="fp16",
        tensor_degrees=[1, 2, 4],
        micro_batches=[1],
    )
    return found.model_copy(update={"name": "one", "basis": "measured"})


@pytest.mark.proof
def test_larger_micro_batches_are_planned_with_a_warning() -> None:
    """A plan at micro-batch 4 names the law beside the profile, and its certificate holds."""
    with pytest.warns(ExtrapolationWarning, match="one: micro_batch 1 alone was measured"):
        found = plan("gpt2-345m", "amp-homogeneous", global_batch=32, profile=measured(), fix={"micro_batch": 4})
    assert found.strategy.micro_batch == 4
    assert "measured; micro-batches above 1 by t(b) = t(1) + (b - 1) w" in str(found).replace("\n", " ")
    assert found.verify().holds
