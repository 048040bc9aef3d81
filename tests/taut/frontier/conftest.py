"""Cards and a stack whose round figures the frontiers of these tests are drawn from."""

from collections.abc import Iterator

import pytest

from taut.data.catalog.devices import catalog_section


@pytest.fixture(scope="module", autouse=True)
def round_figures() -> Iterator[None]:
    """A T4 of 16 GiB, and a stack without a memory model of its own, so that limits are those of plain figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(catalog_section("devices")["t4-16gb"], "memory_gib", 16)
        patch.setitem(catalog_section("stacks")["megatron-core"], "memory_models", [])
        patch.delitem(catalog_section("stacks")["megatron-core"], "fused_loss")
        yield
