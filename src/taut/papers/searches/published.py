"""
A published plan with its measured step, and the lines of a table of such plans.

Files of other projects lie in a folder that is given, or up to two levels below it.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taut.data.cluster import ClusterSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPlan:
    """
    A plan, on DGX H100 unless stated: who published it, the job, its measured step if it is known, and what it fixes.

    ``activation_offload`` is the share of the activations that it keeps on the hosts.
    ``priced`` are options of ``taut.plan`` for prices of its own, such as measured layer costs.
    """

    who: str
    model: str
    seq: int
    gpus: int
    global_batch: int
    precision: str
    measured_s: float | None
    fixed: dict[str, Any] = field(default_factory=dict)
    cluster: str | ClusterSpec = ""
    activation_offload: float = 0.0
    priced: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, of a cluster its name."""
        named = self.cluster if isinstance(self.cluster, str) else self.cluster.name
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "priced"}
        return {**plain, "cluster": named}


def lines_of(path: Path) -> list[dict[str, str]]:
    """Lines of a table by column, comments left out."""
    text = path.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in text if not line.startswith("#")))


DEPTHS = "", "*/", "*/*/"


def places_of(folder: Path, pattern: str) -> list[Path]:
    """
    Files and folders of a name, those of the folder itself first.

    ``pattern``: name, with ``*`` for any text.
    """
    return [path for depth in DEPTHS for path in sorted(folder.glob(f"{depth}{pattern}"))]
