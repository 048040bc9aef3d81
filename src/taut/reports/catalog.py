"""The catalog in words, and a cluster as our YAML."""

from collections.abc import Iterable
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
from taut.errors import DataError
from taut.words import text_table

SECTIONS = ("models", "clusters", "devices", "stacks", "calibrations", "memory-models", "profiles")


def catalog_listing(section: str = "") -> dict[str, list[dict[str, Any]]]:
    """Catalog entries by section."""
    if section and section not in SECTIONS:
        raise DataError(f"catalog {section!r}: expected one of {', '.join(SECTIONS)}")
    listing = {
        "models": _models,
        "clusters": _clusters,
        "devices": _devices,
        "stacks": _stacks,
        "calibrations": _calibrations,
        "memory-models": _memory_models,
        "profiles": _profiles,
    }
    return {name: rows() for name, rows in listing.items() if section in ("", name)}


def _models() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "parameters": model.parameters(),
            "layers": len(model.blocks),
            "hidden": model.blocks[0].hidden,
            "seq": model.blocks[0].seq,
            "source": model.source,
        }
        for name, model in catalog_models().items()
    ]


def _each(figures: Iterable[str]) -> str:
    """Figures of the kinds of nodes, equal ones once."""
    return ", ".join(dict.fromkeys(figures))


def _clusters() -> list[dict[str, Any]]:
    """Clusters with their links in Gb/s, one way: of a GPU in its node, a pair between nodes, all cards of a node."""
    return [
        {
            "name": name,
            "nodes": cluster.num_nodes,
            "devices": cluster.num_devices,
            "types": ", ".join(cluster.devices),
            "gpu_gbps": _each(f"{node.intra_bandwidth_gbps:g}" for node in cluster.nodes),
            "pair_gbps": "" if cluster.network.bandwidth_gbps is None else f"{cluster.network.bandwidth_gbps:g}",
            "cards_gbps": _each(f"{node.nic_bandwidth_gbps:g}" for node in cluster.nodes if node.nic_bandwidth_gbps),
            "source": cluster.source,
        }
        for name, cluster in catalog_clusters().items()
    ]


def _devices() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "memory_gib": device.memory_gib,
            "peak_tflops": ", ".join(f"{precision} {peak:g}" for precision, peak in device.peak_tflops.items()),
            "memory_gbytes_per_s": device.memory_bandwidth_gbytes,
            "source": device.source,
        }
        for name, device in catalog_devices().items()
    ]


def _stacks() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "schedules": ", ".join(stack.schedules),
            "recompute": ", ".join(stack.recompute) + (" by stage" if stack.recompute_by_stage else ""),
            "divisions": ", ".join(stack.divisions),
            "zero": ", ".join(map(str, stack.zero)),
            "zero_in_pipelines": ", ".join(map(str, stack.pipeline_zero or stack.zero)),
            "calibrations": ", ".join(stack.calibrations),
            "source": stack.source,
        }
        for name, stack in catalog_stacks().items()
    ]


def _calibrations() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "stack": entry.stack,
            "device": entry.device,
            "nodes": entry.nodes,
            "samples": entry.samples,
            "mape": "" if entry.mape is None else f"{entry.mape:.1%}",
            "source": entry.source,
        }
        for name, entry in catalog_calibrations().items()
    ]


def _memory_models() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "stack": entry.stack,
            "device": entry.device,
            "precision": entry.precision,
            "samples": entry.samples,
            "mape": "" if entry.mape is None else f"{entry.mape:.1%}",
            "margin_gib": f"{entry.margin_gib:.2f}",
            "source": entry.source,
        }
        for name, entry in catalog_memory_models().items()
    ]


def _profiles() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "devices": ", ".join(sorted({row.device for row in table.rows})),
            "tp": ", ".join(map(str, sorted({row.tp for row in table.rows}))),
            "micro_batch": ", ".join(map(str, sorted({row.micro_batch for row in table.rows}))),
            "rows": len(table.rows),
            "source": table.basis,
        }
        for name, table in catalog_profiles().items()
    ]


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
