"""The devices of a plan document: by replica as it states them, and by block as they are priced."""

import numpy as np

from taut.data.arrays import Ints
from taut.errors import DataError
from taut.formulations.space import Candidate
from taut.solver.certificate.document import PlanDocument


def devices_of(document: PlanDocument, source: str) -> Ints:
    """
    Devices as an array (pp, pipelines, width): replicas that an expert group goes over stand side by side.

    Raises
    ------
    DataError
        If the lists are ragged.
    """
    section, strategy = document.placement, document.strategy
    if section.order != "pp,dp,tp":
        raise DataError(f"{source}: placement.order: is {section.order!r}, expected 'pp,dp,tp'")
    shapes = {(len(stage), len(group)) for stage in section.devices for group in stage}
    if len(shapes) != 1 or not all(section.devices):
        raise DataError(f"{source}: placement.devices: stages differ in shape, expected [pp][dp][tp]")
    numbers = [device for stage in section.devices for group in stage for device in group]
    if not all(0 <= device < len(numbers) for device in numbers):
        raise DataError(f"{source}: placement.devices: expected device numbers from 0 to {len(numbers) - 1}")
    devices = np.array(section.devices, dtype=np.int64)
    shape, width = devices.shape, (strategy.etp or strategy.tp) * strategy.ep
    goes_over = shape[2] == strategy.tp * strategy.cp < width and shape[1] * shape[2] % width == 0
    return devices.reshape(shape[0], -1, width) if goes_over else devices


def by_replica(candidate: Candidate, devices: Ints) -> Ints:
    """Devices (pp, pipelines, width) of a candidate by replica, (pp, dp, tp cp), as a document states them."""
    return devices.reshape(candidate.pp, candidate.dp, -1)
