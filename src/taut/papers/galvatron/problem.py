"""
What Galvatron's search decides at a global batch: micro-batches, stages, and how each layer is spread.

Stages hold equal numbers of layers, the last one the rest. Of the devices of a stage a layer takes a power of two as
its ways, tensor parallel or with a split sequence, the others are replicas that keep what ``default`` says
(``zero2``: optimizer and gradients sharded; ``ddp``: nothing) or shard weights too, and it is recomputed or not;
embedding and head choose the same, without recomputation. A micro-batch has a sample for each replica at least, and a
plan as many micro-batches as stages.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from taut.data.readers.galvatron.profile import GalvatronProfile, Split

RESERVED, RESERVED_FROM_MIB = 0.2, 21 * 1024
"""Share of the memory that the search leaves to PyTorch's cache, where it has this much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GalvatronProblem:
    """A model of ``layers`` equal layers of width ``hidden`` on ``gpus`` devices with ``memory_mib`` each."""

    profile: GalvatronProfile
    layers: int
    hidden: int
    gpus: int
    global_batch: int
    memory_mib: int
    default: str = "zero2"

    @property
    def capacity(self) -> int:
        """MiB of a device that a plan may use."""
        reserved = int(self.memory_mib * RESERVED) if self.memory_mib >= RESERVED_FROM_MIB else 0
        return self.memory_mib - reserved

    def settings(self) -> Iterator["Setting"]:
        """Every number of micro-batches and stages."""
        for chunks in range(1, self.global_batch + 1):
            for pp in powers(min(chunks, self.layers, self.gpus)):
                if self.global_batch % chunks == 0:
                    yield Setting(chunks, pp)

    def division(self, pp: int) -> list[int]:
        """Layers by stage."""
        each = self.layers // pp
        return [each] * (pp - 1) + [self.layers - each * (pp - 1)]

    def splits(self, setting: "Setting") -> list[Split]:
        """What a layer may be at a setting."""
        return [Split(*split[:3], again) for split in self.ends(setting) for again in (False, True)]

    def ends(self, setting: "Setting") -> list[Split]:
        """What embedding and head may be at a setting."""
        devices = self.gpus // setting.pp
        most = min(self.global_batch // setting.chunks, devices)
        found = []
        for ways in powers(devices):
            if devices // ways <= most:
                for sequence in (False, True) if ways > 1 else (False,):
                    sharded = (False, True) if devices // ways > 1 else (False,)
                    found += [Split(ways, sequence, each) for each in sharded]
        return found

    def replicas(self, setting: "Setting", split: Split) -> int:
        """Replicas of a layer."""
        return self.gpus // setting.pp // split.ways

    def samples(self, setting: "Setting", split: Split) -> int:
        """Samples of a micro-batch on one replica."""
        return self.global_batch // setting.chunks // self.replicas(setting, split)


@dataclass(frozen=True, slots=True)
class Setting:
    """Micro-batches of a step, and stages."""

    chunks: int
    pp: int


def powers(most: int) -> list[int]:
    """Powers of two up to a number."""
    return [1 << k for k in range(most.bit_length()) if 1 << k <= most]
