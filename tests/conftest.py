"""Random tests have no deadline: the first call of a compiled loop takes seconds. PyTorch can be put on one thread."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("compiled", deadline=None)
settings.load_profile("compiled")


# Imported modules and collected tests stay to the end: garbage among them costs a third of the time of collecting.
gc.disable()


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
