"""Where figures come from: the machine and software as PyTorch sees them, and the catalog's name for the device."""

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise

import torch

from taut.data.device import DeviceSpec
from taut.data.units import GIB
from taut.errors import FieldError

MEMORY_TOLERANCE = 0.15
"""Share by which a device's usable memory may differ from the catalog's round figure."""


def machine(device: torch.device) -> str:
    """One line on the device and the software."""
    software = f"PyTorch {torch.__version__}, Python {platform.python_version()}"
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name()}, {software}, CUDA {torch.version.cuda}, driver {_driver()}"
    capability = torch.backends.cpu.get_cpu_capability()
    cores = f"{os.cpu_count()}-core {platform.machine()} CPU ({capability})"
    threads = torch.get_num_threads()
    gpu = "a GPU not used" if torch.cuda.is_available() else "no GPU available"
    return f"{cores}, {threads} thread{'s' if threads > 1 else ''}, {gpu}, {software}"


def today() -> str:
    """The date in UTC."""
    return datetime.now(UTC).date().isoformat()


def device_name(device: torch.device, known: Mapping[str, DeviceSpec]) -> str:
    """
    The catalog's name for the device at hand.

    Raises ``DataError`` if the catalog has no such device.
    """
    if device.type == "cpu":
        return "cpu"
    return guess(torch.cuda.get_device_name(), torch.cuda.get_device_properties(device).total_memory, known)


def guess(name: str, memory_bytes: int, known: Mapping[str, DeviceSpec]) -> str:
    """
    The catalog's device whose words stand in a device's name and whose memory comes nearest.

    ``name``, ``memory_bytes``: what PyTorch says of the device, such as ``NVIDIA A100-SXM4-80GB``. Raises ``DataError``
    if there is none with memory within 15 %.
    """
    words = re.split(r"[^a-z0-9]+", name.lower())
    words += [first + second for first, second in pairwise(words)]
    apart = {
        device: abs(spec.memory_gib * GIB / memory_bytes - 1.0)
        for device, spec in known.items()
        if all(word in words for word in device.split("-") if not re.fullmatch(r"\d+gb", word))
    }
    nearest = min(apart, key=lambda device: apart[device], default=None)
    if nearest is None or apart[nearest] > MEMORY_TOLERANCE:
        lacks = f"missing, and {name!r} with {memory_bytes / GIB:.1f} GiB is not in the catalog"
        raise FieldError("gpu", None, f"{lacks}, expected one of {', '.join(known)}")
    return nearest


def _driver() -> str:
    """Version of NVIDIA's driver; ``unknown`` where its tool is missing."""
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(ask, capture_output=True, text=True, timeout=10, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return said[0] if said else "unknown"
