"""The catalog's name for the device that PyTorch names."""

from types import SimpleNamespace

import pytest
import torch

from taut.data.device import DeviceSpec
from taut.data.units import GIB
from taut.errors import DataError
from taut.profiling.layers import device_name, guess, machine, today

MEMORY = {"a100-40gb": 40, "a100-80gb": 80, "h200-141gb": 141, "t4-16gb": 16, "rtx-3090": 24, "rtx-2080ti": 11}
KNOWN = {
    name: DeviceSpec(name=name, memory_gib=gib, peak_tflops={"fp16": 1}, memory_bandwidth_gbytes=1)
    for name, gib in MEMORY.items()
}


@pytest.mark.parametrize(
    ("name", "gib", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", 79.2, "a100-80gb"),
        ("NVIDIA A100-PCIE-40GB", 39.4, "a100-40gb"),
        ("NVIDIA H200", 139.8, "h200-141gb"),
        ("Tesla T4", 14.6, "t4-16gb"),
        ("NVIDIA GeForce RTX 2080 Ti", 10.8, "rtx-2080ti"),
    ],
)
def test_names_are_guessed_by_words_and_memory(name: str, gib: float, expected: str) -> None:
    """The model stands in PyTorch's name, and of two sizes the nearer one is taken."""
    assert guess(name, int(gib * GIB), KNOWN) == expected


@pytest.mark.parametrize(
    ("name", "gib"), [("NVIDIA B200", 178.0), ("NVIDIA GH200 480GB", 140.0), ("NVIDIA GeForce RTX 4090", 23.6)]
)
def test_other_devices_are_not_guessed(name: str, gib: float) -> None:
    """A name that only resembles an entry is refused with the choices."""
    with pytest.raises(DataError, match=f"gpu: missing, and '{name}' .* expected one of a100-40gb, a100-80gb, h200"):
        guess(name, int(gib * GIB), KNOWN)


def test_memory_must_agree() -> None:
    """An A100 with a quarter of its memory is not the catalog's."""
    with pytest.raises(DataError, match=r"with 20\.0 GiB is not in the catalog"):
        guess("NVIDIA A100-SXM4-80GB MIG 2g.20gb", 20 * GIB, KNOWN)


@pytest.mark.parametrize("driver", ["570.1", None])
def test_gpu_is_named_with_its_driver(monkeypatch: pytest.MonkeyPatch, driver: str | None) -> None:
    """The remark on a GPU has PyTorch's name for it and the driver's version, where its tool is there to ask."""

    def ask(words: list[str], **_: object) -> SimpleNamespace:
        if driver is None:
            raise FileNotFoundError(words[0])
        return SimpleNamespace(stdout=f"{driver}\n{driver}\n")

    monkeypatch.setattr("subprocess.run", ask)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "NVIDIA H200")
    said = machine(torch.device("cuda"))
    assert said.startswith(f"NVIDIA H200, PyTorch {torch.__version__}")
    assert said.endswith(f"driver {driver or 'unknown'}")


def test_machine_names_no_host() -> None:
    """The remark on a CPU says how many cores and threads it has and which software ran, in general words."""
    said = machine(torch.device("cpu"))
    assert f"PyTorch {torch.__version__}, Python 3." in said
    assert "-core" in said
    assert "thread" in said
    assert device_name(torch.device("cpu"), KNOWN) == "cpu"
    assert today().count("-") == 2
