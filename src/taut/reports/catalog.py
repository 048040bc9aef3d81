"""The catalog in words, and a cluster as our YAML."""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

import yaml

from taut.data.catalog.builtin import (
    catalog_calibrations,
    catalog_clusters,
    catalog_memory_models,
    catalog_models,
    catalog_profiles,
    catalog_stacks,
)
from taut.data.catalog.devices import catalog_devices
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.errors import DataError
from taut.words import text_table


def _each(figures: Iterable[str]) -> str:
    """Figures of the kinds of nodes, equal ones once."""
    return ", ".join(dict.fromkeys(figures))


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _error(mape: float | None) -> str:
    return "" if mape is None else f"{mape:.1%}"


SECTIONS: dict[str, tuple[Callable[[], Mapping[str, Any]], dict[str, Callable[[Any], Any]]]] = {
    "models": (
        catalog_models,
        {
            "parameters": lambda model: model.parameters(),
            "layers": lambda model: len(model.blocks),
            "hidden": lambda model: model.blocks[0].hidden,
            "seq": lambda model: model.blocks[0].seq,
        },
    ),
    "clusters": (
        catalog_clusters,
        {
            "nodes": lambda cluster: cluster.num_nodes,
            "devices": lambda cluster: cluster.num_devices,
            "types": lambda cluster: _listed(cluster.devices),
            "gpu_gbps": lambda cluster: _each(f"{node.intra_bandwidth_gbps:g}" for node in cluster.nodes),
            "pair_gbps": lambda cluster: _each(
                f"{rate:g}" for rate in [cluster.network.bandwidth_gbps] if rate is not None
            ),
            "cards_gbps": lambda cluster: _each(
                f"{rate:g}" for node in cluster.nodes if (rate := node.nic_bandwidth_gbps)
            ),
        },
    ),
    "devices": (
        catalog_devices,
        {
            "memory_gib": lambda device: device.memory_gib,
            "peak_tflops": lambda device: _each(f"{kind} {peak:g}" for kind, peak in device.peak_tflops.items()),
            "memory_gbytes_per_s": lambda device: device.memory_bandwidth_gbytes,
        },
    ),
    "stacks": (
        catalog_stacks,
        {
            "schedules": lambda stack: _listed(stack.schedules),
            "recompute": lambda stack: _listed(stack.recompute) + (" by stage" if stack.recompute_by_stage else ""),
            "divisions": lambda stack: _listed(stack.divisions),
            "zero": lambda stack: _listed(stack.zero),
            "zero_in_pipelines": lambda stack: _listed(stack.pipeline_zero or stack.zero),
            "calibrations": lambda stack: _listed(stack.calibrations),
        },
    ),
    "calibrations": (
        catalog_calibrations,
        {
            **{name: attrgetter(name) for name in ("stack", "device", "nodes", "samples")},
            "mape": lambda entry: _error(entry.mape),
        },
    ),
    "memory-models": (
        catalog_memory_models,
        {
            **{name: attrgetter(name) for name in ("stack", "device", "precision", "samples")},
            "mape": lambda entry: _error(entry.mape),
            "margin_gib": lambda entry: f"{entry.margin_gib:.2f}",
        },
    ),
    "profiles": (
        catalog_profiles,
        {
            "devices": lambda table: _listed(sorted({row.device for row in table.rows})),
            "tp": lambda table: _listed(sorted({row.tp for row in table.rows})),
            "micro_batch": lambda table: _listed(sorted({row.micro_batch for row in table.rows})),
            "rows": lambda table: len(table.rows),
        },
    ),
}
"""
Entries of every section, and the columns between name and source.

Links are in Gb/s, one way: of one GPU to another of its node, of one pair between nodes, of all cards of a node.
"""


def catalog_listing(section: str = "") -> dict[str, list[dict[str, Any]]]:
    """Catalog entries by section."""
    if section and section not in SECTIONS:
        raise DataError(f"catalog {section!r}: expected one of {', '.join(SECTIONS)}")
    return {
        name: [_row(*entry, columns) for entry in entries().items()]
        for name, (entries, columns) in SECTIONS.items()
        if section in ("", name)
    }


def _row(name: str, entry: Any, columns: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
    source = entry.basis if isinstance(entry, CostTable) else entry.source
    return {"name": name, **{column: figure(entry) for column, figure in columns.items()}, "source": source}


def catalog_text(listing: dict[str, list[dict[str, Any]]]) -> str:
    """The listing as aligned text, one entry a line."""
    return "\n\n".join(_table(section, rows) for section, rows in listing.items())


def _table(section: str, rows: list[dict[str, Any]]) -> str:
    columns = list(rows[0])
    cells = [columns, *([_cell(row[column]) for column in columns] for row in rows)]
    return f"{section}\n{text_table(cells)}"


def _cell(value: object) -> str:
    return f"{value / 1e9:.4g}e9" if isinstance(value, int) and value > 10**7 else str(value)


def cluster_yaml(cluster: ClusterSpec) -> str:
    """A cluster as a file that ``load_cluster`` reads back to the same cluster."""
    known = catalog_devices()
    values = cluster.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    for group, spec in zip(values["nodes"], cluster.nodes, strict=True):
        if known.get(spec.device.name) == spec.device:
            group["device"] = spec.device.name
    return yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=100_000)
