"""Layouts of unlike devices, by stage and by replica."""

import numpy as np

from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.solver.search.typed_layouts import layouts


def test_every_layout_places_every_device_once() -> None:
    """On 12 V100 and 4 T4 in eight stages of two replicas no device is left out and none is used twice."""
    given = planning_problem(PlanRequest("gpt2-345m", "amp-heterogeneous", global_batch=32, fix={"pp": 8, "tp": 1}))
    found = list(layouts(given, given.candidates[0]))
    assert all((np.sort(devices.ravel()) == np.arange(16)).all() for devices in found)
    assert len({devices.tobytes() for devices in found}) == len(found) > 9


def test_some_layout_leaves_one_replica_on_one_type() -> None:
    """The four T4 are the last four stages of the one replica, and the other has V100 alone."""
    given = planning_problem(PlanRequest("gpt2-345m", "amp-heterogeneous", global_batch=32, fix={"pp": 8, "tp": 1}))
    rare = int(np.bincount(given.type_of_node).argmin())
    is_rare = [given.type_of_node[given.links.node_of[each]] == rare for each in layouts(given, given.candidates[0])]
    wanted = np.zeros((8, 2), dtype=bool)
    wanted[4:, 0] = True
    assert any((each[..., 0] == wanted).all() for each in is_rare)
