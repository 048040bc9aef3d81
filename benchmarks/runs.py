"""Runs of public campaigns: what they share, the shapes of published models, and the reading of their CSV files."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taut.data.calibration import PASSES
from taut.data.loss import LossKind
from taut.data.samples import ConfigurationRow
from taut.errors import DataError

Line = dict[str, str]
SHAPES: dict[str, dict[str, Any]] = {
    "llama3.1_8b": {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336, "vocab": 128256},
    "llama3.1_70b": {"hidden": 8192, "layers": 80, "heads": 64, "kv_heads": 8, "ffn_hidden": 28672, "vocab": 128256},
    "llama3.1_405b": {
        "hidden": 16384,
        "layers": 126,
        "heads": 128,
        "kv_heads": 8,
        "ffn_hidden": 53248,
        "vocab": 128256,
    },
    "llama2_13b": {"hidden": 5120, "layers": 40, "heads": 40, "ffn_hidden": 13824, "vocab": 32000},
    "llama2_70b": {"hidden": 8192, "layers": 80, "heads": 64, "kv_heads": 8, "ffn_hidden": 28672, "vocab": 32000},
    "gpt_175b": {"hidden": 12288, "layers": 96, "heads": 96, "vocab": 51200},
    "gpt_5b": {"hidden": 4096, "layers": 24, "heads": 32, "vocab": 51200},
    "nemotron_15b": {"hidden": 6144, "layers": 32, "heads": 48, "kv_heads": 8, "vocab": 256000},
    "nemotron_340b": {"hidden": 18432, "layers": 96, "heads": 96, "kv_heads": 8, "vocab": 256000},
    "mpt_125m": {"hidden": 768, "layers": 12, "heads": 12, "vocab": 50368},
    "mpt_350m": {"hidden": 1024, "layers": 24, "heads": 16, "vocab": 50368},
    "mpt_760m": {"hidden": 1536, "layers": 24, "heads": 12, "vocab": 50368},
    "mpt_1b": {"hidden": 2048, "layers": 24, "heads": 16, "vocab": 50368},
    "mpt_3b": {"hidden": 2560, "layers": 32, "heads": 20, "vocab": 50368},
    "mpt_7b": {"hidden": 4096, "layers": 32, "heads": 32, "vocab": 50368},
    "mpt_13b": {"hidden": 5120, "layers": 40, "heads": 40, "vocab": 50368},
    "mpt_30b": {"hidden": 7168, "layers": 48, "heads": 56, "vocab": 50368},
    "mpt_70b": {"hidden": 8192, "layers": 80, "heads": 64, "vocab": 50368},
}
"""Published shapes; the 5B GPT of Paxml is the NeMo recipe's, Nemotron 4's heads are its technical report's."""


@dataclass(frozen=True)
class Campaign:
    """
    Measured runs of one stack on one device, and the catalog cluster whose links they used.

    ``towards`` are coefficients that the fit is pulled to, of terms that the runs hide, and ``cards`` the names of its
    calibrations by the cards that they are for, where these are not those of the runs alone.
    """

    name: str
    stack: str
    cluster: str
    source: str
    rows: list[ConfigurationRow]
    left_out: int = 0
    selective_products: bool = False
    early_stop: bool = False
    fp8_inputs: bool = False
    fused_loss: LossKind = "none"
    fused_attention: bool | None = None
    features: tuple[str, ...] = ()
    towards: Mapping[str, float] = field(default_factory=dict)
    cards: Mapping[str, str] = field(default_factory=dict)

    @property
    def about(self) -> dict[str, Any]:
        """What a calibration from these runs says of itself."""
        kept = PASSES if self.fused_attention is not None else PASSES[1:]
        said = {name: getattr(self, name) for name in ("name", "stack", "cluster", "source", *kept)}
        return said | ({"features": [*self.features]} if self.features else {})


def lines_of(path: Path) -> list[Line]:
    """Rows of a CSV file whose comment lines begin with '#', unless they are the header."""
    text = path.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in text if not line.startswith("#") or line.startswith("# GPUs")))


def accepted(rows: list[dict[str, Any]]) -> tuple[list[ConfigurationRow], int]:
    """Rows that are even configurations, and how many are not."""
    kept = []
    for values in rows:
        try:
            kept.append(
                ConfigurationRow.parse_cells({k: str(v) for k, v in values.items() if v not in ("", None)}, "row")
            )
        except DataError:
            continue
    return kept, len(rows) - len(kept)
