"""Random tests have no deadline, as the first call of a compiled loop takes seconds; the longest tests are first."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("compiled", deadline=None)
settings.load_profile("compiled")


# Imported modules and collected tests stay to the end: garbage among them costs a third of the time of collecting.
gc.disable()


LONGEST = {"test_docs.py", "test_notebook.py"}
"""Tests of which one takes as long as a hundred others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run pages and notebooks first: short tests are left at the end, so that no core waits for a long one."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of every later garbage collection."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch on one thread, with a fixed seed."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)
