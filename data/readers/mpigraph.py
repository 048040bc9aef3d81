"""
Measured node-to-node bandwidth from mpiGraph.

Two forms are read: mpiGraph's own text, whose ``Send`` block has one line per process (row sends to column) followed by
a ``Recv`` block (row receives from column), and a CSV matrix (row sends to column) whose host names stand in a header
and before the rows, in a header alone, or nowhere; then the hosts are numbered. Figures are MB/s, the diagonal is
loop-back and ignored.

A figure between two nodes is that pair's bandwidth; the largest of a node's row is its ``nic_bandwidth``.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taut.data.cluster import ClusterSpec
from taut.data.read import is_number, number_or_nan, read_text
from taut.data.units import GIGABIT, MEGABYTE
from taut.errors import DataError


@dataclass(frozen=True, slots=True)
class MpiGraph:
    """Host names and the matrix of MB/s, row sends to column."""

    hosts: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]


def read_mpigraph(path: Path) -> MpiGraph:
    """Hosts, and MB/s from row to column, of mpiGraph's text or a CSV matrix; ``DataError`` if it is not square."""
    text = read_text(path, "mpiGraph output")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    table = _csv_table(lines, path) if lines and "," in lines[0] else _text_table(lines, path)
    hosts = tuple(name for name, _ in table)
    if not table:
        raise DataError(f"{path}: has no Send or Recv block and no CSV matrix, expected mpiGraph output")
    rows = tuple(_numbers(cells, row, len(table), path) for row, (_, cells) in enumerate(table, start=1))
    return MpiGraph(hosts, rows)


def _csv_table(lines: list[str], path: Path) -> list[tuple[str, list[str]]]:
    header, *cells = [[cell.strip() for cell in line.split(",")] for line in lines]
    if all(map(is_number, header)):
        return [(f"node{number}", line) for number, line in enumerate([header, *cells])]
    if len(header) == len(cells) and all(map(is_number, (line[0] for line in cells))):
        return list(zip(header, cells, strict=True))
    table = [(line[0], line[1:]) for line in cells]
    if header[1:] != [name for name, _ in table]:
        raise DataError(f"{path}: the header does not name the hosts of the rows in their order, expected it to")
    return table


def _text_table(lines: list[str], path: Path) -> list[tuple[str, list[str]]]:
    """Rows of the Send block, or of the Recv block turned over where there is no Send block."""
    blocks: dict[str, list[tuple[str, list[str]]]] = {"to": [], "from": []}
    for line in lines:
        words = line.split()
        if len(words) > 2 and words[1] in blocks:
            blocks[words[1]].append((words[0], words[2:]))
    if blocks["to"] or not blocks["from"]:
        return blocks["to"]
    received = blocks["from"]
    if any(len(cells) != len(received) for _, cells in received):
        raise DataError(f"{path}: the Recv block is not square, expected {len(received)} figures a row")
    return [(name, [cells[j] for _, cells in received]) for j, (name, _) in enumerate(received)]


def _numbers(cells: list[str], row: int, size: int, path: Path) -> tuple[float, ...]:
    if len(cells) != size:
        raise DataError(f"{path} row {row}: has {len(cells)} figures, expected {size} as there are rows")
    return tuple(_number(cell, row, column, path) for column, cell in enumerate(cells, start=1))


def _number(cell: str, row: int, column: int, path: Path) -> float:
    value = number_or_nan(cell)
    if row != column and not (math.isfinite(value) and value > 0):
        raise DataError(f"{path} row {row} column {column}: is {cell.strip()!r}, expected MB/s > 0")
    return value if math.isfinite(value) else 0.0


def cluster_from_mpigraph(graph: MpiGraph, *, name: str, latency_us: float = 5.0, **node: Any) -> ClusterSpec:
    """Cluster of the measured hosts in their order, each a ``node`` of stated fields; ``DataError`` if one is twice."""
    hosts = [host.partition(":")[0] for host in graph.hosts]
    for host in hosts:
        if hosts.count(host) > 1:
            raise DataError(f"{name}: host {host} stands {hosts.count(host)} times, expected one process per host")
    others = [[rate for j, rate in enumerate(row) if j != i] for i, row in enumerate(graph.rows)]
    largest = [max(rates) * MEGABYTE / GIGABIT if rates else None for rates in others]
    nodes = [{"intra_latency_us": 3.0, **node, "nic_bandwidth_gbps": rate} for rate in largest]
    return ClusterSpec.parse(
        {
            "name": name,
            "nodes": nodes,
            "network": {"latency_us": latency_us},
            "bandwidth_matrix": {"unit": "MB/s", "rows": [list(row) for row in graph.rows]},
            "source": "mpiGraph, row sends to column; a node's nic_bandwidth is the largest of its row",
        },
        name,
    )
