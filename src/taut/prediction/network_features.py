"""What a network that predicts memory sees of configurations (``taut.data.memory_network``)."""

from collections.abc import Sequence

import numpy as np

from taut.data.arrays import Floats
from taut.data.memory_network import FEATURES
from taut.data.samples import ConfigurationRow


def network_features(rows: Sequence[ConfigurationRow], names: Sequence[str] = FEATURES) -> Floats:
    """
    What a ``MemoryNetwork`` sees of configurations, (rows, names).

    ``rows``: configurations; what ``names`` leaves out (by default sequence, vocabulary, recompute, sharding and more)
    is not seen, and has to be the same in all of them; ``names``: features in order, of
    ``taut.data.memory_network.ALL_FEATURES``. Returns features, (rows, names).
    """
    return np.array([_figures(row, names) for row in rows], dtype=np.float64).reshape(len(rows), len(names))


def _figures(row: ConfigurationRow, names: Sequence[str]) -> list[float]:
    """Features of a configuration; heads and widths that it does not state take their defaults."""
    derived: dict[str, float] = {
        "heads": row.attention_heads,
        "kv_heads": row.key_value_heads,
        "ffn_hidden": row.ffn_hidden or 4 * row.hidden,
        "mini_batch": row.global_batch // row.dp,
        "gpipe": row.schedule == "gpipe",
        "selective": row.recompute == "selective",
        "full": row.recompute == "full",
    }
    return [derived[name] if name in derived else getattr(row, name) for name in names]
